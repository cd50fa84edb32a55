// SPDX-License-Identifier: Apache-2.0
// Tiles: how rows are cut into pieces that fit the registers, and how a tile of results is loaded and stored.
// Private to the kernels.
#pragma once

#include "cpu/f32x16.h"
#include "cpu/kernel_table.h"

namespace tinyloop {
namespace {

// What fits in the registers, by instruction set (measured): kTileRows x kTilePanels accumulators, or kFewRows x 4, so that
// enough chains are in flight to hide the latency of fma.
#if defined(__AVX512F__)
constexpr int kTileRows = 12;  // 24 of 32 registers
constexpr int kTilePanels = 2;
constexpr int kFewRows = 6;
#elif defined(__AVX2__)
constexpr int kTileRows = 6;  // 12 of 16 registers: a panel is two
constexpr int kTilePanels = 1;
constexpr int kFewRows = 1;
#else
constexpr int kTileRows = 4;
constexpr int kTilePanels = 1;
constexpr int kFewRows = 0;
#endif

constexpr std::int64_t kBlockInputs = 256;  // inputs of a block of k

// Heights that have a kernel; others are rounded up and the surplus rows computed for nothing.
TL_INLINE int height_of(int rows) {
  constexpr int kHeights[] = {0, 1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12};
  if (rows >= kTileRows) return kTileRows;
  return kTileRows == 4 && rows == 3 ? 4 : kHeights[rows];
}

TL_INLINE std::int64_t count_tiles(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

struct RowTile {
  std::int64_t row;         // the first one
  std::int64_t packed_row;  // of the packed rows, which include those that round heights up
  int rows;
  int height;
};

// All tiles have kTileRows rows but the last two, which share evenly what is left for them: low tiles are slow.
TL_INLINE RowTile row_tile(std::int64_t rows, std::int64_t tile) {
  const std::int64_t tiles = count_tiles(rows), rest = rows % kTileRows;
  const auto last_two = static_cast<int>(rest > 0 && tiles > 1 ? kTileRows + rest : 0);
  if (last_two == 0 || tile < tiles - 2) {
    const std::int64_t row = tile * kTileRows, left = rows - row;
    const int count = left < kTileRows ? static_cast<int>(left) : kTileRows;
    return {row, row, count, height_of(count)};
  }
  const std::int64_t row = (tiles - 2) * kTileRows;
  const int upper = (last_two + 1) / 2, lower = last_two - upper;
  if (tile == tiles - 2) return {row, row, upper, height_of(upper)};
  return {row + upper, row + height_of(upper), lower, height_of(lower)};
}

// Of all tiles together.
TL_INLINE std::int64_t packed_height(std::int64_t rows) {
  const RowTile last = row_tile(rows, count_tiles(rows) - 1);
  return last.packed_row + last.height;
}

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

// Calls f with the height as a compile-time constant.
template <typename F>
TL_INLINE void with_height(int height, F&& f) {
  switch (height) {
    case 1: return f(Number<1>{});
    case 2: return f(Number<2>{});
#if defined(__AVX2__)
    case 3: return f(Number<3>{});
    case 4: return f(Number<4>{});
#endif
#if defined(__AVX512F__)
    case 6: return f(Number<6>{});
    case 8: return f(Number<8>{});
#endif
    default: return f(Number<kTileRows>{});
  }
}

// Where a tile of results lies and how much of it exists.
struct OutputTile {
  float* y;
  std::int64_t stride;
  int rows;     // real rows
  int columns;  // real columns of the kPanels * 16
};

TL_INLINE OutputTile output_tile(const MatmulTask& task, const RowTile& rows, std::int64_t panel, int panels) {
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
TL_INLINE void store_whole_tile(const F32x16 (&acc)[kRows][kPanels], float* y, std::int64_t stride) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) store(y + r * stride + p * kLanes, acc[r][p]);
  }
}

// The results so far where `resume`, else zeros. Tiles at the edge go through a whole tile of their own.
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
