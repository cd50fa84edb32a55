// SPDX-License-Identifier: Apache-2.0
// Writes a JSON object as one line of text, with members in the order they are added. Not a
// document model: members cannot be read back or changed.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tinyloop {

class JsonObject {
 public:
  template <std::integral T>
  JsonObject& add(std::string_view key, T value) {
    return add_json(key, fmt::format("{}", value));
  }
  JsonObject& add(std::string_view key, std::string_view text);
  JsonObject& add(std::string_view key, const char* text) {
    return add(key, std::string_view(text));
  }
  JsonObject& add(std::string_view key, const std::string& text) {
    return add(key, std::string_view(text));
  }
  // NaN and infinities become null. The first writes as many digits as are needed to read the same
  // number back, the second the given number of decimals.
  JsonObject& add(std::string_view key, double value);
  JsonObject& add(std::string_view key, double value, int decimals);
  JsonObject& add(std::string_view key, const JsonObject& value) {
    return add_json(key, value.text());
  }
  // No value becomes null.
  template <typename T, typename... Rest>
  JsonObject& add(std::string_view key, const std::optional<T>& value, Rest... rest) {
    return value ? add(key, *value, rest...) : add_json(key, "null");
  }
  template <std::integral T>
  JsonObject& add_array(std::string_view key, std::span<const T> values) {
    return add_json(key, fmt::format("[{}]", fmt::join(values, ",")));
  }
  JsonObject& add_array(std::string_view key, std::span<const double> values, int decimals);
  JsonObject& add_array(std::string_view key, std::span<const JsonObject> values);
  // `json` is JSON already.
  JsonObject& add_json(std::string_view key, std::string_view json);
  // Appends all members of `other`.
  JsonObject& add_all(const JsonObject& other);

  std::string text() const { return "{" + members_ + "}"; }
  std::string line() const { return text() + "\n"; }

 private:
  std::string members_;
};

}  // namespace tinyloop
