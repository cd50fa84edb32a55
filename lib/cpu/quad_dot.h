// SPDX-License-Identifier: Apache-2.0
// Exact integer dot products of q8 and q4 weights with int8 activations, four inputs ("a quad") at
// a time, 16 outputs wide. Private to the kernels, like f32x16.h, and with it the only home of
// `#if`s about instruction sets.
#pragma once

#include "cpu/f32x16.h"

namespace tinyloop {
namespace {

// A dot product over a group of 32 inputs is: sum.start(offset), sum.add(weights, x) for its 8
// quads, sum.total(). `offset` is -kOffset * (sum of the activations of the group): the weights are
// stored or used with kOffset added.

#if defined(__AVX512VNNI__)

TL_INLINE __m512i load_64_bytes(const Byte* from) { return _mm512_loadu_si512(from); }

struct QuadWeights {
  __m512i unsigned_bytes;
};
struct QuadSum {
  __m512i lanes;
  TL_INLINE void start(std::int32_t offset) { lanes = _mm512_set1_epi32(offset); }
  TL_INLINE void add(QuadWeights w, std::int32_t x) {
    lanes = _mm512_dpbusd_epi32(lanes, w.unsigned_bytes, _mm512_set1_epi32(x));
  }
  TL_INLINE F32x16 total() const { return {_mm512_cvtepi32_ps(lanes)}; }
};
struct DotQ8 {
  static constexpr std::ptrdiff_t kGroupBytes = 512;  // of one panel
  static constexpr std::int32_t kOffset = 128;
  using Weights = QuadWeights;
  using Sum = QuadSum;
  TL_INLINE static Weights quad(const Byte* group, int i) {
    return {_mm512_xor_si512(load_64_bytes(group + i * 64), _mm512_set1_epi8(-128))};
  }
};
struct DotQ4 {
  static constexpr std::ptrdiff_t kGroupBytes = 256;
  static constexpr std::int32_t kOffset = 8;
  using Weights = QuadWeights;
  using Sum = QuadSum;
  TL_INLINE static Weights quad(const Byte* group, int i) {
    const __m512i pairs = load_64_bytes(group + i % 4 * 64);
    const __m512i nibbles = i < 4 ? pairs : _mm512_srli_epi16(pairs, 4);
    return {_mm512_and_si512(nibbles, _mm512_set1_epi8(15))};
  }
};

#elif defined(__AVX2__)

TL_INLINE __m256i load_32_bytes(const Byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
TL_INLINE __m256i pairs_to_32_bits(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

struct DotQ8 {
  static constexpr std::ptrdiff_t kGroupBytes = 512;  // of one panel
  static constexpr std::int32_t kOffset = 0;
  struct Weights {
    __m256i lo, hi;
  };
  struct Sum {
    __m256i lo, hi;
    TL_INLINE void start(std::int32_t) { lo = hi = _mm256_setzero_si256(); }
    // |w| * (x with the sign of w): at most 2 * 127 * 127, which a signed 16-bit pair sum holds.
    TL_INLINE static __m256i product(__m256i w, __m256i x) {
      return pairs_to_32_bits(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)));
    }
    TL_INLINE void add(Weights w, std::int32_t x) {
      const __m256i four = _mm256_set1_epi32(x);
      lo = _mm256_add_epi32(lo, product(w.lo, four));
      hi = _mm256_add_epi32(hi, product(w.hi, four));
    }
    TL_INLINE F32x16 total() const { return {_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)}; }
  };
  TL_INLINE static Weights quad(const Byte* group, int i) {
    return {load_32_bytes(group + i * 64), load_32_bytes(group + i * 64 + 32)};
  }
};
struct DotQ4 {
  static constexpr std::ptrdiff_t kGroupBytes = 256;
  static constexpr std::int32_t kOffset = 8;
  struct Weights {
    __m256i lo, hi;
  };
  struct Sum {
    __m256i lo, hi;  // 16-bit pair sums: 8 quads of at most 2 * 15 * 127 stay below 2^15
    std::int32_t offset;
    TL_INLINE void start(std::int32_t first) {
      lo = hi = _mm256_setzero_si256();
      offset = first;
    }
    TL_INLINE void add(Weights w, std::int32_t x) {
      const __m256i four = _mm256_set1_epi32(x);
      lo = _mm256_add_epi16(lo, _mm256_maddubs_epi16(w.lo, four));
      hi = _mm256_add_epi16(hi, _mm256_maddubs_epi16(w.hi, four));
    }
    TL_INLINE F32x16 total() const {
      const __m256i first = _mm256_set1_epi32(offset);
      return {_mm256_cvtepi32_ps(_mm256_add_epi32(pairs_to_32_bits(lo), first)),
              _mm256_cvtepi32_ps(_mm256_add_epi32(pairs_to_32_bits(hi), first))};
    }
  };
  TL_INLINE static __m256i nibbles(const Byte* from, int i) {
    const __m256i pairs = load_32_bytes(from);
    return _mm256_and_si256(i < 4 ? pairs : _mm256_srli_epi16(pairs, 4), _mm256_set1_epi8(15));
  }
  TL_INLINE static Weights quad(const Byte* group, int i) {
    return {nibbles(group + i % 4 * 64, i), nibbles(group + i % 4 * 64 + 32, i)};
  }
};

#else

struct QuadWeights {
  std::int32_t bytes[kLanes][4];
};
struct QuadSum {
  std::int32_t lanes[kLanes];
  TL_INLINE void start(std::int32_t) {
    for (int i = 0; i < kLanes; ++i) lanes[i] = 0;
  }
  TL_INLINE void add(const QuadWeights& w, std::int32_t x) {
    const auto quad = static_cast<std::uint32_t>(x);
    for (int e = 0; e < 4; ++e) {
      const std::int32_t value = static_cast<signed char>((quad >> (8 * e)) & 0xffu);
      for (int i = 0; i < kLanes; ++i) lanes[i] += w.bytes[i][e] * value;
    }
  }
  TL_INLINE F32x16 total() const {
    return each_lane([&](int i) { return static_cast<float>(lanes[i]); });
  }
};
struct DotQ8 {
  static constexpr std::ptrdiff_t kGroupBytes = 512;  // of one panel
  static constexpr std::int32_t kOffset = 0;
  using Weights = QuadWeights;
  using Sum = QuadSum;
  TL_INLINE static Weights quad(const Byte* group, int i) {
    Weights w;
    for (int at = 0; at < 64; ++at) {
      w.bytes[at / 4][at % 4] = static_cast<signed char>(group[i * 64 + at]);
    }
    return w;
  }
};
struct DotQ4 {
  static constexpr std::ptrdiff_t kGroupBytes = 256;
  static constexpr std::int32_t kOffset = 0;
  using Weights = QuadWeights;
  using Sum = QuadSum;
  TL_INLINE static Weights quad(const Byte* group, int i) {
    Weights w;
    for (int at = 0; at < 64; ++at) {
      const int pair = group[i % 4 * 64 + at];
      w.bytes[at / 4][at % 4] = (i < 4 ? pair & 15 : pair >> 4) - 8;
    }
    return w;
  }
};

#endif

}  // namespace
}  // namespace tinyloop
