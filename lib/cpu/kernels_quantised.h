// SPDX-License-Identifier: Apache-2.0
// Products of q8 and q4 weights with rows quantised in groups of 32. Private to kernels.cpp.
// y = fma(float(exact integer dot product of a group), w_scale * x_scale, y), groups in order,
// starting at 0.
#pragma once

#include "cpu/f32x16.h"
#include "cpu/kernel_table.h"
#include "cpu/kernels_matmul.h"
#include "cpu/quad_dot.h"

namespace tinyloop {
namespace {

// Packed rows: for each group [8 quads][height][4] int8, then [height] f32 scales, then [height]
// int32 offsets.
constexpr std::int64_t kGroupInputs = 32;
constexpr std::int64_t kPackedGroupBytes = kGroupInputs + 4 + 4;  // of one row

#if defined(__AVX512F__)
constexpr int kQuantisedRows = 6;
constexpr int kQuantisedPanels = 2;
#elif defined(__AVX2__)
constexpr int kQuantisedRows = 6;
constexpr int kQuantisedPanels = 1;
#else
constexpr int kQuantisedRows = 4;
constexpr int kQuantisedPanels = 1;
#endif
// Groups of k for which the weights of some panels are used for all tiles of rows, so that they
// stay in L1.
constexpr std::int64_t kBlockGroups = 16;

TL_INLINE int quantised_height(std::int64_t rows) {
  return rows == 1 ? 1 : rows == 2 ? 2 : rows <= 4 ? 4 : kQuantisedRows;
}

template <typename F>
TL_INLINE void with_quantised_height(int height, F&& f) {
  switch (height) {
    case 1:
      return f(Number<1>{});
    case 2:
      return f(Number<2>{});
#if defined(__AVX2__)
    case 4:
      return f(Number<4>{});
#endif
    default:
      return f(Number<kQuantisedRows>{});
  }
}

TL_INLINE std::int64_t count_groups(std::int64_t k) {
  return (k + kGroupInputs - 1) / kGroupInputs;
}

std::int64_t quantised_tile_bytes(std::int64_t k) {
  return kQuantisedRows * count_groups(k) * kPackedGroupBytes;
}

TL_INLINE std::int32_t load_i32(const Byte* from) {
  std::int32_t value;
  __builtin_memcpy(&value, from, 4);
  return value;
}
TL_INLINE float load_f32(const Byte* from) {
  float value;
  __builtin_memcpy(&value, from, 4);
  return value;
}

// Scale and inverse of a vector whose greatest magnitude is given: q = round(x * inverse), x = q *
// scale. Vectors of zeros, or of values so small that the inverse is infinite, become zeros; NaN
// makes the scale NaN.
struct QuantisedScale {
  float scale, inverse;
};
TL_INLINE QuantisedScale activation_scale(float greatest) {
  const float inverse = 127.0f / greatest;
  if (inverse > 0x1.fffffep127f) return {0.0f, 0.0f};
  return {greatest / 127.0f, inverse};
}

TL_INLINE F32x16 round_into(F32x16 x, float inverse, float limit) {
  return max(min(x * broadcast(inverse), broadcast(limit)), broadcast(-limit));
}

// One group of one row; `count` of its 32 inputs exist.
TL_INLINE void quantise_group(Byte* q, float* scale, std::int32_t* sum, const float* x, int count) {
  const F32x16 low = load_first(x, count < kLanes ? count : kLanes);
  const F32x16 high =
      load_first(x + (count < kLanes ? 0 : kLanes), count < kLanes ? 0 : count - kLanes);
  const F32x16 most = greatest_magnitude(greatest_magnitude(broadcast(0.0f), low), high);
  const QuantisedScale of = activation_scale(max_lanes_as_integers(most));
  *scale = of.scale;
  store_int8(q, round_into(low, of.inverse, 127.0f));
  store_int8(q + kLanes, round_into(high, of.inverse, 127.0f));
  std::int32_t total = 0;
  for (int i = 0; i < kGroupInputs; ++i) total += static_cast<signed char>(q[i]);
  *sum = total;
}

template <typename Dot>
void pack_quantised_rows(const PackTask& task) {
  const std::int64_t groups = count_groups(task.k);
  for (std::int64_t tile = task.first_tile; tile < task.end_tile; ++tile) {
    const std::int64_t row = tile * kQuantisedRows;
    const int height = quantised_height(task.rows - row);
    Byte* packed = task.to + row * groups * kPackedGroupBytes;
    for (int r = 0; r < height; ++r) {
      const bool real = row + r < task.rows;
      const float* x = task.x + (row + (real ? r : 0)) * task.x_stride;
      for (std::int64_t g = 0; g < groups; ++g) {
        Byte* group = packed + g * height * kPackedGroupBytes;
        const std::int64_t left = task.k - g * kGroupInputs;
        alignas(64) Byte q[kGroupInputs];
        float scale;
        std::int32_t sum;
        quantise_group(q, &scale, &sum, x + g * kGroupInputs,
                       static_cast<int>(left < kGroupInputs ? left : kGroupInputs));
        for (int i = 0; i < 8; ++i) __builtin_memcpy(group + (i * height + r) * 4, q + i * 4, 4);
        const std::int32_t offset = -Dot::kOffset * sum;
        __builtin_memcpy(group + (8 * height + r) * 4, &scale, 4);
        __builtin_memcpy(group + (9 * height + r) * 4, &offset, 4);
      }
    }
  }
}

template <typename Dot, int kRows, int kPanels>
TL_INLINE void multiply_quantised_tile(F32x16 (&acc)[kRows][kPanels], const Byte* x,
                                       const Byte* const (&w)[kPanels],
                                       const Byte* const (&scales)[kPanels], std::int64_t groups) {
  for (std::int64_t g = 0; g < groups; ++g) {
    const Byte* group = x + g * kRows * kPackedGroupBytes;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const Byte* weights = w[p] + g * Dot::kGroupBytes;
      const F32x16 w_scale = load_f16(scales[p] + g * kLanes * 2);
      typename Dot::Sum sums[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r].start(load_i32(group + (9 * kRows + r) * 4));
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const typename Dot::Weights quad = Dot::quad(weights, i);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) sums[r].add(quad, load_i32(group + (i * kRows + r) * 4));
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F32x16 both = w_scale * broadcast(load_f32(group + (8 * kRows + r) * 4));
        acc[r][p] = fma(sums[r].total(), both, acc[r][p]);
      }
    }
  }
}

template <typename Dot, int kRows, int kPanels>
void quantised_tile(const MatmulTask& task, const OutputTile& tile, const Byte* x,
                    std::int64_t panel, std::int64_t first_group, std::int64_t groups) {
  const std::int64_t all = count_groups(task.k);
  const Byte* w[kPanels];
  const Byte* scales[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    const std::int64_t at = (panel + p) * all + first_group;
    w[p] = task.data + at * Dot::kGroupBytes;
    scales[p] = task.scales + at * kLanes * 2;
  }
  F32x16 acc[kRows][kPanels];
  if (first_group > 0) {
    load_tile(acc, tile);
  } else {
    clear_tile(acc);
  }
  multiply_quantised_tile<Dot, kRows, kPanels>(acc, x + first_group * kRows * kPackedGroupBytes, w,
                                               scales, groups);
  store_tile(acc, tile);
}

template <typename Dot>
void multiply_quantised(const MatmulTask& task) {
  const std::int64_t all = count_groups(task.k);
  const std::int64_t step = task.rows <= kQuantisedRows ? all : kBlockGroups;
  for (std::int64_t panel = task.first_panel; panel < task.end_panel;) {
    const bool several = panel + kQuantisedPanels <= task.end_panel;
    const int most = (several ? kQuantisedPanels : 1) * kLanes;
    const std::int64_t columns = task.n - panel * kLanes;
    for (std::int64_t first = 0; first < all; first += step) {
      const std::int64_t groups = all - first < step ? all - first : step;
      for (std::int64_t row = 0; row < task.rows; row += kQuantisedRows) {
        const std::int64_t left = task.rows - row;
        const OutputTile tile = {task.y + row * task.y_stride + panel * kLanes, task.y_stride,
                                 static_cast<int>(left < kQuantisedRows ? left : kQuantisedRows),
                                 static_cast<int>(columns < most ? columns : most)};
        const Byte* x = task.x + row * all * kPackedGroupBytes;
        with_quantised_height(quantised_height(left), [&](auto height) {
          constexpr int kRows = decltype(height)::value;
          if (several) {
            quantised_tile<Dot, kRows, kQuantisedPanels>(task, tile, x, panel, first, groups);
          } else {
            quantised_tile<Dot, kRows, 1>(task, tile, x, panel, first, groups);
          }
        });
      }
    }
    panel += several ? kQuantisedPanels : 1;
  }
}

}  // namespace
}  // namespace tinyloop
