// SPDX-License-Identifier: Apache-2.0
// Reads the safetensors format: the header parser. The header comes from outside and is
// believed in nothing. Not the writer: that is tensor_file_writer.cpp.
#include "tinyloop/files/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/lfs_pointer.h"

namespace tinyloop {

static_assert(std::endian::native == std::endian::little,
              "files are mapped and written as they are");

namespace {

constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kLongestName = 1000;
constexpr std::size_t kMostDimensions = 32;

struct TypeRow {
  TensorType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr TypeRow kTypes[] = {
    {TensorType::f64, "F64", 8},      {TensorType::f32, "F32", 4}, {TensorType::f16, "F16", 2},
    {TensorType::bf16, "BF16", 2},    {TensorType::i64, "I64", 8}, {TensorType::i32, "I32", 4},
    {TensorType::i16, "I16", 2},      {TensorType::i8, "I8", 1},   {TensorType::u64, "U64", 8},
    {TensorType::u32, "U32", 4},      {TensorType::u16, "U16", 2}, {TensorType::u8, "U8", 1},
    {TensorType::boolean, "BOOL", 1},
};

const TypeRow& row_of(TensorType type) { return kTypes[static_cast<std::size_t>(type)]; }

// Takes the header apart while nlohmann/json reads it, so that nothing but the one allowed
// structure is ever built:
// {"__metadata__": {text: text}, name: {"dtype": text, "shape": [n...], "data_offsets": [b, e]}}
class HeaderReader {
 public:
  struct Entry {
    std::string name;
    std::optional<TensorType> type;
    std::optional<std::vector<std::int64_t>> shape;
    std::uint64_t first = 0, last = 0;   // data_offsets
    std::optional<std::size_t> offsets;  // how many of the two are there
  };

  explicit HeaderReader(std::string_view where) : where_(where) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a boolean"); }
  bool number_integer(std::int64_t) { unexpected("a negative number"); }
  bool number_float(double, const std::string&) {
    unexpected("a number that is not a 64-bit integer");
  }
  bool binary(std::vector<std::uint8_t>&) { unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Place::offsets && *entries.back().offsets < 2) {
      Entry& entry = entries.back();
      ((*entry.offsets)++ == 0 ? entry.first : entry.last) = value;
      return true;
    }
    if (place_ != Place::shape) unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        entries.back().shape->size() == kMostDimensions) {
      unexpected("an impossible dimension");
    }
    entries.back().shape->push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) {
      if (!metadata.emplace(key_, std::move(text)).second) unexpected("a duplicate key");
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype" || entries.back().type) unexpected("a text");
    for (const TypeRow& row : kTypes) {
      if (row.name == text) entries.back().type = row.type;
    }
    if (!entries.back().type) {
      throw Error(ErrorKind::data, "{}: tensor {}: unknown type {}", where_, entries.back().name,
                  json_string(text.substr(0, 40)));
    }
    return true;
  }

  bool key(std::string& text) {
    key_ = std::move(text);
    const auto printable = [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127; };
    if (key_.size() > kLongestName || !std::all_of(key_.begin(), key_.end(), printable)) {
      unexpected("a name that is too long or holds control characters");
    }
    if (place_ == Place::top && !names_.insert(key_).second) {
      throw Error(ErrorKind::data, "{}: duplicate tensor {}", where_, key_);
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::document) {
      place_ = Place::top;
    } else if (place_ == Place::top && key_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      place_ = Place::tensor;
      entries.emplace_back().name = key_;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) {
      const Entry& entry = entries.back();
      if (!entry.type || !entry.shape || !entry.offsets || *entry.offsets != 2) {
        throw Error(ErrorKind::data, "{}: tensor {}: dtype, shape or data_offsets is missing",
                    where_, entry.name);
      }
    }
    place_ = place_ == Place::top ? Place::document : Place::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ == Place::tensor && key_ == "shape" && !entries.back().shape) {
      entries.back().shape.emplace();
      place_ = Place::shape;
    } else if (place_ == Place::tensor && key_ == "data_offsets" && !entries.back().offsets) {
      entries.back().offsets = 0;
      place_ = Place::offsets;
    } else {
      unexpected("a list");
    }
    return true;
  }

  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    throw Error(ErrorKind::data, "{}: the header is not valid JSON at byte {}", where_,
                position + 8);
  }

 private:
  enum class Place { document, top, metadata, tensor, shape, offsets };

  [[noreturn]] void unexpected(std::string_view what) const {
    const std::string inside =
        place_ == Place::tensor || place_ == Place::shape || place_ == Place::offsets
            ? fmt::format("tensor {}", entries.back().name)
        : place_ == Place::metadata ? std::string("__metadata__")
                                    : std::string("the header");
    throw Error(ErrorKind::data, "{}: {}: {} is not allowed here", where_, inside, what);
  }

  std::string_view where_;
  Place place_ = Place::document;
  std::string key_;
  std::set<std::string> names_;
};

}  // namespace

std::size_t bytes_of(TensorType type) { return row_of(type).bytes; }
std::string_view safetensors_name(TensorType type) { return row_of(type).name; }

std::optional<std::uint64_t> bytes_of_shape(TensorType type, std::span<const std::int64_t> shape) {
  std::uint64_t bytes = row_of(type).bytes;
  for (const std::int64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) return {};
  }
  return bytes;
}

std::int64_t TensorView::elements() const {
  return static_cast<std::int64_t>(bytes.size() / row_of(type).bytes);
}

template <typename T>
std::span<const T> TensorView::as() const {
  bool fits = sizeof(T) == row_of(type).bytes;
  switch (type) {
    case TensorType::f64:
    case TensorType::f32:
      fits = fits && std::is_floating_point_v<T>;
      break;
    case TensorType::i64:
    case TensorType::i32:
    case TensorType::i16:
    case TensorType::i8:
      fits = fits && std::is_integral_v<T> && std::is_signed_v<T>;
      break;
    case TensorType::f16:  // as bits
    case TensorType::bf16:
    case TensorType::u64:
    case TensorType::u32:
    case TensorType::u16:
    case TensorType::u8:
    case TensorType::boolean:
      fits = fits && std::is_integral_v<T> && !std::is_signed_v<T>;
      break;
  }
  if (!fits) {
    throw Error(ErrorKind::data, "tensor {}: unexpected type {}", name, row_of(type).name);
  }
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0) {
    throw Error(ErrorKind::data, "tensor {}: its data are not aligned for {}", name,
                row_of(type).name);
  }
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template std::span<const double> TensorView::as<double>() const;
template std::span<const float> TensorView::as<float>() const;
template std::span<const std::int64_t> TensorView::as<std::int64_t>() const;
template std::span<const std::int32_t> TensorView::as<std::int32_t>() const;
template std::span<const std::int16_t> TensorView::as<std::int16_t>() const;
template std::span<const std::int8_t> TensorView::as<std::int8_t>() const;
template std::span<const std::uint64_t> TensorView::as<std::uint64_t>() const;
template std::span<const std::uint32_t> TensorView::as<std::uint32_t>() const;
template std::span<const std::uint16_t> TensorView::as<std::uint16_t>() const;
template std::span<const std::uint8_t> TensorView::as<std::uint8_t>() const;

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < 8) {
    throw Error(ErrorKind::data, "{}: {} bytes are too few for a safetensors file", where,
                file.size());
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kLongestHeader) {
    refuse_lfs_pointer({reinterpret_cast<const char*>(file.data()), file.size()}, where);
    throw Error(ErrorKind::data,
                "{}: is not a safetensors file, as models, saved states and pool entries are",
                where);
  }
  if (length > file.size() - 8) {
    throw Error(ErrorKind::data, "{}: is truncated inside its header ({} bytes of {})", where,
                file.size() - 8, length);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  // The JSON reader would take a NUL for the end and leave the rest unread.
  if (text.empty() || text.front() != '{' || text.find('\0') != std::string_view::npos) {
    throw Error(ErrorKind::data, "{}: is not a safetensors file: its header is not JSON", where);
  }
  HeaderReader reader(where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);

  using Entry = HeaderReader::Entry;
  std::sort(reader.entries.begin(), reader.entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.first, a.last, a.name) < std::tie(b.first, b.last, b.name);
  });
  const std::span<const std::byte> data = file.subspan(8 + length);
  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  header.tensors.reserve(reader.entries.size());
  std::uint64_t end = 0;  // of the tensors so far
  for (Entry& entry : reader.entries) {
    const std::uint64_t first = entry.first, last = entry.last;
    const auto fail = [&](std::string_view what) {
      throw Error(ErrorKind::data, "{}: tensor {}: {} (offsets {} to {}, {} bytes of data)", where,
                  entry.name, what, first, last, data.size());
    };
    if (first > last) fail("its offsets run backwards");
    if (last > data.size()) fail("reaches beyond the end of the file");
    if (first < end) fail("overlaps the tensor before it");
    if (first > end) fail("leaves a hole before it");
    if (bytes_of_shape(*entry.type, *entry.shape) != last - first) {
      fail("its size does not match its type and shape");
    }
    header.tensors.push_back({std::move(entry.name), *entry.type, std::move(*entry.shape),
                              data.subspan(first, last - first)});
    end = last;
  }
  if (end != data.size()) {
    throw Error(ErrorKind::data, "{}: {} bytes follow the last tensor", where, data.size() - end);
  }
  return header;
}

struct TensorFile::State {
  MappedFile file;
  SafetensorsHeader header;
  std::map<std::string_view, const TensorView*> by_name;
};

TensorFile::TensorFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&&) noexcept = default;
TensorFile::~TensorFile() = default;

TensorFile TensorFile::open(const std::string& path) {
  MappedFile file = MappedFile::open(path);
  SafetensorsHeader header = parse_safetensors(file.bytes(), path);
  auto state = std::make_unique<State>(State{std::move(file), std::move(header), {}});
  for (const TensorView& tensor : state->header.tensors) {
    state->by_name.emplace(tensor.name, &tensor);
  }
  return TensorFile(std::move(state));
}

const MappedFile& TensorFile::file() const { return state_->file; }
const std::string& TensorFile::path() const { return state_->file.path(); }
const std::vector<TensorView>& TensorFile::tensors() const { return state_->header.tensors; }

const TensorView* TensorFile::find(std::string_view name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : found->second;
}

const TensorView& TensorFile::at(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) {
    throw Error(ErrorKind::data, "{}: tensor {} is missing", path(), name);
  }
  return *tensor;
}

const std::map<std::string, std::string>& TensorFile::metadata() const {
  return state_->header.metadata;
}

std::span<const std::byte> TensorFile::mapping() const { return state_->file.bytes(); }

void TensorFile::forget(std::span<const std::byte> bytes) const { state_->file.forget(bytes); }

}  // namespace tinyloop
