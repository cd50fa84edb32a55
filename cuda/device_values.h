// SPDX-License-Identifier: Apache-2.0
// Shared by several kernels: elements of rows and of packed matrices, exp, sums and maxima
// of a warp. For .cu files only; knows no operation.
#pragma once

#include "launch.h"
#include "tinyloop/model/codebook.h"

namespace tinyloop::cuda {
namespace {

constexpr std::uint32_t kWarpThreads = 32;
constexpr float kGreatestFloat = 0x1.fffffep127f;

TL_DEVICE float* row_at(Rows rows, std::int64_t r) {
  return reinterpret_cast<float*>(rows.data.address) + r * rows.stride;
}

// Not std::min: that is no device function.
template <typename T>
TL_DEVICE T least_of(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
TL_DEVICE T most_of(T a, T b) {
  return a > b ? a : b;  // of floats: b where one is NaN
}

TL_DEVICE float widen_bf16(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}
TL_DEVICE std::uint16_t narrow_bf16(float a) {
  const std::uint32_t bits = bits_of(a);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

TL_DEVICE float xor_lane(float a, std::uint32_t mask) {
  return float_of(exchange_xor(bits_of(a), mask));
}

// Sum over 16 lanes, the same in all of them: lane i with i + 8, then + 4, + 2, + 1.
TL_DEVICE float sum_of_16(float a) {
  a = a + xor_lane(a, 8);
  a = a + xor_lane(a, 4);
  a = a + xor_lane(a, 2);
  return a + xor_lane(a, 1);
}

// Greatest magnitude of a warp, compared as integers: NaN is greater than all.
TL_DEVICE float greatest_of_warp(float a) {
  std::uint32_t most = bits_of(a) & 0x7fffffffu;
  for (std::uint32_t mask = 16; mask > 0; mask /= 2) {
    most = most_of(most, exchange_xor(most, mask));
  }
  return float_of(most);
}

// Counts this block at `counter` and returns how many were there before. One thread calls it,
// between two barriers. The fences stand beside the atomic addition in its own thread: only there
// do they order what the whole block has written before it, and what it reads after it, against the
// other blocks that count here.
TL_DEVICE std::int32_t count_up(std::int32_t* counter) {
  fence();
  const std::int32_t before = atomic_add(counter, 1);
  fence();
  return before;
}

// e^x with a relative error below 1.2e-7; 0 below -87.33, infinity above 88.72, NaN stays NaN, e^0
// is 1. x = n ln 2 + r, |r| <= ln 2 / 2: adding 1.5 * 2^23 rounds to n and leaves n in the low
// bits; e^r is a polynomial in r. The same steps as on the CPU, to the same bits.
TL_DEVICE float exp_of(float x) {
  const float magic = 0x1.8p23f;
  const float shifted = fma(x, 0x1.715476p+0f, magic);
  const float n = shifted - magic;
  float r = fma(n, -0x1.62e4p-1f, x);  // 15 bits, so that n times it is exact
  r = fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a2434p-10f;
  p = fma(p, r, 0x1.1239e2p-7f);
  p = fma(p, r, 0x1.5558f2p-5f);
  p = fma(p, r, 0x1.555492p-3f);
  p = fma(p, r, 0x1.fffffcp-2f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  float y = float_of(bits_of(p) + (bits_of(shifted) << 23));
  y = x < -87.33f ? 0.0f : y;
  y = 0x1.62e42ep+6f < x ? float_of(0x7f800000u) : y;
  return x != x ? x : y;
}

// A packed matrix as kernels take it.
struct Weights {
  const unsigned char* data;
  const unsigned char* scales;
  std::int64_t k, groups;  // groups of 32 along k
};

inline Weights weights_of(const Matrix& w) {
  return {reinterpret_cast<const unsigned char*>(w.data.address),
          reinterpret_cast<const unsigned char*>(w.scales.address), w.k, groups_of(w.k)};
}

// Four entries of the codebook of q4, from entry 4 * i on, as the bytes of a word.
constexpr std::uint32_t codebook_word(int i) {
  std::uint32_t word = 0;
  for (int j = 0; j < 4; ++j) {
    word |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(kCodebook[4 * i + j])) << (8 * j);
  }
  return word;
}
constexpr std::uint32_t kCodebook0 = codebook_word(0), kCodebook1 = codebook_word(1),
                        kCodebook2 = codebook_word(2), kCodebook3 = codebook_word(3);

// The entries of the four low half bytes of `nibbles`, as bytes.
TL_DEVICE std::uint32_t codebook_entries(std::uint32_t nibbles) {
  const std::uint32_t in_half = nibbles & 0x7777u;
  const std::uint32_t lower = choose_bytes(kCodebook0, kCodebook1, in_half);
  const std::uint32_t upper = choose_bytes(kCodebook2, kCodebook3, in_half);
  return choose_bytes(lower, upper, 0x3210u | ((nibbles & 0x8888u) >> 1));
}

// W[row][column]; where it lies is in packed_matrix.h.
template <WeightType kType>
TL_DEVICE float weight_at(const Weights& w, std::int64_t row, std::int64_t column) {
  const std::int64_t panel = row / 16, lane = row % 16;
  const std::int64_t at = (panel * w.k + column) * 16 + lane;
  if constexpr (kType == WeightType::f32) {
    return reinterpret_cast<const float*>(w.data)[at];
  } else if constexpr (kType == WeightType::f16) {
    return widen_f16(reinterpret_cast<const std::uint16_t*>(w.data)[at]);
  } else if constexpr (kType == WeightType::bf16) {
    return widen_bf16(reinterpret_cast<const std::uint16_t*>(w.data)[at]);
  } else {
    const std::int64_t group = panel * w.groups + column / 32, e = column % 32;
    const auto* numbers = reinterpret_cast<const std::uint16_t*>(w.scales) +
                          group * (kType == WeightType::q4_1 ? 32 : 16) + lane;
    const float scale = widen_f16(*numbers);
    if constexpr (kType == WeightType::q8) {
      const auto byte =
          static_cast<std::int8_t>(w.data[((group * 8 + e / 4) * 16 + lane) * 4 + e % 4]);
      return static_cast<float>(byte) * scale;
    } else {
      const std::uint32_t pair = w.data[((group * 4 + e % 16 / 4) * 16 + lane) * 4 + e % 4];
      const std::uint32_t nibble = e < 16 ? pair & 15u : pair >> 4;
      if constexpr (kType == WeightType::q4_1) {
        return fma(static_cast<float>(nibble), scale, widen_f16(numbers[16]));
      }
      const std::uint32_t entry = codebook_entries(nibble);
      return static_cast<float>(static_cast<std::int8_t>(entry & 0xffu)) * scale;
    }
  }
}

// Calls f with the weight type as a constant.
template <WeightType kType>
struct WeightTypeConstant {
  static constexpr WeightType value = kType;
};
template <typename F>
void with_weight_type(WeightType type, F&& f) {
  switch (type) {
    case WeightType::f32:
      return f(WeightTypeConstant<WeightType::f32>());
    case WeightType::f16:
      return f(WeightTypeConstant<WeightType::f16>());
    case WeightType::bf16:
      return f(WeightTypeConstant<WeightType::bf16>());
    case WeightType::q8:
      return f(WeightTypeConstant<WeightType::q8>());
    case WeightType::q4:
      return f(WeightTypeConstant<WeightType::q4>());
    case WeightType::q4_1:
      return f(WeightTypeConstant<WeightType::q4_1>());
  }
}

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// One thread for each of `rows` x `width` elements, a block staying in one row: its x is
// row * chunks_of(width) + chunk.
constexpr std::uint32_t kRowThreads = 256;

inline Grid grid_over(std::int64_t rows, std::int64_t width) {
  return {static_cast<std::uint32_t>(rows * ceil_divide(width, kRowThreads))};
}

struct Element {
  std::int64_t row, column;
};
TL_DEVICE Element element_of(std::int64_t width) {
  const std::int64_t chunks = (width + kRowThreads - 1) / kRowThreads;
  return {block_x() / chunks, block_x() % chunks * kRowThreads + thread_index()};
}

}  // namespace
}  // namespace tinyloop::cuda
