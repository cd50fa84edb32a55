// SPDX-License-Identifier: Apache-2.0
// Members are joined as they come.
#include "tinyloop/files/json_object.h"

#include <cmath>
#include <vector>

#include "tinyloop/files/json_text.h"

namespace tinyloop {
namespace {

std::string with_decimals(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "null";
}

}  // namespace

JsonObject& JsonObject::add(std::string_view key, std::string_view text) {
  return add_json(key, json_string(text));
}

JsonObject& JsonObject::add(std::string_view key, double value) {
  return add_json(key, json_number(value));
}

JsonObject& JsonObject::add(std::string_view key, double value, int decimals) {
  return add_json(key, with_decimals(value, decimals));
}

JsonObject& JsonObject::add_array(std::string_view key, std::span<const double> values,
                                  int decimals) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(with_decimals(value, decimals));
  return add_json(key, fmt::format("[{}]", fmt::join(texts, ",")));
}

JsonObject& JsonObject::add_array(std::string_view key, std::span<const JsonObject> values) {
  std::vector<std::string> texts;
  for (const JsonObject& value : values) texts.push_back(value.text());
  return add_json(key, fmt::format("[{}]", fmt::join(texts, ",")));
}

JsonObject& JsonObject::add_json(std::string_view key, std::string_view json) {
  if (!members_.empty()) members_ += ',';
  members_ += json_string(key);
  members_ += ':';
  members_ += json;
  return *this;
}

JsonObject& JsonObject::add_all(const JsonObject& other) {
  if (!members_.empty() && !other.members_.empty()) members_ += ',';
  members_ += other.members_;
  return *this;
}

}  // namespace tinyloop
