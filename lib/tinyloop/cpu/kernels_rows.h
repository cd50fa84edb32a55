// SPDX-License-Identifier: Apache-2.0
// Operations on single rows: norms, activation, rotation, sums. Private to kernels.cpp.
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

}  // namespace
}  // namespace tinyloop
