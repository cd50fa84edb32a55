// SPDX-License-Identifier: Apache-2.0
// Characters in current Unicode that the installed PCRE2 may not know yet. Hugging Face's
// tokenizers use Unicode 16, PCRE2 10.42 uses 14.
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
