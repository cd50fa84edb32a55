// SPDX-License-Identifier: Apache-2.0
// The JSON library checks that the text is JSON; it is then split at commas outside of
// strings and brackets.
#include "tinyloop/files/json_fields.h"

#include <nlohmann/json.hpp>
#include <set>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"

namespace tinyloop {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kBlanks = " \t\r\n";

// Says where the text stops being JSON; keeps nothing.
struct Checker : nlohmann::json_sax<Json> {
  std::size_t column = 0;  // 0: it is JSON
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    column = position == 0 ? 1 : position;
    return false;
  }
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// The length of the string, with its quotes, that `text` begins with.
std::size_t string_length(std::string_view text) {
  std::size_t at = 1;
  while (text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

// Calls take() for what lies between the commas of an object or list, which is known to be JSON.
template <typename Take>
void cut_at_commas(std::string_view inside, Take take) {
  std::size_t begin = 0, depth = 0;
  for (std::size_t at = 0; at < inside.size();) {
    const char c = inside[at];
    if (c == '"') {
      at += string_length(inside.substr(at));
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      take(trimmed(inside.substr(begin, at - begin)));
      begin = at + 1;
    }
    ++at;
  }
  const std::string_view last = trimmed(inside.substr(begin));
  if (!last.empty()) take(last);
}

std::string decoded(std::string_view raw) { return Json::parse(raw).get<std::string>(); }

}  // namespace

std::vector<JsonField> split_json_object(std::string_view text, std::string_view where) {
  // The JSON reader takes a NUL for the end and leaves the rest unread.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    throw Error(ErrorKind::usage, "{}:{}: NUL byte", where, nul + 1);
  }
  Checker checker;
  if (!Json::sax_parse(text, &checker)) {
    throw Error(ErrorKind::usage, "{}:{}: is not JSON", where, checker.column);
  }
  const std::string_view whole = trimmed(text);
  if (!whole.starts_with('{')) {
    throw Error(ErrorKind::usage, "{}:1: expected a JSON object", where);
  }
  std::vector<JsonField> fields;
  std::set<std::string> names;
  cut_at_commas(whole.substr(1, whole.size() - 2), [&](std::string_view part) {
    JsonField field;
    field.raw = part.substr(0, string_length(part));
    field.name = decoded(field.raw);
    const std::string_view behind = trimmed(part.substr(field.raw.size()));
    field.value = trimmed(behind.substr(1));  // the colon
    if (!names.insert(field.name).second) {
      throw Error(ErrorKind::usage, "{}: duplicate key '{}'", where, excerpt(field.name));
    }
    fields.push_back(std::move(field));
  });
  return fields;
}

std::vector<std::string_view> split_json_list(std::string_view value, std::string_view where) {
  if (!value.starts_with('[')) throw Error(ErrorKind::usage, "{}: expected a list", where);
  std::vector<std::string_view> elements;
  cut_at_commas(value.substr(1, value.size() - 2),
                [&](std::string_view part) { elements.push_back(part); });
  return elements;
}

std::string json_text_value(std::string_view value, std::string_view where) {
  if (!value.starts_with('"')) throw Error(ErrorKind::usage, "{}: a string is needed", where);
  return decoded(value);
}

std::vector<std::int32_t> json_ids_value(std::string_view value, std::int64_t max_id,
                                         std::string_view where) {
  std::vector<std::int32_t> ids;
  for (const std::string_view element : split_json_list(value, where)) {
    const Json number = Json::parse(element);
    if (!number.is_number_unsigned() ||
        number.get<std::uint64_t>() > static_cast<std::uint64_t>(max_id)) {
      throw Error(ErrorKind::usage, "{}[{}]: {} is not an id from 0 to {}", where, ids.size(),
                  excerpt(element), max_id);
    }
    ids.push_back(number.get<std::int32_t>());
  }
  return ids;
}

}  // namespace tinyloop
