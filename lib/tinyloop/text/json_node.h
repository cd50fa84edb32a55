// SPDX-License-Identifier: Apache-2.0
// A value in a foreign JSON file that knows its place, so that every message names file and
// place. For the readers in this folder; what a key means is their business.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"

namespace tinyloop {

class JsonNode {
 public:
  using Json = nlohmann::json;

  // `where`: "tokenizer.json", to which places inside are added. The value must outlive this.
  JsonNode(const Json& value, std::string file) : value_(&value), file_(std::move(file)) {}

  [[noreturn]] void refuse(std::string_view cause) const {
    throw Error(ErrorKind::data, "{}: {}{}{}", file_, place_, place_.empty() ? "" : ": ", cause);
  }

  const Json& json() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_text() const { return value_->is_string(); }
  bool is_list() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }

  // The value of a key that is present and not null.
  std::optional<JsonNode> find(const std::string& key) const {
    if (!is_object()) refuse("expected an object");
    const auto found = value_->find(key);
    if (found == value_->end() || found->is_null()) return {};
    return JsonNode(*found, file_, place_.empty() ? key : place_ + "." + key);
  }
  JsonNode at(const std::string& key) const {
    if (const auto found = find(key)) return *found;
    refuse(fmt::format("{} is missing", key));
  }
  std::vector<JsonNode> elements() const {
    if (!is_list()) refuse("expected a list");
    std::vector<JsonNode> nodes;
    nodes.reserve(value_->size());
    for (std::size_t i = 0; i < value_->size(); ++i) {
      nodes.push_back(JsonNode((*value_)[i], file_, fmt::format("{}[{}]", place_, i)));
    }
    return nodes;
  }

  const std::string& text() const {
    if (!is_text()) refuse("expected a string");
    return value_->get_ref<const std::string&>();
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) const {
    if (value_->is_number_integer()) {
      const bool fits = !value_->is_number_unsigned() ||
                        value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
      if (fits && value_->get<std::int64_t>() >= low && value_->get<std::int64_t>() <= high) {
        return value_->get<std::int64_t>();
      }
    }
    refuse(fmt::format("expected an integer from {} to {}", low, high));
  }
  double number() const {
    if (!value_->is_number()) refuse("expected a number");
    return value_->get<double>();
  }
  bool flag() const {
    if (!value_->is_boolean()) refuse("expected true or false");
    return value_->get<bool>();
  }

  const std::string& text(const std::string& key) const { return at(key).text(); }
  bool flag_or(const std::string& key, bool fallback) const {
    const auto found = find(key);
    return found ? found->flag() : fallback;
  }
  // Refuses unknown keys: they may change what the others mean.
  void only(std::initializer_list<std::string_view> keys) const {
    if (!is_object()) refuse("expected an object");
    for (const auto& item : value_->items()) {
      bool known = false;
      for (const std::string_view key : keys) known = known || key == item.key();
      if (!known && !item.value().is_null()) {
        refuse(fmt::format("key \"{}\" is not supported", excerpt(item.key())));
      }
    }
  }
  // If present, the value must be equivalent to absence.
  void refuse_unless_empty(const std::string& key) const {
    const auto found = find(key);
    if (!found) return;
    const Json& value = found->json();
    const bool empty = (value.is_string() && value.get_ref<const std::string&>().empty()) ||
                       (value.is_number() && value.get<double>() == 0.0) ||
                       (value.is_boolean() && !value.get<bool>()) ||
                       (value.is_structured() && value.empty());
    if (!empty) found->refuse("is not supported");
  }
  [[noreturn]] void refuse_type(const std::string& type) const {
    refuse(fmt::format("type \"{}\" is not supported", excerpt(type)));
  }

 private:
  JsonNode(const Json& value, std::string file, std::string place)
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const Json* value_;
  std::string file_, place_;
};

}  // namespace tinyloop
