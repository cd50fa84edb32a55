// SPDX-License-Identifier: Apache-2.0
// Parses one object of the JSONL format. Events, not a tree, so that nothing nested or long is ever
// built. The rest of token_lines is in token_lines.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "error.h"
#include "files/token_lines.h"

namespace tinyloop {
namespace {

using Json = nlohmann::json;

enum Key { kTokens, kId, kMaxTokens, kSeed };
constexpr std::array<std::string_view, 4> kKeys = {"tokens", "id", "max_tokens", "seed"};

// Text of unknown length and content as part of a one-line message.
std::string excerpt(std::string_view text) {
  const std::string quoted =
      Json(std::string(text.substr(0, 40))).dump(-1, ' ', true, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2) + (text.size() > 40 ? "..." : "");
}

class ObjectParser : public nlohmann::json_sax<Json> {
 public:
  explicit ObjectParser(TokenLimits limits) : limits_(limits) {}

  TokenLine line;
  std::string fault;             // why the object is refused
  std::size_t fault_column = 0;  // 0: not known

  bool has_tokens() const { return seen_[kTokens]; }

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool string(string_t& value) override { return scalar(Json(value).dump(-1, ' ', true)); }
  bool binary(binary_t&) override { return false; }  // not in text
  bool number_integer(number_integer_t value) override {
    if (value >= 0) return number_unsigned(static_cast<number_unsigned_t>(value));  // -0
    if (inside_ && key_ == kId) return scalar(fmt::format("{}", value));
    return refuse(fmt::format("{} is negative", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    if (inside_ && key_ == kId) return scalar(text);
    if (text.find_first_not_of("0123456789") == std::string::npos) {
      return refuse("number has too many digits");
    }
    return refuse(fmt::format("{} is not an integer", excerpt(text)));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!inside_) return refuse({});  // not an object
    switch (key_) {
      case kTokens:
        if (!in_tokens_) return refuse("not an array");
        if (limits_.longest > 0 && static_cast<std::int64_t>(line.ids.size()) == limits_.longest) {
          fault = fmt::format("prompt too long: more than {} ids (the context)", limits_.longest);
          return false;
        }
        if (value >= static_cast<std::uint64_t>(limits_.vocab)) {
          return refuse(fmt::format("id {} is not below {}", value, limits_.vocab));
        }
        line.ids.push_back(static_cast<TokenId>(value));
        return true;
      case kId:
        return scalar(fmt::format("{}", value));
      case kMaxTokens:
        if (value > INT64_MAX) return refuse("number has too many digits");
        line.max_tokens = static_cast<std::int64_t>(value);
        return true;
      case kSeed:
        line.seed = value;
        return true;
    }
    return false;
  }
  bool start_object(std::size_t) override {
    if (inside_) return refuse("an object is not allowed here");
    inside_ = true;
    return true;
  }
  bool key(string_t& name) override {
    const auto known = std::find(kKeys.begin(), kKeys.end(), name);
    if (known == kKeys.end()) {
      fault = fmt::format("key '{}' is not known", excerpt(name));
      return false;
    }
    key_ = static_cast<Key>(known - kKeys.begin());
    if (std::exchange(seen_[key_], true)) {
      fault = fmt::format("key '{}' is there twice", name);
      return false;
    }
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override {
    if (!inside_) return refuse({});  // not an object
    if (key_ != kTokens || in_tokens_) return refuse("an array is not allowed here");
    in_tokens_ = true;
    return true;
  }
  bool end_array() override {
    in_tokens_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fault_column = position;
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ... -
    // cause; last read: ..."
    std::string_view cause = error.what();
    if (const auto start = cause.find(": "); start != std::string_view::npos) {
      cause.remove_prefix(start + 2);
    }
    if (const auto dash = cause.find(" - "); dash != std::string_view::npos) {
      cause.remove_prefix(dash + 3);
    }
    cause = cause.substr(0, cause.find("; last read"));
    fault =
        error.id == 406 ? "number has too many digits" : fmt::format("not valid JSON: {}", cause);
    return false;
  }

 private:
  // A value that only "id" may have; `text` is its JSON text.
  bool scalar(std::string text) {
    if (!inside_) return refuse({});  // not an object
    if (key_ != kId) {
      return refuse(in_tokens_ || key_ != kTokens ? "not an integer" : "not an array");
    }
    line.id_json = std::move(text);
    return true;
  }
  bool refuse(std::string_view cause) {
    if (!inside_) {
      fault = "not an object";
    } else if (in_tokens_) {
      fault = fmt::format("tokens[{}]: {}", line.ids.size(), cause);
    } else {
      fault = fmt::format("{}: {}", kKeys[key_], cause);
    }
    return false;
  }

  TokenLimits limits_;
  std::array<bool, kKeys.size()> seen_{};
  Key key_ = kTokens;
  bool inside_ = false, in_tokens_ = false;
};

}  // namespace

TokenLine parse_json_line(std::string_view text, std::string_view where, std::int64_t number,
                          TokenLimits limits) {
  ObjectParser parser(limits);
  // The library skips a mark and takes NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    parser.fault = "NUL byte";
    parser.fault_column = nul + 1;
  } else if (text.starts_with("\xef\xbb\xbf")) {
    parser.fault = "byte-order mark";
    parser.fault_column = 1;
  } else if (text.find_first_not_of(" \t\r") == std::string_view::npos) {
    parser.fault = "empty line";
    parser.fault_column = 1;
  } else if (Json::sax_parse(text.begin(), text.end(), &parser) && !parser.has_tokens()) {
    parser.fault = "key 'tokens' is missing";
  }
  if (parser.fault.empty()) {
    parser.line.number = number;
    return std::move(parser.line);
  }
  TokenLine wrong;
  wrong.number = number;
  wrong.id_json = std::move(parser.line.id_json);
  wrong.error = parser.fault_column > 0
                    ? fmt::format("{}:{}:{}: {}", where, number, parser.fault_column, parser.fault)
                    : fmt::format("{}:{}: {}", where, number, parser.fault);
  return wrong;
}

}  // namespace tinyloop
