// SPDX-License-Identifier: Apache-2.0
// Products of q8, q4 and q4_1 weights with rows quantised in groups of 32. Private to kernels.cpp.
// y = fma(float(exact integer dot product of a group), w_scale * x_scale, y), groups in order,
// starting at 0. q4_1 adds to each group, after its products, what the minimum adds to all weights:
// y = fma(float(sum of the row's integers), w_minimum * x_scale, y).
#pragma once

#include "tinyloop/cpu/f32x16.h"
#include "tinyloop/cpu/kernel_table.h"
#include "tinyloop/cpu/quad_dot.h"
#include "tinyloop/cpu/tiles.h"

namespace tinyloop {
namespace {

// A packed group: [8 quads][height][4] int8, then [height] f32 scales, then [height] int32 offsets.
constexpr std::int64_t kGroupInputs = 32;
constexpr std::int64_t kPackedGroupBytes = kGroupInputs + 4 + 4;  // of one row

#if defined(__AVX512F__)
constexpr int kQuantisedRows = 6;
constexpr int kQuantisedPanels = 2;
constexpr int kQuadUnroll = 4;
#elif defined(__AVX2__)
constexpr int kQuantisedRows = 6;
constexpr int kQuantisedPanels = 1;
constexpr int kQuadUnroll = 1;
#else
constexpr int kQuantisedRows = 4;
constexpr int kQuantisedPanels = 1;
constexpr int kQuadUnroll = 1;
#endif
// Groups of k for which the weights of some panels are used for all tiles of rows, so that they
// stay in L1.
constexpr std::int64_t kBlockGroups = 16;

using QuantisedTiles = RowTiles<kQuantisedRows>;

TL_INLINE std::int64_t count_groups(std::int64_t k) {
  return (k + kGroupInputs - 1) / kGroupInputs;
}

std::int64_t packed_quantised_bytes(std::int64_t rows, std::int64_t k) {
  return QuantisedTiles{rows}.packed_height() * count_groups(k) * kPackedGroupBytes;
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

// x[rows][k] to [tile][group][packed group].
template <typename Dot>
void pack_quantised_rows(const PackTask& task) {
  const std::int64_t groups = count_groups(task.k);
  for (std::int64_t t = task.first_tile; t < task.end_tile; ++t) {
    const RowTile tile = QuantisedTiles{task.rows}.at(t);
    Byte* packed = task.to + tile.packed_row * groups * kPackedGroupBytes;
    for (int r = 0; r < tile.height; ++r) {
      // Rows that round the height up repeat the first one: any finite numbers would do.
      const float* x = task.x + (tile.row + (r < tile.rows ? r : 0)) * task.x_stride;
      for (std::int64_t g = 0; g < groups; ++g) {
        Byte* group = packed + g * tile.height * kPackedGroupBytes;
        const std::int64_t left = task.k - g * kGroupInputs;
        alignas(64) Byte q[kGroupInputs];
        float scale;
        std::int32_t sum;
        quantise_group(q, &scale, &sum, x + g * kGroupInputs,
                       static_cast<int>(left < kGroupInputs ? left : kGroupInputs));
        for (int i = 0; i < 8; ++i)
          __builtin_memcpy(group + (i * tile.height + r) * 4, q + i * 4, 4);
        const std::int32_t offset = -Dot::kOffset * sum;
        __builtin_memcpy(group + (8 * tile.height + r) * 4, &scale, 4);
        __builtin_memcpy(group + (9 * tile.height + r) * 4, &offset, 4);
      }
    }
  }
}

// Bytes of the f16 scales, and minimums, of a group of a panel.
template <typename Dot>
constexpr std::ptrdiff_t kScaleBytes = (Dot::kMinimum ? 2 : 1) * kLanes * 2;

template <typename Dot, int kRows, int kPanels, bool kFetch>
TL_INLINE void multiply_quantised_tile(F32x16 (&acc)[kRows][kPanels], const Byte* x,
                                       const Byte* const (&w)[kPanels],
                                       const Byte* const (&scales)[kPanels], std::int64_t groups,
                                       std::int64_t groups_ahead) {
  for (std::int64_t g = 0; g < groups; ++g) {
    const Byte* group = x + g * kRows * kPackedGroupBytes;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const Byte* weights = w[p] + g * Dot::kGroupBytes;
      if constexpr (kFetch) {
        for (std::ptrdiff_t line = 0; line < Dot::kGroupBytes; line += 64) {
          __builtin_prefetch(weights + groups_ahead * Dot::kGroupBytes + line);
        }
        __builtin_prefetch(scales[p] + (g + groups_ahead) * kScaleBytes<Dot>);
      }
      const F32x16 w_scale = load_f16(scales[p] + g * kScaleBytes<Dot>);
      typename Dot::Part sums[kRows][Dot::kParts];
#pragma GCC unroll 2
      for (int part = 0; part < Dot::kParts; ++part) {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          sums[r][part].start(Dot::kMinimum ? 0 : load_i32(group + (9 * kRows + r) * 4));
        }
#pragma GCC unroll kQuadUnroll
        for (int i = 0; i < 4; ++i) {
          const Byte* x_low = group + i * kRows * 4;
          const Byte* x_high = x_low + 4 * kRows * 4;
          const typename Dot::Weights low = Dot::template quad<0>(weights, i, part);
          const typename Dot::Weights high = Dot::template quad<1>(weights, i, part);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            sums[r][part].add(low, load_i32(x_low + r * 4));
            sums[r][part].add(high, load_i32(x_high + r * 4));
          }
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F32x16 x_scale = broadcast(load_f32(group + (8 * kRows + r) * 4));
        acc[r][p] = fma(Dot::total(sums[r]), w_scale * x_scale, acc[r][p]);
        if constexpr (Dot::kMinimum) {
          const F32x16 minimum = load_f16(scales[p] + g * kScaleBytes<Dot> + kLanes * 2);
          const auto sum = static_cast<float>(load_i32(group + (9 * kRows + r) * 4));
          acc[r][p] = fma(broadcast(sum), minimum * x_scale, acc[r][p]);
        }
      }
    }
  }
}

// Weights of kPanels panels at a block of groups of k, as they are stored or unpacked.
struct QuantisedBlock {
  const Byte* data;     // of the first panel at the first group
  std::int64_t stride;  // groups from one panel to the next
  std::int64_t panel;
  std::int64_t first, groups;
};

// One block for one tile of rows.
template <typename Dot, int kRows, int kPanels, bool kFetch>
[[gnu::noinline]] void quantised_tile(const MatmulTask& task, const QuantisedBlock& block,
                                      const RowTile& rows) {
  const std::int64_t all = count_groups(task.k);
  const Byte* x = task.x + (rows.packed_row * all + block.first * kRows) * kPackedGroupBytes;
  const OutputTile tile = output_tile(task, rows, block.panel, kPanels);
  F32x16 acc[kRows][kPanels];
  start_tile(acc, tile, block.first > 0);
  // What the next block of groups needs is fetched; the last one fetches for the panels that come
  // next.
  std::int64_t ahead = kBlockGroups;
  const std::int64_t turn = all - block.first - kBlockGroups;
  for (std::int64_t g = 0; g < block.groups;) {
    const bool before = kFetch && g < turn && turn < block.groups;
    const std::int64_t end = before ? turn : block.groups;
    if (g >= turn) ahead += (kPanels - 1) * all;
    const Byte* w[kPanels];
    const Byte* scales[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      w[p] = block.data + (p * block.stride + g) * Dot::kGroupBytes;
      scales[p] = task.scales + ((block.panel + p) * all + block.first + g) * kScaleBytes<Dot>;
    }
    multiply_quantised_tile<Dot, kRows, kPanels, kFetch>(acc, x + g * kRows * kPackedGroupBytes, w,
                                                         scales, end - g, ahead);
    g = end;
  }
  store_tile(acc, tile);
}

// From this many tiles of rows on unpacking once is cheaper than looking up for every tile.
constexpr std::int64_t kFewQuantisedTiles = 3;

template <typename Dot>
concept UnpacksForManyRows = requires {
  typename Dot::Unpacked;
};

template <typename Dot, int kPanels, bool kFetch>
TL_INLINE void multiply_quantised_block(const MatmulTask& task, const QuantisedBlock& block,
                                        const RowTile& rows) {
  with_height<kQuantisedRows>(rows.height, [&](auto height) {
    quantised_tile<Dot, decltype(height)::value, kPanels, kFetch>(task, block, rows);
  });
}

// Many rows: a block is unpacked to the scratch, from where all tiles of rows use it.
template <typename Dot, int kPanels>
TL_INLINE void multiply_unpacked_panels(const MatmulTask& task, std::int64_t panel) {
  using Unpacked = typename Dot::Unpacked;
  static_assert(kPanels * kBlockGroups * Unpacked::kGroupBytes <= kMatmulScratchFloats * 4);
  const QuantisedTiles tiles = {task.rows};
  const std::int64_t all = count_groups(task.k);
  auto* unpacked = reinterpret_cast<Byte*>(task.scratch);
  for (std::int64_t first = 0; first < all; first += kBlockGroups) {
    const std::int64_t groups = all - first < kBlockGroups ? all - first : kBlockGroups;
    for (std::int64_t p = 0; p < kPanels; ++p) {
      const Byte* from = task.data + ((panel + p) * all + first) * Dot::kGroupBytes;
      for (std::int64_t g = 0; g < groups; ++g) {
        const Byte* group = from + g * Dot::kGroupBytes;
        for (std::ptrdiff_t line = 0; line < Dot::kGroupBytes; line += 64) {
          __builtin_prefetch(group + kBlockGroups * Dot::kGroupBytes + line);
        }
        Dot::unpack(unpacked + (p * kBlockGroups + g) * Unpacked::kGroupBytes, group);
      }
    }
    const QuantisedBlock block = {unpacked, kBlockGroups, panel, first, groups};
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      multiply_quantised_block<Unpacked, kPanels, false>(task, block, tiles.at(t));
    }
  }
}

template <typename Dot, int kPanels>
TL_INLINE void multiply_quantised_panels(const MatmulTask& task, std::int64_t panel) {
  const QuantisedTiles tiles = {task.rows};
  if constexpr (UnpacksForManyRows<Dot>) {
    if (tiles.count() >= kFewQuantisedTiles) {
      return multiply_unpacked_panels<Dot, kPanels>(task, panel);
    }
  }
  const std::int64_t all = count_groups(task.k);
  const std::int64_t step = tiles.count() == 1 ? all : kBlockGroups;
  for (std::int64_t first = 0; first < all; first += step) {
    const std::int64_t groups = all - first < step ? all - first : step;
    const QuantisedBlock block = {task.data + (panel * all + first) * Dot::kGroupBytes, all, panel,
                                  first, groups};
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      if (t == 0) {
        multiply_quantised_block<Dot, kPanels, true>(task, block, tiles.at(t));
      } else {
        multiply_quantised_block<Dot, kPanels, false>(task, block, tiles.at(t));
      }
    }
  }
}

template <typename Dot>
void multiply_quantised(const MatmulTask& task) {
  std::int64_t panel = task.first_panel;
  for (; panel + kQuantisedPanels <= task.end_panel; panel += kQuantisedPanels) {
    multiply_quantised_panels<Dot, kQuantisedPanels>(task, panel);
  }
  for (; panel < task.end_panel; ++panel) multiply_quantised_panels<Dot, 1>(task, panel);
}

}  // namespace
}  // namespace tinyloop
