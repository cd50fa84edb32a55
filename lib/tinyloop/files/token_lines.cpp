// SPDX-License-Identifier: Apache-2.0
// The text format and the reader of all formats; objects are in token_lines_json, arrays in
// token_arrays. Not for output files: writing is the tools' business.
#include "tinyloop/files/token_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/byte_source.h"
#include "tinyloop/files/token_arrays.h"

namespace tinyloop {
namespace {

constexpr int kMaxDigits = 10;  // of 2^31

struct FormatRow {
  std::string_view name;
  TokenFormat format;
};
constexpr FormatRow kFormats[] = {{"text", TokenFormat::text},
                                  {"jsonl", TokenFormat::jsonl},
                                  {"u16", TokenFormat::u16},
                                  {"i32", TokenFormat::i32},
                                  {"npy", TokenFormat::npy}};

std::string not_a_digit(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte == 0) return "NUL byte";
  if (byte > 0x20 && byte < 0x7f) return fmt::format("'{}' is not a digit", c);
  return fmt::format("byte 0x{:02x} is not a digit", byte);
}

// Parses one line given in any number of pieces; keeps nothing of it but ids. After a fault the
// rest is ignored.
class IdParser {
 public:
  explicit IdParser(TokenLimits limits) : limits_(limits) {}

  void feed(std::string_view piece) {
    for (const char c : piece) {
      if (!fault_.empty()) {
        look_for_byte_order_mark(c);
        if (column_ >= 3) return;
      } else {
        take(c);
      }
      ++column_;
    }
  }
  void finish() {
    if (fault_.empty() && digits_ > 0) end_number();
  }

  const std::string& fault() const { return fault_; }
  std::int64_t fault_column() const { return fault_column_; }  // from 1
  std::vector<TokenId> take_ids() { return std::exchange(ids_, {}); }

 private:
  void take(char c) {
    if (after_return_) {
      fail(column_ - 1, not_a_digit('\r'));  // the one before was not the end of the line
    } else if (c >= '0' && c <= '9') {
      if (digits_ == 0) begin_number();
      if (++digits_ > kMaxDigits) fail(number_column_, "number has too many digits");
      value_ = value_ * 10 + (c - '0');
    } else if (c == ' ' || c == '\t' || c == '\r') {
      if (digits_ > 0) end_number();
      after_return_ = c == '\r';
    } else {
      fail(column_, not_a_digit(c) + hint(c));
    }
  }
  // What whoever wrote it may have had in mind.
  std::string hint(char c) const {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && digits_ == 0) return "; expected ids, not text";
    if (c == '{' || c == '[') return "; JSON is another input format";
    if (c == ',') return "; separate ids with blanks";
    return "";
  }
  void begin_number() {
    number_column_ = column_;
    value_ = 0;
    if (limits_.longest > 0 && static_cast<std::int64_t>(ids_.size()) == limits_.longest) {
      fail(column_,
           fmt::format("prompt too long: more than {} ids (the context)", limits_.longest));
    }
  }
  void end_number() {
    digits_ = 0;
    if (value_ >= limits_.vocab) {
      fail(number_column_, fmt::format("id {} is not below {}", value_, limits_.vocab));
    } else {
      ids_.push_back(static_cast<TokenId>(value_));
    }
  }
  void fail(std::int64_t column, std::string fault) {
    if (!fault_.empty()) return;
    fault_ = std::move(fault);
    fault_column_ = column + 1;
    std::vector<TokenId>().swap(ids_);
  }
  // The mark's first byte was a fault already; the two behind it give it its name.
  void look_for_byte_order_mark(char c) {
    const bool first = fault_column_ == 1 && fault_ == not_a_digit('\xef');
    if (column_ == 1 && first && c == '\xbb') mark_ = true;
    if (column_ == 2 && mark_ && c == '\xbf') fault_ = "byte-order mark";
  }

  TokenLimits limits_;
  std::vector<TokenId> ids_;
  std::string fault_;
  std::int64_t column_ = 0, fault_column_ = 0, number_column_ = 0, value_ = 0;
  int digits_ = 0;
  bool after_return_ = false, mark_ = false;
};

TokenLine finish_line(IdParser& parser, std::string_view where, std::int64_t number) {
  parser.finish();
  TokenLine line;
  line.number = number;
  if (!parser.fault().empty()) {
    line.error = fmt::format("{}:{}:{}: {}", where, number, parser.fault_column(), parser.fault());
  } else {
    line.ids = parser.take_ids();
  }
  return line;
}

// Hands the pieces of the next line, without its end, to `take`; false: there is no further line.
template <typename Take>
bool read_line(ByteSource& source, Take take) {
  for (bool any = false;; any = true) {
    const std::string_view bytes = source.peek();
    if (bytes.empty()) return any;
    const std::size_t end = bytes.find('\n');
    take(bytes.substr(0, end));
    if (end != std::string_view::npos) {
      source.consume(end + 1);
      return true;
    }
    source.consume(bytes.size());
  }
}

}  // namespace

TokenFormat parse_token_format(std::string_view name) {
  std::string known;
  for (const FormatRow& row : kFormats) {
    if (row.name == name) return row.format;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  throw Error(ErrorKind::usage, "input format '{}' is not one of {}", name, known);
}

struct TokenReader::State {
  ByteSource source;
  TokenFormat format;
  TokenLimits limits;
  TokenArrayReader arrays;
  std::int64_t line = 0;

  std::optional<TokenLine> next_text() {
    IdParser parser(limits);
    if (!read_line(source, [&](std::string_view piece) { parser.feed(piece); })) {
      return std::nullopt;
    }
    return finish_line(parser, source.name(), ++line);
  }
  std::optional<TokenLine> next_object() {
    // Room for generous spacing and keys; the parser counts the ids.
    const auto most_bytes =
        limits.longest > 0 ? (std::size_t{1} << 20) + 16 * static_cast<std::size_t>(limits.longest)
                           : SIZE_MAX;
    std::string text;
    bool too_long = false;
    const bool found = read_line(source, [&](std::string_view piece) {
      too_long = too_long || piece.size() > most_bytes - text.size();
      if (!too_long) text += piece;
    });
    if (!found) return std::nullopt;
    ++line;
    if (!too_long) return parse_json_line(text, source.name(), line, limits);
    TokenLine wrong;
    wrong.number = line;
    wrong.error = fmt::format("{}:{}:{}: the object is longer than {} bytes", source.name(), line,
                              most_bytes + 1, most_bytes);
    return wrong;
  }
};

TokenReader::TokenReader(std::string path, TokenFormat format, TokenLimits limits)
    : state_(new State{ByteSource(std::move(path)), format, limits,
                       TokenArrayReader(format, limits)}) {}

TokenReader::~TokenReader() = default;

bool TokenReader::skip() {
  if (state_->format != TokenFormat::text && state_->format != TokenFormat::jsonl) {
    return state_->arrays.next(state_->source).has_value();
  }
  const bool found = read_line(state_->source, [](std::string_view) {});
  state_->line += found;
  return found;
}

std::optional<TokenLine> TokenReader::next() {
  switch (state_->format) {
    case TokenFormat::text:
      return state_->next_text();
    case TokenFormat::jsonl:
      return state_->next_object();
    default:
      return state_->arrays.next(state_->source);
  }
}

struct TokenStream::State {
  ByteSource source;
  TokenLimits limits;
  IdParser parser;
  std::int64_t line = 1;
  bool within_line = false;

  Part part(bool line_end) {
    if (line_end) parser.finish();
    if (!parser.fault().empty()) {
      throw Error(ErrorKind::usage, "{}:{}:{}: {}", source.name(), line, parser.fault_column(),
                  parser.fault());
    }
    Part taken{parser.take_ids(), line_end};
    within_line = !line_end;
    if (line_end) {
      parser = IdParser(limits);
      ++line;
    }
    return taken;
  }
};

TokenStream::TokenStream(const std::string& path, TokenLimits limits)
    : state_(new State{ByteSource(path), limits, IdParser(limits)}) {}

TokenStream::~TokenStream() = default;

std::optional<TokenStream::Part> TokenStream::next() {
  State& state = *state_;
  const std::string_view bytes = state.source.peek();
  if (bytes.empty()) {
    if (!state.within_line) return std::nullopt;
    return state.part(true);
  }
  const std::size_t end = bytes.find('\n');
  state.parser.feed(bytes.substr(0, end));
  state.source.consume(end == std::string_view::npos ? bytes.size() : end + 1);
  return state.part(end != std::string_view::npos);
}

TokenLine parse_text_line(std::string_view text, std::string_view where, std::int64_t number,
                          TokenLimits limits) {
  IdParser parser(limits);
  parser.feed(text);
  return finish_line(parser, where, number);
}

std::vector<TokenId> parse_ids(std::string_view text, std::string_view what, std::int64_t vocab) {
  IdParser parser({.vocab = vocab});
  parser.feed(text);
  parser.finish();
  if (!parser.fault().empty()) throw Error(ErrorKind::usage, "{}: {}", what, parser.fault());
  return parser.take_ids();
}

std::string format_ids(std::span<const TokenId> ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

}  // namespace tinyloop
