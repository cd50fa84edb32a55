// SPDX-License-Identifier: Apache-2.0
// HfJson over nlohmann/json, which stays in this file.
// Not strict about keys nobody asks for: foreign files are full of them.
#include "tinyloop/model/hf_json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/lfs_pointer.h"
#include "tinyloop/files/text_file.h"

namespace tinyloop {

namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestFile = std::int64_t{64}
                                      << 20;  // an index of many shards has some MB

// An integer that every JSON reader takes for the same number.
bool is_integer(const Json& value) {
  constexpr std::int64_t kMax = std::int64_t{1} << 53;
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= std::uint64_t{kMax};
  return value.is_number_integer() && value.get<std::int64_t>() >= -kMax;
}

// What a person would call the fault at `at`, where the JSON reader stopped.
std::string_view cause_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return "unexpected end of text";
  const char found = text[at];
  for (const std::string_view word : {"Infinity", "NaN"}) {
    if (text.substr(at).starts_with(word)) return "Infinity and NaN are not JSON numbers";
  }
  if (found == '/' || found == '#') return "JSON has no comments";
  const std::size_t before = text.substr(0, at).find_last_not_of(" \t\r\n");
  if ((found == '}' || found == ']') && before != std::string_view::npos && text[before] == ',') {
    return "trailing comma";
  }
  return "unexpected character";
}

// Goes through the text for faults that the JSON reader would pass over, and for the place of
// those that it would not name.
class Check {
 public:
  Check(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t) { return true; }
  bool number_unsigned(std::uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(std::vector<std::uint8_t>&) { return true; }
  bool start_object(std::size_t) { return deeper(); }
  bool start_array(std::size_t) { return deeper(); }
  bool end_object() { return higher(); }
  bool end_array() { return higher(); }
  // Readers differ in which of two values they take.
  bool key(std::string& key) {
    if (keys_.back().insert(key).second) return true;
    throw Error(ErrorKind::data, "{}: duplicate key {}", path_, json_string(key.substr(0, 100)));
  }
  bool parse_error(std::size_t read, const std::string& token, const Json::exception& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) fail(read - token.size(), "a number too large");
    // `read` counts the bytes up to the one that does not fit.
    const std::size_t at = std::min(read == 0 ? 0 : read - 1, text_.size());
    fail(at, cause_at(text_, at));
  }

  [[noreturn]] void fail(std::size_t at, std::string_view cause) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
    throw Error(ErrorKind::data, "{}:{}:{}: not valid JSON: {}", path_, line, at - start + 1,
                cause);
  }

 private:
  bool deeper() {
    constexpr std::size_t kDeepest = 100;
    if (keys_.size() == kDeepest) {
      throw Error(ErrorKind::data, "{}: is nested deeper than {} levels", path_, kDeepest);
    }
    keys_.emplace_back();
    return true;
  }
  bool higher() {
    keys_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& path_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open; empty for arrays
};

}  // namespace

struct HfJson::Value {
  Json json;

  // The value of a key, nullptr if absent or null.
  const Json* find(const char* key) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
};

HfJson::HfJson(std::string path, std::string name, std::unique_ptr<Value> value)
    : path_(std::move(path)), name_(std::move(name)), value_(std::move(value)) {}
HfJson::~HfJson() = default;
HfJson::HfJson(HfJson&&) noexcept = default;

HfJson HfJson::read(const std::string& path) {
  const std::string text = read_text_file(path, kLargestFile);
  refuse_lfs_pointer(text, path);
  Check check(text, path);
  // The JSON reader takes a NUL for the end and leaves the rest unread.
  const std::size_t nul = text.find('\0');
  if (nul != std::string::npos) check.fail(nul, "a NUL byte");
  Json::sax_parse(text, &check);
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) throw Error(ErrorKind::data, "{}: is not a JSON object", path);
  return HfJson(path, "", std::make_unique<Value>(Value{std::move(json)}));
}

bool HfJson::has(const char* key) const { return value_->find(key) != nullptr; }

bool HfJson::truthy(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number()) return value->get<double>() != 0.0;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  return !value->empty();
}

bool HfJson::flag_or(const char* key, bool fallback) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  if (!is_integer(*value) || value->get<std::int64_t>() < 0 || value->get<std::int64_t>() > 1) {
    refuse(key, "expected true or false");
  }
  return value->get<std::int64_t>() == 1;
}

std::int64_t HfJson::integer(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!is_integer(*value)) refuse(key, "expected an integer");
  return value->get<std::int64_t>();
}

std::int64_t HfJson::integer_or(const char* key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double HfJson::number(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_number()) refuse(key, "expected a number");
  return value->get<double>();
}

double HfJson::number_or(const char* key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

std::string HfJson::text(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_string()) refuse(key, "expected a string");
  return value->get<std::string>();
}

std::vector<std::int64_t> HfJson::integers(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {integer(key)};
  std::vector<std::int64_t> numbers;
  for (const Json& element : *value) {
    if (!is_integer(element)) refuse(key, "expected a list of integers");
    numbers.push_back(element.get<std::int64_t>());
  }
  return numbers;
}

std::vector<std::string> HfJson::texts(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) refuse(key, "expected a list");
  std::vector<std::string> texts;
  for (const Json& element : *value) {
    if (!element.is_string()) refuse(key, "expected a list of strings");
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

std::int64_t HfJson::list_length(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return 0;
  if (!value->is_array()) refuse(key, "expected a list");
  return static_cast<std::int64_t>(value->size());
}

std::map<std::string, std::string> HfJson::text_map(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_object()) refuse(key, "expected an object");
  std::map<std::string, std::string> map;
  for (const auto& item : value->items()) {
    if (!item.value().is_string()) refuse(key, "expected an object of strings");
    map.emplace(item.key(), item.value().get<std::string>());
  }
  return map;
}

HfJson HfJson::object(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_object()) refuse(key, "expected an object");
  return HfJson(fmt::format("{}: {}", path_, key), key, std::make_unique<Value>(Value{*value}));
}

std::string HfJson::first_object() const {
  for (const auto& item : value_->json.items()) {
    if (item.value().is_object()) return item.key();
  }
  return {};
}

void HfJson::refuse(const char* key, std::string_view reason) const {
  const Json* value = value_->find(key);
  // In ASCII, so that a message cannot play with the terminal.
  std::string shown = value == nullptr ? std::string("absent")
                                       : value->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  throw Error(ErrorKind::data, "{}: {} is {}, {}", path_, key, shown, reason);
}

void HfJson::refuse_if_set(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) {
    if (truthy(key)) refuse(key, "which is not supported");
  }
}

void HfJson::refuse_unless(const char* key, std::initializer_list<std::string_view> allowed) const {
  if (!has(key)) return;
  const std::string value = text(key);
  for (const std::string_view known : allowed) {
    if (value == known) return;
  }
  refuse(key, "which is not supported");
}

}  // namespace tinyloop
