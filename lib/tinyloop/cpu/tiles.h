// SPDX-License-Identifier: Apache-2.0
// Tiles: how rows are cut into pieces that fit the registers, and how a tile of results is loaded
// and stored. Private to the kernels.
#pragma once

#include "tinyloop/cpu/f32x16.h"
#include "tinyloop/cpu/kernel_table.h"

namespace tinyloop {
namespace {

// What fits in the registers, by instruction set (measured): kTileRows x kTilePanels accumulators,
// or kFewRows x kFewRowsPanels, so that enough chains are in flight to hide the latency of fma.
#if defined(__AVX512F__)
constexpr int kTileRows = 12;  // 24 of 32 registers
constexpr int kTilePanels = 2;
constexpr int kFewRows = 6;
constexpr int kFewRowsPanels = 4;
constexpr int kOneRowPanels = 8;  // only where unpacking takes long
#elif defined(__AVX2__)
constexpr int kTileRows = 6;  // 12 of 16 registers: a panel is two
constexpr int kTilePanels = 1;
constexpr int kFewRows = 1;
constexpr int kFewRowsPanels = 4;
constexpr int kOneRowPanels = 4;
#else
constexpr int kTileRows = 4;
constexpr int kTilePanels = 1;
constexpr int kFewRows = 1;
constexpr int kFewRowsPanels = 1;
constexpr int kOneRowPanels = 1;
#endif

// Heights that have a kernel; others are rounded up and the surplus rows computed for nothing.
template <int kMost>
TL_INLINE int height_of(int rows) {
  constexpr int kHeights[] = {0, 1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12};
  if (rows >= kMost) return kMost;
  return kMost == 4 && rows == 3 ? 4 : kHeights[rows];
}

struct RowTile {
  std::int64_t row;         // the first one
  std::int64_t packed_row;  // of the packed rows, which include those that round heights up
  int rows;
  int height;
};

// How rows are cut into tiles of at most kMost.
template <int kMost>
struct RowTiles {
  std::int64_t rows;

  TL_INLINE std::int64_t count() const { return (rows + kMost - 1) / kMost; }

  // All tiles have kMost rows but the last two, which share evenly what is left for them: low tiles
  // are slow.
  TL_INLINE RowTile at(std::int64_t tile) const {
    const std::int64_t tiles = count();
    const auto rest = static_cast<int>(rows % kMost);
    if (rest == 0 || tiles == 1 || tile < tiles - 2) {
      const int there = tiles == 1 ? static_cast<int>(rows) : kMost;
      return {tile * kMost, tile * kMost, there, height_of<kMost>(there)};
    }
    const std::int64_t row = (tiles - 2) * kMost;
    const int upper = (kMost + rest + 1) / 2, lower = kMost + rest - upper;
    if (tile == tiles - 2) return {row, row, upper, height_of<kMost>(upper)};
    return {row + upper, row + height_of<kMost>(upper), lower, height_of<kMost>(lower)};
  }

  // Of all tiles together.
  TL_INLINE std::int64_t packed_height() const {
    const RowTile last = at(count() - 1);
    return last.packed_row + last.height;
  }
};

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

// Calls f with the height as a compile-time constant.
template <int kMost, typename F>
TL_INLINE void with_height(int height, F&& f) {
  if (height == 1) return f(Number<1>{});
  if (height == 2) return f(Number<2>{});
  if constexpr (kMost > 4) {
    if (height == 3) return f(Number<3>{});
    if (height == 4) return f(Number<4>{});
  }
  if constexpr (kMost > 6) {
    if (height == 6) return f(Number<6>{});
    if (height == 8) return f(Number<8>{});
  }
  f(Number<kMost>{});
}

// Where a tile of results lies and how much of it exists.
struct OutputTile {
  float* y;
  std::int64_t stride;
  int rows;     // real rows
  int columns;  // real columns of the kPanels * 16
};

TL_INLINE OutputTile output_tile(const MatmulTask& task, const RowTile& rows, std::int64_t panel,
                                 int panels) {
  const std::int64_t left = task.n - panel * kLanes;
  const int most = panels * kLanes;
  return {task.y + rows.row * task.y_stride + panel * kLanes, task.y_stride, rows.rows,
          left < most ? static_cast<int>(left) : most};
}

template <int kRows, int kPanels>
TL_INLINE void clear_tile(F32x16 (&acc)[kRows][kPanels]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) acc[r][p] = broadcast(0.0f);
  }
}

template <int kRows, int kPanels>
TL_INLINE void load_whole_tile(F32x16 (&acc)[kRows][kPanels], const float* y, std::int64_t stride) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) acc[r][p] = load(y + r * stride + p * kLanes);
  }
}

template <int kRows, int kPanels>
TL_INLINE void store_whole_tile(const F32x16 (&acc)[kRows][kPanels], float* y,
                                std::int64_t stride) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) store(y + r * stride + p * kLanes, acc[r][p]);
  }
}

// The results so far where `resume`, else zeros. Tiles at the edge go through a whole tile of their
// own.
template <int kRows, int kPanels>
TL_INLINE void start_tile(F32x16 (&acc)[kRows][kPanels], const OutputTile& tile, bool resume) {
  if (!resume) {
    clear_tile(acc);
  } else if (tile.rows == kRows && tile.columns == kPanels * kLanes) {
    load_whole_tile(acc, tile.y, tile.stride);
  } else {
    alignas(64) float whole[kRows * kPanels * kLanes] = {};
    for (int r = 0; r < tile.rows; ++r) {
      __builtin_memcpy(whole + r * kPanels * kLanes, tile.y + r * tile.stride,
                       static_cast<std::size_t>(tile.columns) * sizeof(float));
    }
    load_whole_tile(acc, whole, kPanels * kLanes);
  }
}

template <int kRows, int kPanels>
TL_INLINE void store_tile(const F32x16 (&acc)[kRows][kPanels], const OutputTile& tile) {
  if (tile.rows == kRows && tile.columns == kPanels * kLanes) {
    store_whole_tile(acc, tile.y, tile.stride);
    return;
  }
  alignas(64) float whole[kRows * kPanels * kLanes];
  store_whole_tile(acc, whole, kPanels * kLanes);
  for (int r = 0; r < tile.rows; ++r) {
    __builtin_memcpy(tile.y + r * tile.stride, whole + r * kPanels * kLanes,
                     static_cast<std::size_t>(tile.columns) * sizeof(float));
  }
}

}  // namespace
}  // namespace tinyloop
