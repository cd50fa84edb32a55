// SPDX-License-Identifier: Apache-2.0
// Philox and the few functions that turn its words into noise, in plain IEEE double operations.
// Not a random device: nothing here draws a seed.
#include "tinyloop/random.h"

#include <bit>
#include <cmath>

namespace tinyloop {
namespace {

// ln 2 in two parts: the first has 33 bits, so its product with any exponent (11 bits) is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// 1/3, 1/5, ... 1/23
constexpr auto kOddReciprocals = [] {
  std::array<double, 11> values{};
  for (std::size_t n = 0; n < 11; ++n) values[n] = 1.0 / static_cast<double>(2 * n + 3);
  return values;
}();

// 1/2!, 1/3!, ... 1/14!; the factorials are exact
constexpr auto kFactorialReciprocals = [] {
  std::array<double, 13> values{};
  double factorial = 1.0;
  for (std::size_t n = 0; n < 13; ++n) values[n] = 1.0 / (factorial *= static_cast<double>(n + 2));
  return values;
}();

std::array<std::uint32_t, 4> noise_words(std::uint64_t seed, std::int64_t position,
                                         std::int32_t index, std::uint32_t use) {
  const auto place = static_cast<std::uint64_t>(position);
  return philox(seed, {static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32),
                       static_cast<std::uint32_t>(index), use});
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::array<std::uint32_t, 4> counter) {
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;  // golden ratio
    key1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return counter;
}

double exact_log(double x) {
  // x = m * 2^e, m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  auto mantissa = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (mantissa > 0x1.6a09e667f3bcdp0) {  // sqrt(2)
    mantissa *= 0.5;
    ++exponent;
  }
  const double f = mantissa - 1.0;  // exact
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 0.0;  // z/3 + z^2/5 + ... + z^11/23; what is left out is below 0.0295^12 / 25
  for (std::size_t n = 11; n-- > 0;) series = z * (kOddReciprocals[n] + series);
  const double log_mantissa = 2.0 * s + 2.0 * s * series;
  return exponent * kLn2High + (exponent * kLn2Low + log_mantissa);
}

double exact_exp(double x) {
  if (!(x >= -708.0)) return 0.0;
  if (x > 709.0) x = 709.0;
  // exp x = 2^k exp r with |r| <= ln(2) / 2
  const double quotient = x * 0x1.71547652b82fep0;  // 1 / ln 2
  const auto k = static_cast<int>(quotient + (x < 0.0 ? -0.5 : 0.5));
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double series = 0.0;  // r/2! + r^2/3! + ... + r^13/14!; what is left out is below 0.347^14 / 15!
  for (std::size_t n = 13; n-- > 0;) series = r * (kFactorialReciprocals[n] + series);
  const double result = 1.0 + (r + r * series);
  return result * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

double uniform(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 20) | (low >> 12);  // 52, so + 0.5 is exact
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

double gumbel(std::uint64_t seed, std::int64_t position, std::int32_t id) {
  const auto words =
      noise_words(seed, position, id, static_cast<std::uint32_t>(NoiseUse::sampling));
  return -exact_log(-exact_log(uniform(words[0], words[1])));
}

double truncated_normal(std::uint64_t seed, std::int64_t position, std::int32_t channel) {
  // Marsaglia's polar method; further tries count in the upper bits of the use, which are 0
  // elsewhere.
  for (std::uint32_t attempt = 0;; ++attempt) {
    const auto words =
        noise_words(seed, position, channel,
                    static_cast<std::uint32_t>(NoiseUse::initial_state) + (attempt << 8));
    const double u = 2.0 * uniform(words[0], words[1]) - 1.0;
    const double v = 2.0 * uniform(words[2], words[3]) - 1.0;
    const double square = u * u + v * v;
    if (square >= 1.0) continue;
    const double normal = u * std::sqrt(-2.0 * exact_log(square) / square);
    if (normal >= -3.0 && normal <= 3.0) return normal;
  }
}

}  // namespace tinyloop
