// SPDX-License-Identifier: Apache-2.0
// The binary side of token_lines. A raw file is read no further than the context; a NumPy array is
// read whole. Not for arrays of floats: those are states and logits, not ids.
#include "tinyloop/files/token_arrays.h"

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinyloop/error.h"

namespace tinyloop {
namespace {

// Collects the ids of one row until the first fault.
class RowBuilder {
 public:
  RowBuilder(std::string_view where, std::int64_t number, TokenLimits limits)
      : where_(where), limits_(limits) {
    line_.number = number;
  }

  bool add(std::int64_t value) {
    const auto count = static_cast<std::int64_t>(line_.ids.size());
    if (limits_.longest > 0 && count == limits_.longest) {
      return fail(fmt::format("prompt too long: more than {} ids (the context)", limits_.longest));
    }
    if (value < 0) return fail(fmt::format("id {} is negative", value));
    if (value >= limits_.vocab) {
      return fail(fmt::format("id {} is not below {}", value, limits_.vocab));
    }
    line_.ids.push_back(static_cast<TokenId>(value));
    return true;
  }
  bool fail(std::string_view cause) {
    line_.error = fmt::format("{}:{}:{}: {}", where_, line_.number, line_.ids.size() + 1, cause);
    line_.ids.clear();
    return false;
  }
  TokenLine take() { return std::move(line_); }

 private:
  std::string_view where_;
  TokenLimits limits_;
  TokenLine line_;
};

}  // namespace

TokenLine TokenArrayReader::raw_row(ByteSource& source) {
  RowBuilder row(source.name(), 1, limits_);
  const std::size_t size = format_ == TokenFormat::u16 ? 2 : 4;
  for (;;) {
    std::array<unsigned char, 4> bytes{};
    const std::size_t count = source.read(bytes.data(), size);
    if (count == 0) return row.take();
    if (count < size) {
      row.fail(fmt::format("the size is not a multiple of {} bytes", size));
      return row.take();
    }
    std::uint32_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | bytes[i];
    if (!row.add(static_cast<std::int32_t>(value))) return row.take();
  }
}

void TokenArrayReader::load(ByteSource& source) {
  std::vector<std::byte> file;
  for (std::string_view bytes = source.peek(); !bytes.empty(); bytes = source.peek()) {
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    file.insert(file.end(), begin, begin + bytes.size());
    source.consume(bytes.size());
  }
  array_ = parse_npy(file, source.name());
  const std::vector<std::int64_t>& shape = array_.shape;
  if (array_.type == NpyType::f32) {
    throw Error(ErrorKind::data, "{}: is an array of floats, not of ids", source.name());
  }
  if (shape.empty() || shape.size() > 2) {
    throw Error(ErrorKind::data, "{}: is an array of {} dimensions, not 1 or 2", source.name(),
                shape.size());
  }
  // Rows without ids take no bytes, so a header could claim any number of them.
  if (shape.size() == 2 && shape[0] > 0 && shape[1] == 0) {
    throw Error(ErrorKind::data, "{}: {} rows without ids", source.name(), shape[0]);
  }
  rows_ = shape.size() == 1 ? 1 : shape[0];
  columns_ = shape.back();
}

TokenLine TokenArrayReader::array_row(std::string_view where) {
  RowBuilder row(where, row_ + 1, limits_);
  for (std::int64_t column = 0; column < columns_; ++column) {
    if (!row.add(array_.integer(row_ * columns_ + column))) break;
  }
  ++row_;
  return row.take();
}

std::optional<TokenLine> TokenArrayReader::next(ByteSource& source) {
  if (!std::exchange(started_, true)) {
    if (format_ != TokenFormat::npy) {
      if (source.peek().empty()) return std::nullopt;
      return raw_row(source);
    }
    try {
      load(source);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      TokenLine line;
      line.number = 1;
      line.error = error.what();
      return line;
    }
  }
  if (row_ == rows_) return std::nullopt;
  return array_row(source.name());
}

}  // namespace tinyloop
