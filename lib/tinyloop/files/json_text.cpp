// SPDX-License-Identifier: Apache-2.0
// JSON strings and numbers as text.
#include "tinyloop/files/json_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "tinyloop/files/utf8.h"

namespace tinyloop {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Char next = first_utf8_char(text);
    const std::uint32_t value = next.value;
    text.remove_prefix(next.valid ? next.bytes : 1);
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
  constexpr std::size_t kMax = 40;
  const std::string quoted = json_string(text.substr(0, kMax));
  return quoted.substr(1, quoted.size() - 2) + (text.size() > kMax ? "..." : "");
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

}  // namespace tinyloop
