// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 has it, a character at a time: what is well-formed, how long it is, what can
// still become well-formed. Knows nothing of what characters mean.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tinyloop {

struct Utf8Char {
  char32_t value = 0xfffd;
  // Of the character; where there is none, of the longest part of one that the text begins with, at
  // least 1: what Unicode recommends to replace by one U+FFFD.
  std::size_t bytes = 1;
  bool valid = false;
  bool cut = false;  // the text ends within what may be a character
};

// What `text`, which is not empty, begins with.
Utf8Char first_utf8_char(std::string_view text);

// The length of the longest prefix that is well-formed.
std::size_t valid_utf8_prefix(std::string_view text);

// `text` with U+FFFD in place of what is ill-formed.
std::string replace_ill_formed_utf8(std::string_view text);

// code: no surrogate, at most 0x10ffff.
void append_utf8(std::string& text, char32_t code);

}  // namespace tinyloop
