// SPDX-License-Identifier: Apache-2.0
// Tests lib/random: Philox against its published vectors, log and exp against long double libm,
// noise against its distribution. Not a statistical test suite: Philox has had that elsewhere.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tinyloop/random.h"

using namespace tinyloop;

namespace {

using Words = std::array<std::uint32_t, 4>;

// A second generator, so that the inputs do not come from the code under test.
struct SplitMix {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double between(double low, double high) {
    return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
  }
};

double relative_error(double value, long double truth) {
  if (truth == 0.0L) return value == 0.0 ? 0.0 : 1.0;
  return static_cast<double>(std::fabs((static_cast<long double>(value) - truth) / truth));
}

// Phi(x), the normal distribution function
double normal_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

TEST_CASE("philox equals the known answers of Random123") {
  CHECK(philox(0, {0, 0, 0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(0xffffffffffffffffu, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822u, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("exact_log and exact_exp are within 1e-15 of long double libm") {
  SplitMix random{1};
  double worst_log = 0, worst_exp = 0;
  for (int i = 0; i < 200000; ++i) {
    const double wide =
        std::ldexp(random.between(0.5, 1.0), static_cast<int>(random.next() % 2000) - 1000);
    const double near_one =
        1.0 + random.between(-1, 1) * std::ldexp(1.0, -static_cast<int>(random.next() % 52));
    for (const double x : {wide, near_one, random.between(1e-6, 4.0)}) {
      if (x <= 0) continue;
      worst_log =
          std::max(worst_log, relative_error(exact_log(x), std::log(static_cast<long double>(x))));
    }
    for (const double x :
         {random.between(-708, 709), random.between(-1, 1), random.between(-40, 0)}) {
      worst_exp =
          std::max(worst_exp, relative_error(exact_exp(x), std::exp(static_cast<long double>(x))));
    }
  }
  CHECK(worst_log < 1e-15);
  CHECK(worst_exp < 1e-15);
}

TEST_CASE("exact_log and exact_exp at their edges") {
  CHECK(exact_log(1.0) == 0.0);
  CHECK(exact_exp(0.0) == 1.0);
  CHECK(exact_exp(-708.5) == 0.0);
  CHECK(exact_exp(-HUGE_VAL) == 0.0);
  CHECK(exact_exp(710.0) == exact_exp(709.0));
  CHECK(exact_exp(HUGE_VAL) == exact_exp(709.0));
  CHECK(relative_error(exact_exp(-708.0), std::exp(-708.0L)) < 1e-15);
  CHECK(relative_error(exact_exp(709.0), std::exp(709.0L)) < 1e-15);
  CHECK(relative_error(exact_log(0x1p-1022), std::log(0x1p-1022L)) < 1e-15);
  CHECK(relative_error(exact_log(0x1.fffffffffffffp1023), std::log(0x1.fffffffffffffp1023L)) <
        1e-15);
}

TEST_CASE("uniform never reaches 0 or 1 and uses 52 bits") {
  CHECK(uniform(0, 0) == 0x1p-53);
  CHECK(uniform(0xffffffff, 0xffffffff) == 1.0 - 0x1p-53);
  CHECK(uniform(0x80000000, 0) == 0.5 + 0x1p-53);
  CHECK(uniform(0, 0x1000) - uniform(0, 0) == 0x1p-52);
  CHECK(uniform(0, 0xfff) == uniform(0, 0));
}

TEST_CASE("gumbel is -log(-log u) of the words at (seed; position, id, sampling)") {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}}) {
    for (const std::int64_t position :
         {std::int64_t{0}, std::int64_t{3}, (std::int64_t{5} << 32) + 9}) {
      for (const std::int32_t id : {0, 1, 150000}) {
        const Words words = philox(
            seed, {static_cast<std::uint32_t>(position & 0xffffffff),
                   static_cast<std::uint32_t>(position >> 32), static_cast<std::uint32_t>(id), 1});
        const long double bits =
            static_cast<long double>((std::uint64_t{words[0]} << 20) + (words[1] >> 12));
        const long double truth = -std::log(-std::log((bits + 0.5L) / 4503599627370496.0L));
        CHECK(std::fabs(static_cast<double>(gumbel(seed, position, id) - truth)) < 1e-14);
      }
    }
  }
}

TEST_CASE("gumbel noise has the distribution exp(-exp(-x))") {
  constexpr int kCount = 100000;
  for (const double x : {-1.5, 0.0, 1.0, 3.0}) {
    int below = 0;
    for (int i = 0; i < kCount; ++i) below += gumbel(42, i / 100, i % 100) <= x;
    const double expected = std::exp(-std::exp(-x));
    const double deviation = std::sqrt(expected * (1 - expected) / kCount);
    CHECK(std::fabs(static_cast<double>(below) / kCount - expected) < 5 * deviation);
  }
}

TEST_CASE("truncated_normal has the normal distribution cut at 3 and depends on all of its keys") {
  constexpr int kCount = 100000;
  std::vector<double> values;
  for (int i = 0; i < kCount; ++i) values.push_back(truncated_normal(3, i / 256, i % 256));
  const double tail = normal_below(-3.0);
  for (const double x : {-2.9, -2.0, -1.0, 0.0, 0.5, 1.5, 2.5}) {
    int below = 0;
    for (const double value : values) below += value <= x;
    const double expected = (normal_below(x) - tail) / (1 - 2 * tail);
    const double deviation = std::sqrt(expected * (1 - expected) / kCount);
    CHECK(std::fabs(static_cast<double>(below) / kCount - expected) < 5 * deviation);
  }
  for (const double value : values) {
    CHECK_UNARY(std::fabs(value) <= 3.0);
  }
  const double base = truncated_normal(3, 5, 7);
  CHECK(truncated_normal(3, 5, 7) == base);
  CHECK(truncated_normal(4, 5, 7) != base);
  CHECK(truncated_normal(3, 6, 7) != base);
  CHECK(truncated_normal(3, (std::int64_t{1} << 32) + 5, 7) != base);
  CHECK(truncated_normal(3, 5, 8) != base);
}
