// SPDX-License-Identifier: Apache-2.0
// Operations on single rows: norms, activation, rotation, sums; and the measurements of the
// machine. Private to kernels.cpp.
#pragma once

#include "tinyloop/cpu/f32x16.h"
#include "tinyloop/cpu/kernel_table.h"

namespace tinyloop {
namespace {

// Calls f(offset, count) for each vector of a row, the last one maybe shorter than 16.
template <typename F>
TL_INLINE void for_each_vector(std::int64_t width, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) f(i, kLanes);
  if (i < width) f(i, static_cast<int>(width - i));
}

TL_INLINE F32x16 load_part(const float* from, int count) {
  return count == kLanes ? load(from) : load_first(from, count);
}
TL_INLINE void store_part(float* to, F32x16 a, int count) {
  if (count == kLanes) {
    store(to, a);
  } else {
    store_first(to, a, count);
  }
}

void add_rows(float* y, const float* x, std::int64_t width) {
  for_each_vector(width, [&](std::int64_t i, int count) {
    store_part(y + i, load_part(y + i, count) + load_part(x + i, count), count);
  });
}

void blend_rows(float* y, float a, const float* x, float b, std::int64_t width) {
  const F32x16 old_part = broadcast(a), new_part = broadcast(b);
  for_each_vector(width, [&](std::int64_t i, int count) {
    store_part(y + i, fma(new_part, load_part(x + i, count), old_part * load_part(y + i, count)),
               count);
  });
}

// (x * (1 / sqrt(mean + eps))) * weight; squares in 16 lanes by fma in column order, then the tree
// of sum_lanes.
void rms_norm(float* y, const float* x, const float* weight, std::int64_t width, float eps) {
  F32x16 squares = broadcast(0.0f);
  for_each_vector(width, [&](std::int64_t i, int count) {
    const F32x16 value = load_part(x + i, count);
    squares = fma(value, value, squares);
  });
  const float mean = sum_lanes(squares) / static_cast<float>(width);
  const F32x16 factor = broadcast(1.0f / square_root(mean + eps));
  for_each_vector(width, [&](std::int64_t i, int count) {
    store_part(y + i, load_part(x + i, count) * factor * load_part(weight + i, count), count);
  });
}

void gated_silu(float* out, const float* gate_up, std::int64_t width) {
  const F32x16 zero = broadcast(0.0f), one = broadcast(1.0f);
  for_each_vector(width, [&](std::int64_t i, int count) {
    const F32x16 gate = load_part(gate_up + i, count);
    const F32x16 silu = gate / (one + exp(zero - gate));
    store_part(out + i, silu * load_part(gate_up + width + i, count), count);
  });
}

// Rotates the pairs (x[first + i * step], x[first + i * step + distance]): (a, b) to (a cos - b
// sin, b cos + a sin).
template <int kStep>
TL_INLINE void rotate_pairs(float* x, const float* angles, std::int64_t pairs,
                            std::int64_t distance) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float a = x[i * kStep], b = x[i * kStep + distance];
    const float cosine = angles[2 * i], sine = angles[2 * i + 1];
    x[i * kStep] = fused(a, cosine, -(b * sine));
    x[i * kStep + distance] = fused(b, cosine, a * sine);
  }
}

void rotate_row(const RotateTask& task) {
  const std::int64_t head_dim = task.head_dim;
  if (task.bias != nullptr) add_rows(task.qkv, task.bias, (task.heads + task.kv_heads) * head_dim);
  for (std::int32_t head = 0; head < task.heads + task.kv_heads; ++head) {
    float* x = task.qkv + head * head_dim;
    const float* norm = head < task.heads ? task.q_norm : task.k_norm;
    if (norm != nullptr) rms_norm(x, x, norm, head_dim, task.norm_eps);
    if (task.interleaved) {
      rotate_pairs<2>(x, task.angles, head_dim / 2, 1);
    } else {
      rotate_pairs<1>(x, task.angles, head_dim / 2, head_dim / 2);
    }
  }
}

// As fast as reading goes (measured): four streams, fetched ahead of the hardware.
float read_bytes(const Byte* from, std::size_t bytes) {
  constexpr int kStreams = 4;
  const std::size_t each = bytes / kStreams;
  F32x16 most[kStreams];
  for (int s = 0; s < kStreams; ++s) most[s] = broadcast(0.0f);
  for (std::size_t at = 0; at < each; at += 64) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const Byte* line = from + static_cast<std::size_t>(s) * each + at;
      __builtin_prefetch(line + 4096);
      most[s] = max(most[s], load(reinterpret_cast<const float*>(line)));
    }
  }
  return max_lanes(max(max(most[0], most[1]), max(most[2], most[3])));
}

// Six chains in flight hide the latency of two halves, twelve that of one register; both kinds do
// 12 vectors a round.
float fma_peak(std::int64_t rounds) {
#if defined(__AVX512F__)
  constexpr int kChains = 12;
#else
  constexpr int kChains = 6;
#endif
  F32x16 acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = broadcast(static_cast<float>(c));
  const F32x16 a = broadcast(0.999f), b = broadcast(0.001f);
  for (std::int64_t i = 0; i < rounds * (12 / kChains); ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = fma(acc[c], a, b);
  }
  F32x16 total = acc[0];
  for (int c = 1; c < kChains; ++c) total = total + acc[c];
  return sum_lanes(total);
}

// Exact dot products as of quad_dot.h at their best. AVX2: pair sums of four products are added in
// 16 bits before they are widened.
float int8_peak(std::int64_t rounds) {
#if defined(__AVX512VNNI__)
  constexpr int kChains = 12;
  __m512i acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_set1_epi32(c);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1);
  for (std::int64_t i = 0; i < 2 * rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_dpbusd_epi32(acc[c], a, b);
  }
  __m512i total = acc[0];
  for (int c = 1; c < kChains; ++c) total = _mm512_add_epi32(total, acc[c]);
  return static_cast<float>(_mm512_reduce_add_epi32(total));
#elif defined(__AVX2__)
  constexpr int kChains = 4, kSummed = 4;
  alignas(32) signed char weights[kChains * kSummed][32];
  for (int i = 0; i < kChains * kSummed; ++i) {
    for (int j = 0; j < 32; ++j) weights[i][j] = static_cast<signed char>(i + j);
  }
  const auto* w = reinterpret_cast<const __m256i*>(weights);
  const __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  __m256i x = one, acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < 3 * rounds; ++i) {
    x = _mm256_add_epi8(x, one);  // or the products would be the same each time
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) {
      const __m256i* at = w + c * kSummed;
      const __m256i low =
          _mm256_add_epi16(_mm256_maddubs_epi16(x, at[0]), _mm256_maddubs_epi16(x, at[1]));
      const __m256i high =
          _mm256_add_epi16(_mm256_maddubs_epi16(x, at[2]), _mm256_maddubs_epi16(x, at[3]));
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(_mm256_add_epi16(low, high), ones));
    }
  }
  const __m256i total =
      _mm256_add_epi32(_mm256_add_epi32(acc[0], acc[1]), _mm256_add_epi32(acc[2], acc[3]));
  return static_cast<float>(_mm256_extract_epi32(total, 0) ^ _mm256_extract_epi32(total, 7));
#else
  constexpr int kProducts = 1536;
  signed char a[kProducts], b[kProducts];
  for (int i = 0; i < kProducts; ++i) a[i] = b[i] = static_cast<signed char>(i);
  std::int32_t total = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    b[round % kProducts] = static_cast<signed char>(round);
    std::int32_t sum = 0;
    for (int i = 0; i < kProducts; ++i) sum += a[i] * b[i];
    total ^= sum;
  }
  return static_cast<float>(total);
#endif
}

}  // namespace
}  // namespace tinyloop
