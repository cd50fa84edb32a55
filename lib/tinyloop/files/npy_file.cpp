// SPDX-License-Identifier: Apache-2.0
// The .npy header is a Python dict literal; this reads the three keys NumPy writes, in any order.
// Not a Python parser: what NumPy does not write is refused.
#include "tinyloop/files/npy_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/lfs_pointer.h"

namespace tinyloop {

static_assert(std::endian::native == std::endian::little,
              "files are mapped and written as they are");

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kHeaderBytes = 128;  // of what NpyWriter writes, room for every row count
constexpr std::size_t kLongestHeader = 64 * 1024;

struct TypeRow {
  std::string_view descr;
  NpyType type;
  std::size_t bytes;
};
constexpr TypeRow kTypes[] = {{"<f4", NpyType::f32, 4}, {"<i4", NpyType::i32, 4},
                              {"<i8", NpyType::i64, 8}, {"<u4", NpyType::u32, 4},
                              {"<u2", NpyType::u16, 2}, {"|u1", NpyType::u8, 1}};

const TypeRow& row_of(NpyType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row;
  }
  return kTypes[0];
}

// A cursor over the dict literal.
class Literal {
 public:
  Literal(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  bool take(char wanted) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail();
  }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  std::string_view quoted() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail();
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail();
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }
  bool boolean() {
    skip_blanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    fail();
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!take(')')) {
      std::int64_t value = 0;
      skip_blanks();
      const char* first = text_.data() + at_;
      const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0 || values.size() == 32) fail();
      at_ += static_cast<std::size_t>(end - first);
      values.push_back(value);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }
  [[noreturn]] void fail() const {
    throw Error(ErrorKind::data, "{}: malformed .npy header at byte {}", where_, at_);
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_, where_;
  std::size_t at_ = 0;
};

struct Header {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

Header parse_header(std::string_view text, std::string_view where) {
  Literal literal(text, where);
  Header header;
  literal.expect('{');
  while (!literal.take('}')) {
    const std::string_view key = literal.quoted();
    literal.expect(':');
    if (key == "descr" && !header.descr) {
      header.descr = literal.quoted();
    } else if (key == "fortran_order" && !header.fortran_order) {
      header.fortran_order = literal.boolean();
    } else if (key == "shape" && !header.shape) {
      header.shape = literal.tuple();
    } else {
      literal.fail();
    }
    if (!literal.take(',')) {
      literal.expect('}');
      break;
    }
  }
  if (!literal.at_end() || !header.descr || !header.fortran_order || !header.shape) literal.fail();
  return header;
}

// Elements with the first index changing fastest to elements with the last one changing fastest.
std::vector<std::byte> in_c_order(std::span<const std::byte> bytes, std::size_t element_bytes,
                                  std::span<const std::int64_t> shape) {
  std::vector<std::byte> ordered(bytes.size());
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::size_t to = 0; to < ordered.size(); to += element_bytes) {
    std::size_t from = 0;
    for (std::size_t i = shape.size(); i-- > 0;) {
      from = from * static_cast<std::size_t>(shape[i]) + static_cast<std::size_t>(index[i]);
    }
    std::memcpy(ordered.data() + to, bytes.data() + from * element_bytes, element_bytes);
    for (std::size_t i = shape.size(); i-- > 0 && ++index[i] == shape[i];) index[i] = 0;
  }
  return ordered;
}

template <typename T>
T element(const NpyArray& array, std::int64_t index) {
  T value;
  assert(index >= 0 && index < array.elements());
  std::memcpy(&value, array.bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::int64_t NpyArray::elements() const {
  return static_cast<std::int64_t>(bytes.size() / row_of(type).bytes);
}

float NpyArray::real(std::int64_t index) const {
  assert(type == NpyType::f32);
  return element<float>(*this, index);
}

std::int64_t NpyArray::integer(std::int64_t index) const {
  switch (type) {
    case NpyType::i32:
      return element<std::int32_t>(*this, index);
    case NpyType::i64:
      return element<std::int64_t>(*this, index);
    case NpyType::u32:
      return element<std::uint32_t>(*this, index);
    case NpyType::u16:
      return element<std::uint16_t>(*this, index);
    case NpyType::u8:
      return element<std::uint8_t>(*this, index);
    case NpyType::f32:
      break;
  }
  assert(false);
  return 0;
}

NpyArray parse_npy(std::span<const std::byte> file, std::string_view where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() < 10 || text.substr(0, 6) != kMagic) {
    refuse_lfs_pointer(text, where);
    throw Error(ErrorKind::data, "{}: is not a .npy file", where);
  }
  const int version = static_cast<unsigned char>(text[6]);
  if (version < 1 || version > 3) {
    throw Error(ErrorKind::data, "{}: .npy version {} is unknown", where, version);
  }
  const std::size_t digits = version == 1 ? 2 : 4;  // bytes of the header's length
  std::size_t length = 0;
  if (text.size() < 8 + digits)
    throw Error(ErrorKind::data, "{}: is truncated inside its header", where);
  for (std::size_t i = 0; i < digits; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(text[8 + i])) << (8 * i);
  }
  const std::size_t start = 8 + digits + length;
  if (start > text.size())
    throw Error(ErrorKind::data, "{}: is truncated inside its header", where);
  if (length > kLongestHeader)
    throw Error(ErrorKind::data, "{}: the .npy header is too long", where);
  const Header header = parse_header(text.substr(8 + digits, length), where);

  NpyArray array;
  std::size_t element_bytes = 0;
  for (const TypeRow& row : kTypes) {
    if (row.descr == *header.descr) {
      array.type = row.type;
      element_bytes = row.bytes;
    }
  }
  if (element_bytes == 0) {
    throw Error(ErrorKind::data,
                "{}: has type {}; supported are little-endian float32, int32, int64, uint32, "
                "uint16 and uint8",
                where, json_string(header.descr->substr(0, 40)));
  }
  std::size_t bytes = element_bytes;
  bool fits = true;
  for (const std::int64_t dimension : *header.shape) {
    fits = fits && !__builtin_mul_overflow(bytes, static_cast<std::size_t>(dimension), &bytes);
  }
  if (!fits || bytes != text.size() - start) {
    throw Error(ErrorKind::data, "{}: has {} bytes of data, which does not match its shape", where,
                text.size() - start);
  }
  array.shape = *header.shape;
  const std::span<const std::byte> data = file.subspan(start);
  if (*header.fortran_order && header.shape->size() > 1) {
    array.bytes = in_c_order(data, element_bytes, array.shape);
  } else {
    array.bytes.assign(data.begin(), data.end());
  }
  return array;
}

NpyArray read_npy(const std::string& path) {
  const auto fail = [&path](int error) {
    throw Error(ErrorKind::io, "{}: {}", path, std::generic_category().message(error));
  };
  struct Descriptor {
    int number;
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
  };
  // O_NONBLOCK: a pipe without a writer must not hang us.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) fail(errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, "{}: is not a regular file", path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.number, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    if (count == 0) break;  // it shrank meanwhile; the header will not fit
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return parse_npy(bytes, path);
}

NpyWriter::NpyWriter(std::string path, std::vector<std::int64_t> row_shape)
    : file_(std::move(path)), row_shape_(std::move(row_shape)) {
  for (const std::int64_t dimension : row_shape_) row_elements_ *= dimension;
  assert(row_elements_ > 0);
  file_.write(header(std::numeric_limits<std::int64_t>::max()));  // patched by finish()
}

void NpyWriter::append(std::span<const float> values) {
  file_.write(std::as_bytes(values));
  elements_ += static_cast<std::int64_t>(values.size());
}

void NpyWriter::finish() {
  assert(elements_ % row_elements_ == 0);
  file_.write_at(0, header(elements_ / row_elements_));
  file_.commit();
}

std::string NpyWriter::header(std::int64_t rows) const {
  std::string dict = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},", rows);
  dict += fmt::format("{}{}), }}", row_shape_.empty() ? "" : " ", fmt::join(row_shape_, ", "));
  constexpr std::size_t kDict = kHeaderBytes - 10;
  assert(dict.size() < kDict);
  dict.resize(kDict - 1, ' ');
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(kDict), '\x00'};
  return text + dict + '\n';
}

}  // namespace tinyloop
