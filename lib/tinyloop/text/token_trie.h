// SPDX-License-Identifier: Apache-2.0
// Byte strings and their ids, to find all that are prefixes of a text. Not about where in a
// text to look.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tinyloop/text/pair_table.h"

namespace tinyloop {

class TokenTrie {
 public:
  // An empty string is left out; of two equal ones the first stays.
  void add(std::string_view text, std::int32_t value) {
    if (text.empty()) return;
    begins_[static_cast<unsigned char>(text.front())] = true;
    std::uint32_t node = 0;
    for (const char c : text) {
      const std::uint64_t key = key_of(node, c);
      if (const std::uint64_t* next = children_.find(key)) {
        node = static_cast<std::uint32_t>(*next);
      } else {
        node = static_cast<std::uint32_t>(values_.size());
        values_.push_back(-1);
        children_.set(key, node);
      }
    }
    if (values_[node] < 0) values_[node] = value;
  }

  bool may_begin(char c) const { return begins_[static_cast<unsigned char>(c)]; }

  // Calls take(length, value) for each string that is a prefix of `text`, the shortest first.
  template <typename Take>
  void prefixes(std::string_view text, Take take) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::uint64_t* next = children_.find(key_of(node, text[i]));
      if (next == nullptr) return;
      node = static_cast<std::uint32_t>(*next);
      if (values_[node] >= 0) take(i + 1, values_[node]);
    }
  }

  struct Found {
    std::size_t length = 0;
    std::int32_t value = 0;
  };
  // The longest of them.
  std::optional<Found> longest(std::string_view text) const {
    std::optional<Found> found;
    prefixes(text, [&](std::size_t length, std::int32_t value) { found = {length, value}; });
    return found;
  }

 private:
  static std::uint64_t key_of(std::uint32_t node, char c) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
  }

  std::array<bool, 256> begins_{};
  PairTable children_;
  std::vector<std::int32_t> values_ = {-1};  // by node; -1: no string ends there
};

}  // namespace tinyloop
