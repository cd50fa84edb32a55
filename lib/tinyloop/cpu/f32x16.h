// SPDX-License-Identifier: Apache-2.0
// Sixteen floats that behave the same, bit for bit, on every instruction set; the home of every
// `#if` about them. Not a public header: only the kernels include it, each object keeps its own
// copy (anonymous namespace, no weak symbols).
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#if !defined(__clang__)
// g++ 12 warns of its own _mm512_undefined_ps inside these headers (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

#define TL_INLINE [[gnu::always_inline]] inline

namespace tinyloop {
namespace {

using Byte = unsigned char;

constexpr int kLanes = 16;

#if defined(__AVX2__)
TL_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#endif

#if defined(__AVX512F__)

struct F32x16 {
  __m512 v;
};
TL_INLINE F32x16 load(const float* from) { return {_mm512_loadu_ps(from)}; }
TL_INLINE void store(float* to, F32x16 a) { _mm512_storeu_ps(to, a.v); }
TL_INLINE F32x16 broadcast(float a) { return {_mm512_set1_ps(a)}; }
TL_INLINE F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
TL_INLINE F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
TL_INLINE F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
TL_INLINE F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
TL_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TL_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
TL_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }

TL_INLINE __mmask16 first_lanes(int count) {
  return static_cast<__mmask16>((1u << static_cast<unsigned>(count)) - 1u);
}
TL_INLINE F32x16 load_first(const float* from, int count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count), from)};
}
TL_INLINE void store_first(float* to, F32x16 a, int count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), a.v);
}
TL_INLINE F32x16 select_lanes(int first, int end, F32x16 inside, F32x16 outside) {
  const auto mask = static_cast<__mmask16>(first_lanes(end) & ~first_lanes(first));
  return {_mm512_mask_blend_ps(mask, outside.v, inside.v)};
}
TL_INLINE F32x16 where_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
TL_INLINE F32x16 where_nan(F32x16 a, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), no.v, yes.v)};
}
TL_INLINE F32x16 greatest_magnitude(F32x16 a, F32x16 b) {
  const __m512i magnitude =
      _mm512_and_si512(_mm512_castps_si512(b.v), _mm512_set1_epi32(0x7fffffff));
  return {_mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a.v), magnitude))};
}
TL_INLINE F32x16 scale_by_power(F32x16 a, F32x16 magic_power) {
  const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(magic_power.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), power))};
}

TL_INLINE F32x16 load_f16(const Byte* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
TL_INLINE void store_f16(Byte* to, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
TL_INLINE F32x16 load_bf16(const Byte* from) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
TL_INLINE F32x16 load_int8(const Byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
TL_INLINE void store_int8(Byte* to, F32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
TL_INLINE F32x16 load_int4(const Byte* from) {
  // Both nibbles of byte j become indexes: lane j takes the low one, lane j + 8 the high one, and
  // vpermps reads 4 bits.
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_set1_epi64x(
      *reinterpret_cast<const long long __attribute__((may_alias, aligned(1)))*>(from)));
  const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm512_permutexvar_ps(_mm512_srlv_epi32(bytes, shift), values)};
}

TL_INLINE __m256 low_half(F32x16 a) { return _mm512_castps512_ps256(a.v); }
TL_INLINE __m256 high_half(F32x16 a) { return _mm512_extractf32x8_ps(a.v, 1); }

#elif defined(__AVX2__)

struct F32x16 {
  __m256 lo, hi;
};
TL_INLINE F32x16 load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
TL_INLINE void store(float* to, F32x16 a) {
  _mm256_storeu_ps(to, a.lo);
  _mm256_storeu_ps(to + 8, a.hi);
}
TL_INLINE F32x16 broadcast(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
TL_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
TL_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
TL_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
TL_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
TL_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
TL_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
TL_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

TL_INLINE __m256i lanes_from(int first) {
  return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
}
TL_INLINE __m256i lanes_below(int first, int end) {  // of the lanes first .. first + 7
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lanes_from(first));
}
TL_INLINE F32x16 load_first(const float* from, int count) {
  return {_mm256_maskload_ps(from, lanes_below(0, count)),
          _mm256_maskload_ps(from + 8, lanes_below(8, count))};
}
TL_INLINE void store_first(float* to, F32x16 a, int count) {
  _mm256_maskstore_ps(to, lanes_below(0, count), a.lo);
  _mm256_maskstore_ps(to + 8, lanes_below(8, count), a.hi);
}
TL_INLINE __m256 select_half(int lane, int first, int end, __m256 inside, __m256 outside) {
  const __m256i mask = _mm256_andnot_si256(lanes_below(lane, first), lanes_below(lane, end));
  return _mm256_blendv_ps(outside, inside, _mm256_castsi256_ps(mask));
}
TL_INLINE F32x16 select_lanes(int first, int end, F32x16 inside, F32x16 outside) {
  return {select_half(0, first, end, inside.lo, outside.lo),
          select_half(8, first, end, inside.hi, outside.hi)};
}
TL_INLINE F32x16 where_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
TL_INLINE F32x16 where_nan(F32x16 a, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q))};
}
TL_INLINE __m256 greatest_half(__m256 a, __m256 b) {
  const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(b), _mm256_set1_epi32(0x7fffffff));
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), magnitude));
}
TL_INLINE F32x16 greatest_magnitude(F32x16 a, F32x16 b) {
  return {greatest_half(a.lo, b.lo), greatest_half(a.hi, b.hi)};
}
TL_INLINE __m256 scale_half(__m256 a, __m256 magic_power) {
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(magic_power), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), power));
}
TL_INLINE F32x16 scale_by_power(F32x16 a, F32x16 magic_power) {
  return {scale_half(a.lo, magic_power.lo), scale_half(a.hi, magic_power.hi)};
}

TL_INLINE __m128i load_16_bytes(const Byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
TL_INLINE __m128i load_8_bytes(const Byte* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}
TL_INLINE F32x16 load_f16(const Byte* from) {
  return {_mm256_cvtph_ps(load_16_bytes(from)), _mm256_cvtph_ps(load_16_bytes(from + 16))};
}
TL_INLINE void store_f16(Byte* to, F32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16),
                   _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
TL_INLINE __m256 widen_bf16(const Byte* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(from)), 16));
}
TL_INLINE F32x16 load_bf16(const Byte* from) { return {widen_bf16(from), widen_bf16(from + 16)}; }
TL_INLINE F32x16 load_int8(const Byte* from) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(from))),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(from + 8)))};
}
TL_INLINE void store_int8(Byte* to, F32x16 a) {
  const __m256i pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  const __m256i ordered = _mm256_permute4x64_epi64(pairs, 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}
TL_INLINE F32x16 load_int4(const Byte* from) {
  const __m256i bytes = _mm256_cvtepu8_epi32(load_8_bytes(from));
  const __m256 eight = _mm256_set1_ps(8.0f);
  const __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi32(15));
  return {_mm256_sub_ps(_mm256_cvtepi32_ps(low), eight),
          _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(bytes, 4)), eight)};
}

TL_INLINE __m256 low_half(F32x16 a) { return a.lo; }
TL_INLINE __m256 high_half(F32x16 a) { return a.hi; }

#else

struct F32x16 {
  float v[kLanes];
};

template <typename F>
TL_INLINE F32x16 each_lane(F&& f) {
  F32x16 to;
  for (int i = 0; i < kLanes; ++i) to.v[i] = f(i);
  return to;
}

TL_INLINE std::uint32_t bits_of(float a) { return __builtin_bit_cast(std::uint32_t, a); }
TL_INLINE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// a * b + c rounded once. Without the instruction: the product is exact in double, the sum is
// rounded to odd there, so that the rounding to float is the only one that counts (Boldo and
// Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
TL_INLINE float fused(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  auto bits = __builtin_bit_cast(std::int64_t, sum);
  // Inexact and even: the odd neighbour is the one towards the error. Infinities and NaN have error
  // NaN and stay.
  const std::int64_t inexact = (error > 0.0) | (error < 0.0);
  const std::int64_t outwards = (error > 0.0) == (sum > 0.0);
  bits += inexact & ~bits & 1 ? 2 * outwards - 1 : 0;
  return static_cast<float>(__builtin_bit_cast(double, bits));
#endif
}

TL_INLINE F32x16 load(const float* from) {
  return each_lane([=](int i) { return from[i]; });
}
TL_INLINE void store(float* to, F32x16 a) {
  for (int i = 0; i < kLanes; ++i) to[i] = a.v[i];
}
TL_INLINE F32x16 broadcast(float a) {
  return each_lane([=](int) { return a; });
}
TL_INLINE F32x16 operator+(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
TL_INLINE F32x16 operator-(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
TL_INLINE F32x16 operator*(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
TL_INLINE F32x16 operator/(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
TL_INLINE F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_lane([&](int i) { return fused(a.v[i], b.v[i], c.v[i]); });
}
TL_INLINE F32x16 max(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
TL_INLINE F32x16 min(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
TL_INLINE F32x16 load_first(const float* from, int count) {
  F32x16 to = {};
  for (int i = 0; i < count; ++i) to.v[i] = from[i];
  return to;
}
TL_INLINE void store_first(float* to, const F32x16& a, int count) {
  for (int i = 0; i < count; ++i) to[i] = a.v[i];
}
TL_INLINE F32x16 select_lanes(int first, int end, const F32x16& inside, const F32x16& outside) {
  return each_lane([&](int i) { return i >= first && i < end ? inside.v[i] : outside.v[i]; });
}
TL_INLINE F32x16 where_less(const F32x16& a, const F32x16& b, const F32x16& yes, const F32x16& no) {
  return each_lane([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
TL_INLINE F32x16 where_nan(const F32x16& a, const F32x16& yes, const F32x16& no) {
  return each_lane([&](int i) { return a.v[i] != a.v[i] ? yes.v[i] : no.v[i]; });
}
TL_INLINE F32x16 greatest_magnitude(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) {
    const std::uint32_t magnitude = bits_of(b.v[i]) & 0x7fffffffu;
    return float_of(bits_of(a.v[i]) > magnitude ? bits_of(a.v[i]) : magnitude);
  });
}
TL_INLINE F32x16 scale_by_power(const F32x16& a, const F32x16& magic_power) {
  return each_lane(
      [&](int i) { return float_of(bits_of(a.v[i]) + (bits_of(magic_power.v[i]) << 23)); });
}

TL_INLINE std::uint32_t load_u16(const Byte* from) {
  return static_cast<std::uint32_t>(from[0]) | static_cast<std::uint32_t>(from[1]) << 8;
}
TL_INLINE void store_u16(Byte* to, std::uint32_t bits) {
  to[0] = static_cast<Byte>(bits & 0xffu);
  to[1] = static_cast<Byte>(bits >> 8);
}
TL_INLINE float widen_f16(std::uint32_t half) {
  // The exponent field is 112 too small, which a multiplication mends for subnormal halves too; 31
  // means infinity or NaN.
  const float value = float_of((half & 0x7fffu) << 13) * 0x1p112f;
  const std::uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return float_of(bits_of(value) | special | (half & 0x8000u) << 16);
}
TL_INLINE std::uint32_t narrow_f16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) return sign | (bits_of(float_of(magnitude) + 0.5f) & 0x7fffu);
  return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
}
TL_INLINE F32x16 load_f16(const Byte* from) {
  return each_lane([=](int i) { return widen_f16(load_u16(from + 2 * i)); });
}
TL_INLINE void store_f16(Byte* to, const F32x16& a) {
  for (int i = 0; i < kLanes; ++i) store_u16(to + 2 * i, narrow_f16(a.v[i]));
}
TL_INLINE F32x16 load_bf16(const Byte* from) {
  return each_lane([=](int i) { return float_of(load_u16(from + 2 * i) << 16); });
}
TL_INLINE F32x16 load_int8(const Byte* from) {
  return each_lane([=](int i) { return static_cast<float>(static_cast<signed char>(from[i])); });
}
TL_INLINE void store_int8(Byte* to, const F32x16& a) {
  // Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits.
  for (int i = 0; i < kLanes; ++i) to[i] = static_cast<Byte>(bits_of(a.v[i] + 0x1.8p23f) & 0xffu);
}
TL_INLINE F32x16 load_int4(const Byte* from) {
  return each_lane([=](int i) {
    const int nibble = i < 8 ? from[i] & 15 : from[i - 8] >> 4;
    return static_cast<float>(nibble - 8);
  });
}

#endif

// Folds 16 lanes to one in a fixed tree: lane i with i + 8, then + 4, + 2, + 1.
#if defined(__AVX2__)
TL_INLINE float sum_lanes(F32x16 a) {
  const __m256 eight = _mm256_add_ps(low_half(a), high_half(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TL_INLINE float max_lanes(F32x16 a) {
  const __m256 eight = _mm256_max_ps(low_half(a), high_half(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
TL_INLINE float max_lanes_as_integers(F32x16 a) {
  const __m256i eight =
      _mm256_max_epi32(_mm256_castps_si256(low_half(a)), _mm256_castps_si256(high_half(a)));
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1))));
}
#else
TL_INLINE float sum_lanes(F32x16 a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
TL_INLINE float max_lanes(F32x16 a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}
TL_INLINE float max_lanes_as_integers(const F32x16& a) {
  std::uint32_t most = 0;
  for (int i = 0; i < kLanes; ++i) most = bits_of(a.v[i]) > most ? bits_of(a.v[i]) : most;
  return float_of(most);
}
#endif

// IEEE square root; the instruction set's own, because sqrtf may become a call or a weak symbol.
TL_INLINE float square_root(float a) { return __builtin_sqrtf(a); }

// e^x with a relative error below 1.2e-7; 0 below -87.33, infinity above 88.72, NaN stays NaN, e^0
// is 1. x = n ln 2 + r, |r| <= ln 2 / 2: adding 1.5 * 2^23 rounds to n and leaves n in the low
// bits; e^r is a polynomial in r.
TL_INLINE F32x16 exp(F32x16 x) {
  const F32x16 magic = broadcast(0x1.8p23f);
  const F32x16 shifted = fma(x, broadcast(0x1.715476p+0f), magic);
  const F32x16 n = shifted - magic;
  F32x16 r = fma(n, broadcast(-0x1.62e4p-1f), x);  // 15 bits, so that n times it is exact
  r = fma(n, broadcast(-0x1.7f7d1cp-20f), r);
  F32x16 p = broadcast(0x1.6a2434p-10f);
  p = fma(p, r, broadcast(0x1.1239e2p-7f));
  p = fma(p, r, broadcast(0x1.5558f2p-5f));
  p = fma(p, r, broadcast(0x1.555492p-3f));
  p = fma(p, r, broadcast(0x1.fffffcp-2f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  F32x16 y = scale_by_power(p, shifted);
  y = where_less(x, broadcast(-87.33f), broadcast(0.0f), y);
  y = where_less(broadcast(0x1.62e42ep+6f), x, broadcast(__builtin_inff()), y);
  return where_nan(x, x, y);
}

// How 16 values lie in memory: the `Stored` of a template. kBytes is the step from one vector to
// the next.
struct StoredF32 {
  static constexpr std::ptrdiff_t kBytes = 64;
  TL_INLINE static F32x16 load_vector(const Byte* from) {
    return load(reinterpret_cast<const float*>(from));
  }
};
struct StoredF16 {
  static constexpr std::ptrdiff_t kBytes = 32;
  TL_INLINE static F32x16 load_vector(const Byte* from) { return load_f16(from); }
};
struct StoredBf16 {
  static constexpr std::ptrdiff_t kBytes = 32;
  TL_INLINE static F32x16 load_vector(const Byte* from) { return load_bf16(from); }
};
struct StoredInt8 {
  static constexpr std::ptrdiff_t kBytes = 16;
  TL_INLINE static F32x16 load_vector(const Byte* from) { return load_int8(from); }
};
struct StoredInt4 {
  static constexpr std::ptrdiff_t kBytes = 8;
  TL_INLINE static F32x16 load_vector(const Byte* from) { return load_int4(from); }
};

}  // namespace
}  // namespace tinyloop
