// SPDX-License-Identifier: Apache-2.0
// A foreign JSON file, queried key by key; every message names the file and the key.
// Knows no model family: what a key means is hf_families' business.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

class HfJson {
 public:
  // Throws Error(io) or Error(data): unreadable, too large, a Git LFS pointer, not JSON (with line
  // and column), a duplicate key, not a JSON object.
  static HfJson read(const std::string& path);
  ~HfJson();
  HfJson(HfJson&&) noexcept;

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }  // of an object inside; empty for the file
  bool has(const char* key) const;                   // present and not null
  bool truthy(const char* key) const;  // as Python has it: not absent, null, false, 0, "" or empty

  // A value of the wrong type, or of no value where no fallback is given, throws Error(data).
  bool flag_or(const char* key, bool fallback) const;  // true, false, 1 or 0
  std::int64_t integer(const char* key) const;
  std::int64_t integer_or(const char* key, std::int64_t fallback) const;
  double number(const char* key) const;
  double number_or(const char* key, double fallback) const;
  std::string text(const char* key) const;
  std::vector<std::int64_t> integers(const char* key) const;  // a list, one number, or nothing
  std::vector<std::string> texts(const char* key) const;      // a list or nothing
  std::int64_t list_length(const char* key) const;            // 0 if absent
  std::map<std::string, std::string> text_map(const char* key) const;
  HfJson object(const char* key) const;
  std::string first_object() const;  // the first key whose value is an object; "" if there is none

  // Throws Error(data): "config.json: KEY is VALUE, REASON".
  [[noreturn]] void refuse(const char* key, std::string_view reason) const;
  // Refuses a key that is set, with "which is not supported".
  void refuse_if_set(std::initializer_list<const char*> keys) const;
  // Refuses a text that is there and not among `allowed`.
  void refuse_unless(const char* key, std::initializer_list<std::string_view> allowed) const;

 private:
  struct Value;
  HfJson(std::string path, std::string name, std::unique_ptr<Value> value);

  std::string path_;  // with the name of the object inside, for objects
  std::string name_;
  std::unique_ptr<Value> value_;
};

}  // namespace tinyloop
