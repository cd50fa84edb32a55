// SPDX-License-Identifier: Apache-2.0
// What Unicode has now and the installed PCRE2 may not know yet. Hugging Face's tokenizers go by
// Unicode 16, PCRE2 10.42 by 14.
#pragma once

#include <span>
#include <string_view>

namespace tinyloop {

struct UnicodeAddition {
  char32_t first = 0, last = 0;
  std::string_view category;  // two letters; or "Han" for those of that script
};

std::span<const UnicodeAddition> unicode_additions();

}  // namespace tinyloop
