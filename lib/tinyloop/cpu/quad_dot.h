// SPDX-License-Identifier: Apache-2.0
// Exact integer dot products of q8 and q4 weights with int8 activations, four inputs ("a quad") at
// a time, 16 outputs wide. Private to the kernels, like f32x16.h, and with it the only home of
// `#if`s about instruction sets.
#pragma once

#include "tinyloop/cpu/f32x16.h"
#include "tinyloop/model/codebook.h"

namespace tinyloop {
namespace {

// A half byte of q4 stands for an entry of the codebook, which is looked up with this added: bytes
// without a sign, at most 127, so that two products with an int8 fit a signed 16-bit sum.
constexpr std::int32_t kCodebookOffset = 64;
struct ShiftedCodebook {
  alignas(16) Byte entries[16];
};
constexpr ShiftedCodebook shifted_codebook() {
  ShiftedCodebook shifted = {};
  for (int i = 0; i < 16; ++i) {
    shifted.entries[i] = static_cast<Byte>(kCodebook[i] + kCodebookOffset);
  }
  return shifted;
}
constexpr ShiftedCodebook kShifted = shifted_codebook();

// What half bytes are: entries of the codebook (q4), or steps above a minimum (q4_1).
enum class Nibbles { entries, steps };
template <Nibbles kNibbles>
constexpr std::int32_t kOffsetOf = kNibbles == Nibbles::entries ? kCodebookOffset : -1;

// The dot products of a group of 32 inputs with 16 outputs come in kParts parts, as many outputs
// each as fit a register:
//   part.start(offset), then part.add(quad(weights, i, part), x) for its 8 quads i, then
//   total(parts).
// `offset` is -kOffset * (sum of the activations of the group): the weights are used with kOffset
// added. kMinimum: they are steps above a minimum, whose share is that sum's, so that the parts
// start at 0 and `offset` is the sum. Where a product of many rows is faster with weights that have
// been unpacked to a byte each there are Unpacked, the dot products of those, and unpack(to,
// group).

#if defined(__AVX512VNNI__)

TL_INLINE __m512i load_64_bytes(const Byte* from) { return _mm512_loadu_si512(from); }

struct DotVnni {
  static constexpr int kParts = 1;
  using Weights = __m512i;  // unsigned bytes
  struct Part {
    __m512i lanes;
    TL_INLINE void start(std::int32_t offset) { lanes = _mm512_set1_epi32(offset); }
    TL_INLINE void add(Weights w, std::int32_t x) {
      lanes = _mm512_dpbusd_epi32(lanes, w, _mm512_set1_epi32(x));
    }
  };
  TL_INLINE static F32x16 total(const Part (&parts)[kParts]) {
    return {_mm512_cvtepi32_ps(parts[0].lanes)};
  }
};
struct DotQ8 : DotVnni {
  static constexpr bool kMinimum = false;
  static constexpr std::ptrdiff_t kGroupBytes = 512;  // of one panel
  static constexpr std::int32_t kOffset = 128;
  template <int kHalf>
  TL_INLINE static Weights quad(const Byte* group, int i, int) {
    return _mm512_xor_si512(load_64_bytes(group + (4 * kHalf + i) * 64), _mm512_set1_epi8(-128));
  }
};
template <Nibbles kNibbles>
TL_INLINE __m512i bytes_of(__m512i nibbles) {
  const __m512i low = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
  if constexpr (kNibbles == Nibbles::steps) return low;
  const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(kShifted.entries));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), low);
}
template <Nibbles kNibbles>
struct DotUnpackedFourBits : DotVnni {
  static constexpr std::ptrdiff_t kGroupBytes = 512;
  static constexpr std::int32_t kOffset = kOffsetOf<kNibbles>;
  static constexpr bool kMinimum = kNibbles == Nibbles::steps;
  template <int kHalf>
  TL_INLINE static Weights quad(const Byte* group, int i, int) {
    return load_64_bytes(group + (4 * kHalf + i) * 64);
  }
};
template <Nibbles kNibbles>
struct DotFourBits : DotVnni {
  using Unpacked = DotUnpackedFourBits<kNibbles>;
  static constexpr std::ptrdiff_t kGroupBytes = 256;
  static constexpr std::int32_t kOffset = kOffsetOf<kNibbles>;
  static constexpr bool kMinimum = kNibbles == Nibbles::steps;
  template <int kHalf>
  TL_INLINE static Weights quad(const Byte* group, int i, int) {
    const __m512i pairs = load_64_bytes(group + i * 64);
    return bytes_of<kNibbles>(kHalf == 0 ? pairs : _mm512_srli_epi16(pairs, 4));
  }
  TL_INLINE static void unpack(Byte* to, const Byte* group) {
    for (int i = 0; i < 4; ++i) {
      _mm512_storeu_si512(to + i * 64, quad<0>(group, i, 0));
      _mm512_storeu_si512(to + (4 + i) * 64, quad<1>(group, i, 0));
    }
  }
};

#elif defined(__AVX2__)

TL_INLINE __m256i load_32_bytes(const Byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
// Sums pairs of 16-bit numbers to 32 bits.
TL_INLINE __m256i widen_pairs(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

struct DotQ8 {
  static constexpr bool kMinimum = false;
  static constexpr std::ptrdiff_t kGroupBytes = 512;  // of one panel
  static constexpr int kParts = 2;
  static constexpr std::int32_t kOffset = 0;
  struct Weights {
    __m256i signed_bytes, magnitudes;
  };
  struct Part {
    __m256i lanes;
    TL_INLINE void start(std::int32_t) { lanes = _mm256_setzero_si256(); }
    // |w| * (x with the sign of w): at most 2 * 127 * 127, which a signed 16-bit pair sum holds.
    TL_INLINE void add(Weights w, std::int32_t x) {
      const __m256i four = _mm256_sign_epi8(_mm256_set1_epi32(x), w.signed_bytes);
      lanes = _mm256_add_epi32(lanes, widen_pairs(_mm256_maddubs_epi16(w.magnitudes, four)));
    }
  };
  TL_INLINE static F32x16 total(const Part (&parts)[kParts]) {
    return {_mm256_cvtepi32_ps(parts[0].lanes), _mm256_cvtepi32_ps(parts[1].lanes)};
  }
  template <int kHalf>
  TL_INLINE static Weights quad(const Byte* group, int i, int part) {
    const __m256i w = load_32_bytes(group + (4 * kHalf + i) * 64 + part * 32);
    return {w, _mm256_abs_epi8(w)};
  }
};
template <Nibbles kNibbles>
TL_INLINE __m256i bytes_of(__m256i nibbles) {
  const __m256i low = _mm256_and_si256(nibbles, _mm256_set1_epi8(15));
  if constexpr (kNibbles == Nibbles::steps) return low;
  const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(kShifted.entries));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), low);
}
template <Nibbles kNibbles>
struct DotUnsigned {
  static constexpr int kParts = 2;
  static constexpr std::int32_t kOffset = kOffsetOf<kNibbles>;
  static constexpr bool kMinimum = kNibbles == Nibbles::steps;
  using Weights = __m256i;  // bytes without a sign, at most 127
  struct Part {
    __m256i lanes;
    TL_INLINE void start(std::int32_t offset) { lanes = _mm256_set1_epi32(offset); }
    TL_INLINE void add(Weights w, std::int32_t x) {
      const __m256i pairs = _mm256_maddubs_epi16(w, _mm256_set1_epi32(x));
      lanes = _mm256_add_epi32(lanes, widen_pairs(pairs));
    }
  };
  TL_INLINE static F32x16 total(const Part (&parts)[kParts]) {
    return {_mm256_cvtepi32_ps(parts[0].lanes), _mm256_cvtepi32_ps(parts[1].lanes)};
  }
};
template <Nibbles kNibbles>
struct DotUnpackedFourBits : DotUnsigned<kNibbles> {
  static constexpr std::ptrdiff_t kGroupBytes = 512;
  template <int kHalf>
  TL_INLINE static __m256i quad(const Byte* group, int i, int part) {
    return load_32_bytes(group + (4 * kHalf + i) * 64 + part * 32);
  }
};
template <Nibbles kNibbles>
struct DotFourBits : DotUnsigned<kNibbles> {
  using Unpacked = DotUnpackedFourBits<kNibbles>;
  static constexpr std::ptrdiff_t kGroupBytes = 256;
  template <int kHalf>
  TL_INLINE static __m256i quad(const Byte* group, int i, int part) {
    const __m256i both = load_32_bytes(group + i * 64 + part * 32);
    return bytes_of<kNibbles>(kHalf == 0 ? both : _mm256_srli_epi16(both, 4));
  }
  TL_INLINE static void unpack(Byte* to, const Byte* group) {
    for (int i = 0; i < 8; ++i) {
      auto* low = reinterpret_cast<__m256i*>(to + i * 32);
      auto* high = reinterpret_cast<__m256i*>(to + 256 + i * 32);
      _mm256_storeu_si256(low, quad<0>(group, i / 2, i % 2));
      _mm256_storeu_si256(high, quad<1>(group, i / 2, i % 2));
    }
  }
};

#else

struct DotPlain {
  static constexpr int kParts = 1;
  static constexpr std::int32_t kOffset = 0;
  struct Weights {
    std::int32_t bytes[kLanes][4];
  };
  struct Part {
    std::int32_t lanes[kLanes];
    TL_INLINE void start(std::int32_t) {
      for (int i = 0; i < kLanes; ++i) lanes[i] = 0;
    }
    TL_INLINE void add(const Weights& w, std::int32_t x) {
      const auto quad = static_cast<std::uint32_t>(x);
      for (int e = 0; e < 4; ++e) {
        const std::int32_t value = static_cast<signed char>((quad >> (8 * e)) & 0xffu);
        for (int i = 0; i < kLanes; ++i) lanes[i] += w.bytes[i][e] * value;
      }
    }
  };
  TL_INLINE static F32x16 total(const Part (&parts)[kParts]) {
    return each_lane([&](int i) { return static_cast<float>(parts[0].lanes[i]); });
  }
};
struct DotQ8 : DotPlain {
  static constexpr bool kMinimum = false;
  static constexpr std::ptrdiff_t kGroupBytes = 512;  // of one panel
  template <int kHalf>
  TL_INLINE static Weights quad(const Byte* group, int i, int) {
    Weights w;
    for (int at = 0; at < 64; ++at) {
      w.bytes[at / 4][at % 4] = static_cast<signed char>(group[(4 * kHalf + i) * 64 + at]);
    }
    return w;
  }
};
template <Nibbles kNibbles>
struct DotFourBits : DotPlain {
  static constexpr std::ptrdiff_t kGroupBytes = 256;
  static constexpr std::int32_t kOffset = kNibbles == Nibbles::steps ? -1 : 0;
  static constexpr bool kMinimum = kNibbles == Nibbles::steps;
  template <int kHalf>
  TL_INLINE static Weights quad(const Byte* group, int i, int) {
    Weights w;
    for (int at = 0; at < 64; ++at) {
      const int pair = group[i * 64 + at], nibble = kHalf == 0 ? pair & 15 : pair >> 4;
      w.bytes[at / 4][at % 4] = kMinimum ? nibble : kCodebook[nibble];
    }
    return w;
  }
};

#endif

using DotQ4 = DotFourBits<Nibbles::entries>;
using DotQ41 = DotFourBits<Nibbles::steps>;

}  // namespace
}  // namespace tinyloop
