// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers and the few functions they need, with the same bits on every
// machine. No generator object: a number is a pure function of its key and counter.
#pragma once

#include <array>
#include <cstdint>

namespace tinyloop {

// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// key: 64 bits; counter: 128 bits as four words, lowest first; returns four independent 32-bit
// words.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::array<std::uint32_t, 4> counter);

// What a random number is for; the fourth counter word, so that uses never share noise.
enum class NoiseUse : std::uint32_t {
  sampling = 1,
  initial_state = 2,
  weights = 3,
  calibration = 4
};

// Natural logarithm and exponential in double from plain IEEE operations only (no libm, whose last
// bit differs between versions). Relative error below 1e-15. exact_log: x > 0, normal. exact_exp: 0
// below -708, clamped above 709.
double exact_log(double x);
double exact_exp(double x);

// Uniform in (0, 1), never 0 or 1, from two words (52 bits).
double uniform(std::uint32_t high, std::uint32_t low);

// Standard Gumbel noise -log(-log u) for one candidate id at one position.
double gumbel(std::uint64_t seed, std::int64_t position, std::int32_t id);

// Standard normal noise cut at +-3 for channel c of the initial state at a position (Huginn's
// state_init).
double truncated_normal(std::uint64_t seed, std::int64_t position, std::int32_t channel);

}  // namespace tinyloop
