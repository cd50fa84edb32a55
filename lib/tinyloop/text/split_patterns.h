// SPDX-License-Identifier: Apache-2.0
// Expressions that pre-tokenizers of several files share. Not how they are run.
#pragma once

#include <string_view>

namespace tinyloop {

// What ByteLevel splits at where it is told to: contractions, letters, numbers, other signs,
// spaces.
inline constexpr std::string_view kByteLevelPattern =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// What Digits splits at. Hugging Face's program cuts there by another library, which goes by
// Unicode 17 already.
inline constexpr std::string_view kDigits = "[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]";

}  // namespace tinyloop
