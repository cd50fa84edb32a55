// SPDX-License-Identifier: Apache-2.0
// JSON strings and numbers as text.
#include "tinyloop/files/json_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace tinyloop {

namespace {

// Decodes one UTF-8 sequence at the front of `text`, at least one byte long; 0xfffd and one byte if
// it is malformed.
struct CodePoint {
  std::uint32_t value = 0xfffd;
  std::size_t bytes = 1;
};

CodePoint next_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 && first < 0xf5   ? 4
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xc2 && first < 0xe0 ? 2
                                                             : 0;
  if (length == 0) return {};
  std::uint32_t value = first & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {};
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (value < kSmallest[length] || value > 0x10ffff || surrogate) return {};
  return {value, length};
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto [value, bytes] = next_code_point(text);
    text.remove_prefix(bytes);
    if (value == '"' || value == '\\') {
      out += '\\';
      out += static_cast<char>(value);
    } else if (value >= 0x20 && value < 0x7f) {
      out += static_cast<char>(value);
    } else if (value < 0x10000) {
      out += fmt::format("\\u{:04x}", value);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((value - 0x10000) >> 10),
                         0xdc00 + ((value - 0x10000) & 0x3ff));
    }
  }
  return out + '"';
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 40;
  const std::string quoted = json_string(text.substr(0, kMost));
  return quoted.substr(1, quoted.size() - 2) + (text.size() > kMost ? "..." : "");
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

}  // namespace tinyloop
