// SPDX-License-Identifier: Apache-2.0
// UTF-8, a character at a time.
#include "tinyloop/files/utf8.h"

#include <cstdint>
#include <cstring>

namespace tinyloop {

Utf8Char first_utf8_char(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true, false};
  if (first < 0xc2 || first > 0xf4) return {};
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte has a range of its own where the character could have been written shorter, is
  // a surrogate or is beyond the last one.
  unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  char32_t value = first & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {0xfffd, i, false, true};
    if (byte(i) < low || byte(i) > high) return {0xfffd, i, false, false};
    value = (value << 6) | (byte(i) & 0x3fu);
    low = 0x80;
    high = 0xbf;
  }
  return {value, length, true, false};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Utf8Char next = first_utf8_char(text.substr(at));
    if (!next.valid) break;
    at += next.bytes;
  }
  return at;
}

std::string replace_ill_formed_utf8(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) return out;
    out += "\xef\xbf\xbd";
    text.remove_prefix(first_utf8_char(text).bytes);
  }
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
    return;
  }
  if (code < 0x800) {
    put(0xc0 | (code >> 6));
  } else {
    if (code < 0x10000) {
      put(0xe0 | (code >> 12));
    } else {
      put(0xf0 | (code >> 18));
      put(0x80 | ((code >> 12) & 0x3f));
    }
    put(0x80 | ((code >> 6) & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

}  // namespace tinyloop
