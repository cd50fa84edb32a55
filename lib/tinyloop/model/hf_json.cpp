// SPDX-License-Identifier: Apache-2.0
// HfJson over nlohmann/json, which stays in this file.
// Not strict about keys nobody asks for: foreign files are full of them.
#include "tinyloop/model/hf_json.h"

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/text_file.h"

namespace tinyloop {

namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestFile = std::int64_t{64}
                                      << 20;  // an index of many shards has some MB

// An integer that every JSON reader takes for the same number.
bool is_integer(const Json& value) {
  constexpr std::int64_t kGreatest = std::int64_t{1} << 53;
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= std::uint64_t{kGreatest};
  return value.is_number_integer() && value.get<std::int64_t>() >= -kGreatest;
}

}  // namespace

struct HfJson::Value {
  Json json;

  // The value of a key, nullptr if absent or null.
  const Json* find(const char* key) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
};

HfJson::HfJson(std::string path, std::unique_ptr<Value> value)
    : path_(std::move(path)), value_(std::move(value)) {}
HfJson::~HfJson() = default;
HfJson::HfJson(HfJson&&) noexcept = default;

HfJson HfJson::read(const std::string& path) {
  const std::string text = read_text_file(path, kLargestFile);
  Json json;
  // The JSON reader takes a NUL for the end and leaves the rest unread.
  if (text.find('\0') == std::string::npos) json = Json::parse(text, nullptr, false);
  if (!json.is_object()) throw Error(ErrorKind::data, "{}: is not a JSON object", path);
  return HfJson(path, std::make_unique<Value>(Value{std::move(json)}));
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

std::int64_t HfJson::integer(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!is_integer(*value)) refuse(key, "an integer is needed");
  return value->get<std::int64_t>();
}

std::int64_t HfJson::integer_or(const char* key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double HfJson::number(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_number()) refuse(key, "a number is needed");
  return value->get<double>();
}

double HfJson::number_or(const char* key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

std::string HfJson::text(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_string()) refuse(key, "a text is needed");
  return value->get<std::string>();
}

std::vector<std::int64_t> HfJson::integers(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {integer(key)};
  std::vector<std::int64_t> numbers;
  for (const Json& element : *value) {
    if (!is_integer(element)) refuse(key, "a list of integers is needed");
    numbers.push_back(element.get<std::int64_t>());
  }
  return numbers;
}

std::vector<std::string> HfJson::texts(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) refuse(key, "a list is needed");
  std::vector<std::string> texts;
  for (const Json& element : *value) {
    if (!element.is_string()) refuse(key, "a list of texts is needed");
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

std::int64_t HfJson::list_length(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) return 0;
  if (!value->is_array()) refuse(key, "a list is needed");
  return static_cast<std::int64_t>(value->size());
}

std::map<std::string, std::string> HfJson::text_map(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_object()) refuse(key, "an object is needed");
  std::map<std::string, std::string> map;
  for (const auto& item : value->items()) {
    if (!item.value().is_string()) refuse(key, "an object of texts is needed");
    map.emplace(item.key(), item.value().get<std::string>());
  }
  return map;
}

HfJson HfJson::object(const char* key) const {
  const Json* value = value_->find(key);
  if (value == nullptr) throw Error(ErrorKind::data, "{}: {} is missing", path_, key);
  if (!value->is_object()) refuse(key, "an object is needed");
  return HfJson(fmt::format("{}: {}", path_, key), std::make_unique<Value>(Value{*value}));
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
