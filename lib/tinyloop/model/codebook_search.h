// SPDX-License-Identifier: Apache-2.0
// Which scale a group of q4 gets, and which entry of the codebook each of its weights. Not where
// they are stored: that is packed_matrix.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tinyloop {

struct CodebookGroup {
  std::uint16_t scale = 0;                 // f16, finite, of either sign; 0: all values are 0
  std::array<std::uint8_t, 32> nibbles{};  // those without a value are of the entry 0
};

// values: 1 .. 32 finite floats. weights: one above 0 for each, or none: all 1. The scale with the
// least sum of weight * (stored - value)^2 of the 52 that are tried, the first of equals: 13 from
// 0.6 to 1.2 times greatest magnitude / longest entry, of both signs, and what least squares say of
// the entries that each of them leads to.
CodebookGroup search_codebook_scale(std::span<const float> values, std::span<const float> weights);

}  // namespace tinyloop
