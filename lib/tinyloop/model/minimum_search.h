// SPDX-License-Identifier: Apache-2.0
// Which scale and minimum a group of q4_1 gets, and which of the sixteen steps between them each of
// its weights. Not where they are stored: that is packed_matrix.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tinyloop {

struct MinimumGroup {
  std::uint16_t scale = 0, minimum = 0;    // f16, finite
  std::array<std::uint8_t, 32> nibbles{};  // 0 .. 15
};

// values: 1 .. 32 finite floats, of magnitudes that f16 holds. weights: one above 0 for each, or
// none: all 1. The pair with the least sum of weight * (stored - value)^2 of those that are tried,
// the first of equals: ranges that leave out up to a ninth at either end, then what least squares
// say of the steps found (twice).
MinimumGroup search_minimum(std::span<const float> values, std::span<const float> weights);

}  // namespace tinyloop
