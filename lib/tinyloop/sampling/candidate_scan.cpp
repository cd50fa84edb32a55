// SPDX-License-Identifier: Apache-2.0
// The scans, each written once and compiled for every instruction set. Not the sampler's
// arithmetic: fused multiply-adds may change a last bit here, and the margins allow for it.
#include "tinyloop/sampling/candidate_scan.h"

#include <bit>

#include "tinyloop/random.h"

#if defined(__x86_64__)
// GCC 12 takes its own intrinsics for uses of uninitialised values (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#define TINYLOOP_AVX2 [[gnu::target("avx2,fma")]]
#define TINYLOOP_AVX512 [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw")]]
#endif

namespace tinyloop {
namespace {

constexpr std::uint32_t kUse = static_cast<std::uint32_t>(NoiseUse::sampling);
constexpr std::uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kKeyStep0 = 0x9E3779B9u, kKeyStep1 = 0xBB67AE85u;
constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// -log(-log u) <= -log(1 - u), and log2 of 2^e (1 + m) is at least e + m, which are a float's bits.
[[gnu::always_inline]] inline double bound_of(std::uint32_t high) {
  const auto rest = static_cast<float>(static_cast<std::int32_t>(~high >> 1));  // of 2^31
  return (31.0 + 127.0) * kLn2 + 1e-6 -
         static_cast<double>(std::bit_cast<std::int32_t>(rest)) * (kLn2 * 0x1p-23);
}

[[gnu::always_inline]] inline bool any_of_block(const double* values, const std::uint32_t* high,
                                                std::size_t count, const ScanLimits& limits) {
  const ScanLimits own = limits;
  std::int64_t any = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double scaled = (values[i] - own.best_value) * own.per_degree;
    // the rounding of a scaled value is relative to it, and matters only above -200
    const double total = scaled + bound_of(high[i]) + 1e-9;
    any |= static_cast<std::int64_t>(total >= own.lowest_total) &
           static_cast<std::int64_t>(scaled >= own.lowest_scaled) &
           static_cast<std::int64_t>(values[i] >= own.lowest_value);
  }
  return any != 0;
}

[[gnu::always_inline]] inline void weigh(const double* values, std::size_t count, double best_value,
                                         double per_degree, double* weights) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  for (std::size_t i = 0; i < count; ++i) {
    double x = (values[i] - best_value) * per_degree;
    x = x > -708.0 ? x : -708.0;
    const double shifted = x * (1.0 / kLn2) + kRound;
    const double k = shifted - kRound;
    const double r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    double series = 1.0 / 479001600.0;
    series = series * r + 1.0 / 39916800.0;
    series = series * r + 1.0 / 3628800.0;
    series = series * r + 1.0 / 362880.0;
    series = series * r + 1.0 / 40320.0;
    series = series * r + 1.0 / 5040.0;
    series = series * r + 1.0 / 720.0;
    series = series * r + 1.0 / 120.0;
    series = series * r + 1.0 / 24.0;
    series = series * r + 1.0 / 6.0;
    series = series * r + 0.5;
    series = series * r + 1.0;
    series = series * r + 1.0;
    const std::uint64_t power = (std::bit_cast<std::uint64_t>(shifted) + 1023) << 52;
    weights[i] = series * std::bit_cast<double>(power);
  }
}

#if defined(__x86_64__)
// A counter's words sit in the low halves of 64-bit lanes; the products ignore the upper halves, so
// these may hold anything.
TINYLOOP_AVX512 void words_avx512(std::uint64_t seed, std::uint64_t place, std::uint32_t first,
                                  std::uint32_t* high) {
  const __m512i m0 = _mm512_set1_epi64(kMultiplier0), m1 = _mm512_set1_epi64(kMultiplier1);
  constexpr int kChains = 4;
  for (std::uint32_t start = 0; start < kScanBlock; start += 8 * kChains) {
    __m512i c0[kChains], c1[kChains], c2[kChains], c3[kChains];
    for (int n = 0; n < kChains; ++n) {
      c0[n] = _mm512_set1_epi64(static_cast<std::int64_t>(place));
      c1[n] = _mm512_set1_epi64(static_cast<std::int64_t>(place >> 32));
      const std::uint32_t id = first + start + 8 * static_cast<std::uint32_t>(n);
      c2[n] = _mm512_add_epi64(_mm512_set1_epi64(id), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
      c3[n] = _mm512_set1_epi64(kUse);
    }
    auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const __m512i k0 = _mm512_set1_epi64(key0), k1 = _mm512_set1_epi64(key1);
      for (int n = 0; n < kChains; ++n) {
        const __m512i p0 = _mm512_mul_epu32(c0[n], m0), p1 = _mm512_mul_epu32(c2[n], m1);
        c0[n] = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), c1[n]), k0);
        c1[n] = p1;
        c2[n] = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), c3[n]), k1);
        c3[n] = p0;
      }
      key0 += kKeyStep0;
      key1 += kKeyStep1;
    }
    for (int n = 0; n < kChains; ++n) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(high + start + 8 * n),
                          _mm512_cvtepi64_epi32(c0[n]));
    }
  }
}

TINYLOOP_AVX2 void words_avx2(std::uint64_t seed, std::uint64_t place, std::uint32_t first,
                              std::uint32_t* high) {
  const __m256i m0 = _mm256_set1_epi64x(kMultiplier0), m1 = _mm256_set1_epi64x(kMultiplier1);
  constexpr int kChains = 2;
  for (std::uint32_t start = 0; start < kScanBlock; start += 4 * kChains) {
    __m256i c0[kChains], c1[kChains], c2[kChains], c3[kChains];
    for (int n = 0; n < kChains; ++n) {
      c0[n] = _mm256_set1_epi64x(static_cast<std::int64_t>(place));
      c1[n] = _mm256_set1_epi64x(static_cast<std::int64_t>(place >> 32));
      const std::uint32_t id = first + start + 4 * static_cast<std::uint32_t>(n);
      c2[n] = _mm256_add_epi64(_mm256_set1_epi64x(id), _mm256_setr_epi64x(0, 1, 2, 3));
      c3[n] = _mm256_set1_epi64x(kUse);
    }
    auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const __m256i k0 = _mm256_set1_epi64x(key0), k1 = _mm256_set1_epi64x(key1);
      for (int n = 0; n < kChains; ++n) {
        const __m256i p0 = _mm256_mul_epu32(c0[n], m0), p1 = _mm256_mul_epu32(c2[n], m1);
        c0[n] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1[n]), k0);
        c1[n] = p1;
        c2[n] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3[n]), k1);
        c3[n] = p0;
      }
      key0 += kKeyStep0;
      key1 += kKeyStep1;
    }
    const __m256i low_halves = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    for (int n = 0; n < kChains; ++n) {
      const __m256i packed = _mm256_permutevar8x32_epi32(c0[n], low_halves);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(high + start + 4 * n),
                       _mm256_castsi256_si128(packed));
    }
  }
}

TINYLOOP_AVX512 bool any_avx512(const double* values, const std::uint32_t* high, std::size_t count,
                                const ScanLimits& limits) {
  return any_of_block(values, high, count, limits);
}
TINYLOOP_AVX2 bool any_avx2(const double* values, const std::uint32_t* high, std::size_t count,
                            const ScanLimits& limits) {
  return any_of_block(values, high, count, limits);
}
TINYLOOP_AVX512 void weigh_avx512(const double* values, std::size_t count, double best_value,
                                  double per_degree, double* weights) {
  weigh(values, count, best_value, per_degree, weights);
}
TINYLOOP_AVX2 void weigh_avx2(const double* values, std::size_t count, double best_value,
                              double per_degree, double* weights) {
  weigh(values, count, best_value, per_degree, weights);
}
#endif

}  // namespace

std::vector<ScanSet> available_scan_sets() {
  std::vector<ScanSet> sets{ScanSet::plain};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    sets.push_back(ScanSet::avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    sets.push_back(ScanSet::avx512);
  }
#endif
  return sets;
}

void noise_high_words(ScanSet set, std::uint64_t seed, std::int64_t position, std::uint32_t first,
                      std::span<std::uint32_t, kScanBlock> high) {
  const auto place = static_cast<std::uint64_t>(position);
#if defined(__x86_64__)
  if (set == ScanSet::avx512) return words_avx512(seed, place, first, high.data());
  if (set == ScanSet::avx2) return words_avx2(seed, place, first, high.data());
#endif
  for (std::uint32_t i = 0; i < kScanBlock; ++i) {
    high[i] = philox(seed, {static_cast<std::uint32_t>(place),
                            static_cast<std::uint32_t>(place >> 32), first + i, kUse})[0];
  }
}

double noise_bound(std::uint32_t high) { return bound_of(high); }

bool any_may_count(ScanSet set, std::span<const double> values, std::span<const std::uint32_t> high,
                   const ScanLimits& limits) {
#if defined(__x86_64__)
  if (set == ScanSet::avx512) return any_avx512(values.data(), high.data(), values.size(), limits);
  if (set == ScanSet::avx2) return any_avx2(values.data(), high.data(), values.size(), limits);
#endif
  return any_of_block(values.data(), high.data(), values.size(), limits);
}

void approximate_weights(ScanSet set, std::span<const double> values, double best_value,
                         double per_degree, std::span<double> weights) {
#if defined(__x86_64__)
  if (set == ScanSet::avx512) {
    return weigh_avx512(values.data(), values.size(), best_value, per_degree, weights.data());
  }
  if (set == ScanSet::avx2) {
    return weigh_avx2(values.data(), values.size(), best_value, per_degree, weights.data());
  }
#endif
  weigh(values.data(), values.size(), best_value, per_degree, weights.data());
}

}  // namespace tinyloop
