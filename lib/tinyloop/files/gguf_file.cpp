// SPDX-License-Identifier: Apache-2.0
// Reads the GGUF format. All of it comes from outside and is believed in nothing.
#include "tinyloop/files/gguf_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/lfs_pointer.h"
#include "tinyloop/parse_number.h"

namespace tinyloop {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::size_t kLongestName = 1000;
constexpr std::uint32_t kMostDimensions = 4;

struct TypeRow {
  std::uint32_t id;
  std::string_view name;
  std::int64_t values, bytes;  // of a block; 0: cannot be read
};
constexpr TypeRow kTypes[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},    {9, "Q8_1", 0, 0},
    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210}, {15, "Q8_K", 0, 0},     {16, "IQ2_XXS", 0, 0},  {17, "IQ2_XS", 0, 0},
    {18, "IQ3_XXS", 0, 0},  {19, "IQ1_S", 0, 0},    {20, "IQ4_NL", 0, 0},   {21, "IQ3_S", 0, 0},
    {22, "IQ2_S", 0, 0},    {23, "IQ4_XS", 0, 0},   {24, "I8", 0, 0},       {25, "I16", 0, 0},
    {26, "I32", 0, 0},      {27, "I64", 0, 0},      {28, "F64", 0, 0},      {29, "IQ1_M", 0, 0},
    {30, "BF16", 1, 2},     {34, "TQ1_0", 0, 0},    {35, "TQ2_0", 0, 0},    {39, "MXFP4", 0, 0},
};

const TypeRow* find_type(std::uint32_t id) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [id](const TypeRow& row) { return row.id == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

const TypeRow& row_of(BlockType type) { return *find_type(static_cast<std::uint32_t>(type)); }

// Bytes of a value of fixed length; 0 for texts and lists.
std::size_t bytes_of(GgufType type) {
  constexpr std::array<std::size_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<std::size_t>(type)];
}

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool plain(std::string_view name) {
  const auto printable = [](char c) { return c >= ' ' && c < 127; };
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), printable);
}

class Reader {
 public:
  Reader(std::span<const std::byte> file, std::string_view where) : file_(file), where_(where) {}

  GgufHeader read() {
    check_start();
    const std::uint64_t tensors = number<std::uint64_t>(), keys = number<std::uint64_t>();
    // Of what follows each takes at least so many bytes.
    constexpr std::uint64_t kLeastTensor = 24, kLeastKey = 13;
    check_count(tensors, kLeastTensor, "tensors");
    check_count(keys, kLeastKey, "keys");
    std::map<std::string, GgufValue, std::less<>> values;
    for (std::uint64_t i = 0; i < keys; ++i) read_key(values);
    GgufHeader header{GgufMetadata(std::string(where_), std::move(values)), {}};
    std::set<std::string_view> names;
    std::vector<std::uint64_t> offsets;
    header.tensors.reserve(tensors);
    for (std::uint64_t i = 0; i < tensors; ++i) {
      header.tensors.push_back(read_tensor(offsets));
      if (!names.insert(header.tensors.back().name).second) {
        fail(fmt::format("duplicate tensor {}", header.tensors.back().name));
      }
    }
    place_tensors(header, offsets);
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorKind::data, "{}: {}", where_, what);
  }

  std::size_t left() const { return file_.size() - at_; }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left()) {
      fail(fmt::format("is truncated inside {} ({} bytes of {})", what, left(), count));
    }
    const auto taken = file_.subspan(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }

  template <typename T>
  T number() {
    return load<T>(take(sizeof(T), part_).data());
  }

  void check_start() {
    if (!is_gguf(file_)) {
      refuse_lfs_pointer(as_text(file_), where_);
      fail("is not a GGUF file");
    }
    take(kMagic.size(), part_);
    const auto version = number<std::uint32_t>();
    if (version == 2 || version == 3) return;
    if (version != 0 && (version & 0xffffu) == 0) {
      fail("is a big-endian GGUF file, which is not supported");
    }
    fail(fmt::format("is a GGUF file of version {}; 2 and 3 are supported", version));
  }

  void check_count(std::uint64_t count, std::uint64_t least, std::string_view of) const {
    if (count > left() / least) {
      fail(
          fmt::format("says that it has {} {}, for which {} bytes are too few", count, of, left()));
    }
  }

  GgufType type() {
    const auto id = number<std::uint32_t>();
    if (id > static_cast<std::uint32_t>(GgufType::f64)) {
      fail(fmt::format("{}: unknown value type {}", part_, id));
    }
    return static_cast<GgufType>(id);
  }

  void skip(GgufType type, std::uint64_t count) {
    const std::size_t each = bytes_of(type);
    if (each == 0) {
      check_elements(count, sizeof(std::uint64_t));
      for (std::uint64_t i = 0; i < count; ++i) take(number<std::uint64_t>(), part_);
    } else {
      check_elements(count, each);
      take(count * each, part_);
    }
  }

  void check_elements(std::uint64_t count, std::uint64_t each) const {
    if (count > left() / each) {
      fail(fmt::format("{} says that it has {} values, for which {} bytes are too few", part_,
                       count, left()));
    }
  }

  void read_key(std::map<std::string, GgufValue, std::less<>>& values) {
    part_ = "the metadata";
    const std::string key(as_text(take(number<std::uint64_t>(), part_)));
    if (!plain(key)) {
      fail(
          "a key is empty, longer than 1000 bytes or holds other characters than ASCII's visible "
          "ones");
    }
    part_ = fmt::format("key {}", key);
    GgufValue value;
    value.type = type();
    if (value.type == GgufType::list) {
      value.element = type();
      value.count = number<std::uint64_t>();
      if (value.element == GgufType::list)
        fail(fmt::format("{}: a list of lists is not supported", part_));
    }
    const std::size_t begin = at_;
    skip(value.type == GgufType::list ? value.element : value.type, value.count);
    value.bytes = file_.subspan(begin, at_ - begin);
    if (!values.emplace(key, value).second) fail(fmt::format("duplicate {}", part_));
  }

  GgufTensor read_tensor(std::vector<std::uint64_t>& offsets) {
    part_ = "the table of tensors";
    GgufTensor tensor;
    tensor.name = as_text(take(number<std::uint64_t>(), part_));
    if (!plain(tensor.name)) {
      fail(
          "a tensor's name is empty, longer than 1000 bytes or holds other characters than ASCII's "
          "visible ones");
    }
    part_ = fmt::format("tensor {}", tensor.name);
    const auto dimensions = number<std::uint32_t>();
    if (dimensions == 0 || dimensions > kMostDimensions) {
      fail(fmt::format("{}: has {} dimensions; 1 to {} are supported", part_, dimensions,
                       kMostDimensions));
    }
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto size = number<std::uint64_t>();
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(fmt::format("{}: a dimension is {}, which is out of range", part_, size));
      }
      tensor.shape.push_back(static_cast<std::int64_t>(size));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    const auto id = number<std::uint32_t>();
    const TypeRow* row = find_type(id);
    if (row == nullptr || row->bytes == 0) {
      fail(fmt::format("{}: type {} is not supported", part_,
                       row == nullptr ? fmt::format("{}", id) : std::string(row->name)));
    }
    tensor.type = static_cast<BlockType>(id);
    offsets.push_back(number<std::uint64_t>());
    return tensor;
  }

  // Bytes that type and shape ask for.
  std::uint64_t size_of(const GgufTensor& tensor) const {
    const TypeRow& row = row_of(tensor.type);
    if (tensor.shape.back() % row.values != 0) {
      fail(
          fmt::format("tensor {}: a row has {} values, which the {} of a block of {} do not divide",
                      tensor.name, tensor.shape.back(), row.values, row.name));
    }
    std::uint64_t bytes = static_cast<std::uint64_t>(row.bytes);
    bool fits = true;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const bool last = i + 1 == tensor.shape.size();
      const auto factor =
          static_cast<std::uint64_t>(last ? tensor.shape[i] / row.values : tensor.shape[i]);
      fits = fits && !__builtin_mul_overflow(bytes, factor, &bytes);
    }
    if (!fits) fail(fmt::format("tensor {}: its size is out of range", tensor.name));
    return bytes;
  }

  std::uint64_t alignment(const GgufMetadata& metadata) const {
    constexpr std::int64_t kGreatest = 1 << 20;
    const std::int64_t alignment = metadata.integer_or("general.alignment", 32);
    if (alignment < 1 || alignment > kGreatest || (alignment & (alignment - 1)) != 0) {
      metadata.refuse("general.alignment", "a power of two up to 1048576 is needed");
    }
    return static_cast<std::uint64_t>(alignment);
  }

  // Tensors follow each other in the order of the table, each at the next aligned offset.
  void place_tensors(GgufHeader& header, const std::vector<std::uint64_t>& offsets) const {
    const std::uint64_t step = alignment(header.metadata);
    const auto padded = [step](std::uint64_t size) { return (size + step - 1) / step * step; };
    const std::uint64_t start = std::min<std::uint64_t>(padded(at_), file_.size());
    const auto data = file_.subspan(static_cast<std::size_t>(start));
    std::uint64_t next = 0, end = 0;
    for (std::size_t i = 0; i < header.tensors.size(); ++i) {
      GgufTensor& tensor = header.tensors[i];
      const std::uint64_t size = size_of(tensor), first = offsets[i];
      const auto wrong = [&](std::string_view what) {
        fail(fmt::format("tensor {}: {} (offset {}, {} bytes, of {} bytes of data)", tensor.name,
                         what, first, size, data.size()));
      };
      if (first % step != 0) wrong("its offset is not aligned");
      if (first < next) wrong("overlaps the tensor before it");
      if (first > next) wrong("leaves a hole before it");
      if (first > data.size() || size > data.size() - first) wrong("the file ends before its end");
      tensor.bytes = data.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
      end = first + size;
      next = padded(end);
    }
    if (data.size() > next) {
      fail(fmt::format("{} bytes follow the last tensor", data.size() - end));
    }
  }

  std::span<const std::byte> file_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string part_ = "its header";
};

bool is_integer(GgufType type) {
  return type != GgufType::f32 && type != GgufType::f64 && type != GgufType::boolean &&
         type != GgufType::text && type != GgufType::list;
}

// One value of fixed length; nothing where it does not fit.
std::optional<std::int64_t> integer_at(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::u8:
      return load<std::uint8_t>(from);
    case GgufType::i8:
      return load<std::int8_t>(from);
    case GgufType::u16:
      return load<std::uint16_t>(from);
    case GgufType::i16:
      return load<std::int16_t>(from);
    case GgufType::u32:
      return load<std::uint32_t>(from);
    case GgufType::i32:
      return load<std::int32_t>(from);
    case GgufType::i64:
      return load<std::int64_t>(from);
    case GgufType::u64: {
      const auto value = load<std::uint64_t>(from);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
      return static_cast<std::int64_t>(value);
    }
    default:
      return {};
  }
}

std::optional<double> number_at(GgufType type, const std::byte* from) {
  if (type == GgufType::f64) return load<double>(from);
  if (type != GgufType::f32) {
    const auto value = integer_at(type, from);
    return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
  }
  const auto value = load<float>(from);
  double decimal = value;
  if (std::isfinite(value))
    decimal = parse_number<double>(fmt::format("{}", value)).value_or(value);
  return decimal;
}

}  // namespace

std::string_view name_of(BlockType type) { return row_of(type).name; }
std::int64_t block_values(BlockType type) { return row_of(type).values; }
std::int64_t block_bytes(BlockType type) { return row_of(type).bytes; }

const GgufValue& GgufMetadata::at(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw Error(ErrorKind::data, "{}: {} is missing", where_, key);
  return found->second;
}

bool GgufMetadata::flag(std::string_view key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::boolean) refuse(key, "true or false is needed");
  return load<std::uint8_t>(value.bytes.data()) != 0;
}

bool GgufMetadata::flag_or(std::string_view key, bool fallback) const {
  return has(key) ? flag(key) : fallback;
}

std::int64_t GgufMetadata::integer(std::string_view key) const {
  const GgufValue& value = at(key);
  const auto integer = integer_at(value.type, value.bytes.data());
  if (!integer) refuse(key, "an integer is needed");
  return *integer;
}

std::int64_t GgufMetadata::integer_or(std::string_view key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufMetadata::number(std::string_view key) const {
  const GgufValue& value = at(key);
  const auto number = number_at(value.type, value.bytes.data());
  if (!number) refuse(key, "a number is needed");
  return *number;
}

std::string_view GgufMetadata::text(std::string_view key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::text) refuse(key, "a text is needed");
  return as_text(value.bytes.subspan(sizeof(std::uint64_t)));
}

std::uint64_t GgufMetadata::list_length(std::string_view key) const {
  if (!has(key)) return 0;
  if (at(key).type != GgufType::list) refuse(key, "a list is needed");
  return at(key).count;
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::list || (value.element != GgufType::text && value.count != 0)) {
    refuse(key, "a list of texts is needed");
  }
  std::vector<std::string_view> texts;
  texts.reserve(value.count);
  std::span<const std::byte> rest = value.bytes;
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto length = static_cast<std::size_t>(load<std::uint64_t>(rest.data()));
    texts.push_back(as_text(rest.subspan(sizeof(std::uint64_t), length)));
    rest = rest.subspan(sizeof(std::uint64_t) + length);
  }
  return texts;
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::list) return {integer(key)};
  if (!is_integer(value.element)) refuse(key, "a list of integers is needed");
  std::vector<std::int64_t> integers;
  integers.reserve(value.count);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto integer =
        integer_at(value.element, value.bytes.data() + i * bytes_of(value.element));
    if (!integer) refuse(key, "an integer is too great");
    integers.push_back(*integer);
  }
  return integers;
}

std::vector<double> GgufMetadata::numbers(std::string_view key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::list || value.element != GgufType::f32) {
    refuse(key, "a list of 32-bit floats is needed");
  }
  std::vector<double> numbers;
  numbers.reserve(value.count);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    numbers.push_back(load<float>(value.bytes.data() + i * sizeof(float)));
  }
  return numbers;
}

bool GgufMetadata::is_set(std::string_view key) const {
  if (!has(key)) return false;
  const GgufValue& value = at(key);
  if (value.type == GgufType::list) return value.count != 0;
  if (value.type == GgufType::text) return !text(key).empty();
  if (value.type == GgufType::boolean) return flag(key);
  const auto number = number_at(value.type, value.bytes.data());
  return !number || *number != 0.0;
}

void GgufMetadata::refuse(std::string_view key, std::string_view reason) const {
  const auto found = values_.find(key);
  std::string shown = "absent";
  if (found != values_.end()) {
    const GgufValue& value = found->second;
    if (value.type == GgufType::text) {
      shown = json_string(text(key).substr(0, 60));
    } else if (value.type == GgufType::list) {
      shown = fmt::format("a list of {}", value.count);
    } else if (value.type == GgufType::boolean) {
      shown = flag(key) ? "true" : "false";
    } else if (const auto integer = integer_at(value.type, value.bytes.data())) {
      shown = fmt::format("{}", *integer);
    } else if (value.type == GgufType::u64) {
      shown = fmt::format("{}", load<std::uint64_t>(value.bytes.data()));
    } else {
      shown = fmt::format("{}", *number_at(value.type, value.bytes.data()));
    }
  }
  throw Error(ErrorKind::data, "{}: {} is {}, {}", where_, key, shown, reason);
}

bool is_gguf(std::span<const std::byte> file) { return as_text(file).starts_with(kMagic); }

bool is_gguf_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, kMagic.size()> start{};
  file.read(start.data(), start.size());
  return file && std::string_view(start.data(), start.size()) == kMagic;
}

GgufHeader parse_gguf(std::span<const std::byte> file, std::string_view where) {
  return Reader(file, where).read();
}

GgufFile GgufFile::open(const std::string& path) {
  MappedFile file = MappedFile::open(path);
  GgufHeader header = parse_gguf(file.bytes(), path);
  return GgufFile(std::move(file), std::move(header));
}

}  // namespace tinyloop
