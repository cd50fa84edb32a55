// SPDX-License-Identifier: Apache-2.0
// Products of packed f32, f16 and bf16 weights with rows of floats. Private to kernels.cpp.
// Every output is one chain of fma over k starting at 0, whatever the number of rows or the
// blocking: between two blocks of k the chain rests in y.
#pragma once

#include "cpu/f32x16.h"
#include "cpu/kernel_table.h"

namespace tinyloop {
namespace {

// The height of a tile and the panels taken together, by instruction set (measured): what fits in
// the registers.
#if defined(__AVX512F__)
constexpr int kTileRows = 12;  // 12 rows x 2 panels of 32 registers
constexpr int kTilePanels = 2;
constexpr int panels_at_once(int rows) { return rows <= 6 ? 4 : 2; }
#elif defined(__AVX2__)
constexpr int kTileRows = 6;  // 6 rows x 1 panel x 2 halves of 16 registers
constexpr int kTilePanels = 1;
constexpr int panels_at_once(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
#else
constexpr int kTileRows = 4;
constexpr int kTilePanels = 1;
constexpr int panels_at_once(int) { return 1; }
#endif

// Heights that have a kernel; others are rounded up and the surplus rows computed for nothing.
TL_INLINE int height_of(std::int64_t rows) {
  const int most = rows < kTileRows ? static_cast<int>(rows) : kTileRows;
  return most <= 4   ? (most == 3 && kTileRows == 4 ? 4 : most)
         : most <= 6 ? 6
         : most <= 8 ? 8
                     : kTileRows;
}

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

// Calls f with the height as a compile-time constant.
template <typename F>
TL_INLINE void with_height(int height, F&& f) {
  switch (height) {
    case 1:
      return f(Number<1>{});
    case 2:
      return f(Number<2>{});
    case 3:
      return f(Number<3>{});
    case 4:
      return f(Number<4>{});
    case 6:
      return f(Number<6>{});
#if defined(__AVX512F__)
    case 8:
      return f(Number<8>{});
#endif
    default:
      return f(Number<kTileRows>{});
  }
}

// The microkernel, for weights and for attention: acc[r][p] = chain of fma(x[i][r], w[p][i], acc)
// for i in 0 .. count-1.
template <typename Stored, int kRows, int kPanels, int kStepOfI, int kStepOfRow>
TL_INLINE void multiply_tile(F32x16 (&acc)[kRows][kPanels], const float* x,
                             const Byte* const (&w)[kPanels], std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (kRows == kTileRows && kStepOfRow == 1) __builtin_prefetch(x + (i + 32) * kStepOfI);
    F32x16 weights[kPanels];
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) weights[p] = Stored::load_vector(w[p] + i * Stored::kBytes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 value = broadcast(x[i * kStepOfI + r * kStepOfRow]);
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) acc[r][p] = fma(value, weights[p], acc[r][p]);
    }
  }
}

// Where a tile of results lies and how much of it exists.
struct OutputTile {
  float* y;
  std::int64_t stride;
  int rows;     // real rows
  int columns;  // real columns of the kPanels * 16
};

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

// Tiles at the edge of y go through a whole tile of their own.
template <int kRows, int kPanels>
TL_INLINE void load_tile(F32x16 (&acc)[kRows][kPanels], const OutputTile& tile) {
  if (tile.rows == kRows && tile.columns == kPanels * kLanes) {
    load_whole_tile(acc, tile.y, tile.stride);
    return;
  }
  alignas(64) float whole[kRows * kPanels * kLanes] = {};
  for (int r = 0; r < tile.rows; ++r) {
    __builtin_memcpy(whole + r * kPanels * kLanes, tile.y + r * tile.stride,
                     static_cast<std::size_t>(tile.columns) * sizeof(float));
  }
  load_whole_tile(acc, whole, kPanels * kLanes);
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

// One tile of rows with the panels first_panel .. + kPanels - 1 over all of k, straight from the
// stored weights.
template <typename Stored, int kRows, int kPanels>
void stream_tile(const MatmulTask& task, std::int64_t panel) {
  const Byte* w[kPanels];
  for (int p = 0; p < kPanels; ++p) w[p] = task.data + (panel + p) * task.k * Stored::kBytes;
  F32x16 acc[kRows][kPanels];
  const std::int64_t columns = task.n - panel * kLanes;
  const OutputTile tile = {
      task.y + panel * kLanes, task.y_stride, static_cast<int>(task.rows),
      static_cast<int>(columns < kPanels * kLanes ? columns : kPanels * kLanes)};
  clear_tile(acc);
  multiply_tile<Stored, kRows, kPanels, kRows, 1>(acc, reinterpret_cast<const float*>(task.x), w,
                                                  task.k);
  store_tile(acc, tile);
}

// At most one tile of rows: the weights are read once and bound by memory.
template <typename Stored>
void multiply_few_rows(const MatmulTask& task) {
  with_height(height_of(task.rows), [&](auto height) {
    constexpr int kRows = decltype(height)::value;
    constexpr int kPanels = panels_at_once(kRows);
    std::int64_t panel = task.first_panel;
    for (; panel + kPanels <= task.end_panel; panel += kPanels) {
      stream_tile<Stored, kRows, kPanels>(task, panel);
    }
    for (; panel < task.end_panel; ++panel) stream_tile<Stored, kRows, 1>(task, panel);
  });
}

// Many rows: blocks of kBlockPanels panels x kBlockInputs inputs are widened to floats once and
// used for all tiles of rows (Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008): the widened block stays in L2, a tile of x in L1, the tile of y in
// registers.
constexpr std::int64_t kBlockPanels = 8;
constexpr std::int64_t kBlockInputs = 256;
static_assert(kBlockPanels * kBlockInputs * kLanes <= kMatmulScratchFloats);

template <typename Stored>
TL_INLINE void widen_block(float* to, const MatmulTask& task, std::int64_t panel,
                           std::int64_t panels, std::int64_t first, std::int64_t count) {
  for (std::int64_t p = 0; p < panels; ++p) {
    const Byte* from = task.data + ((panel + p) * task.k + first) * Stored::kBytes;
    for (std::int64_t i = 0; i < count; ++i) {
      store(to + (p * kBlockInputs + i) * kLanes, Stored::load_vector(from + i * Stored::kBytes));
    }
  }
}

template <int kRows, int kPanels>
void block_tile(const OutputTile& tile, const float* x, const float* block, std::int64_t count,
                bool resume) {
  const Byte* w[kPanels];
  for (int p = 0; p < kPanels; ++p)
    w[p] = reinterpret_cast<const Byte*>(block + p * kBlockInputs * kLanes);
  F32x16 acc[kRows][kPanels];
  if (resume) {
    load_tile(acc, tile);
  } else {
    clear_tile(acc);
  }
  multiply_tile<StoredF32, kRows, kPanels, kRows, 1>(acc, x, w, count);
  store_tile(acc, tile);
}

template <typename Stored>
void multiply_many_rows(const MatmulTask& task) {
  const auto* x = reinterpret_cast<const float*>(task.x);
  for (std::int64_t panel = task.first_panel; panel < task.end_panel; panel += kBlockPanels) {
    const std::int64_t left = task.end_panel - panel;
    const std::int64_t panels = left < kBlockPanels ? left : kBlockPanels;
    for (std::int64_t first = 0; first < task.k; first += kBlockInputs) {
      const std::int64_t count = task.k - first < kBlockInputs ? task.k - first : kBlockInputs;
      widen_block<Stored>(task.scratch, task, panel, panels, first, count);
      for (std::int64_t p = 0; p < panels; p += kTilePanels) {
        const bool one = panels - p < kTilePanels;
        const int most = (one ? 1 : kTilePanels) * kLanes;
        const std::int64_t columns = task.n - (panel + p) * kLanes;
        const float* block = task.scratch + p * kBlockInputs * kLanes;
        for (std::int64_t row = 0; row < task.rows; row += kTileRows) {
          const std::int64_t rows = task.rows - row;
          with_height(height_of(rows), [&](auto height) {
            constexpr int kRows = decltype(height)::value;
            const OutputTile tile = {task.y + row * task.y_stride + (panel + p) * kLanes,
                                     task.y_stride, static_cast<int>(rows < kRows ? rows : kRows),
                                     static_cast<int>(columns < most ? columns : most)};
            const float* x_tile = x + row * task.k + first * kRows;
            if (one) {
              block_tile<kRows, 1>(tile, x_tile, block, count, first > 0);
            } else {
              block_tile<kRows, kTilePanels>(tile, x_tile, block, count, first > 0);
            }
          });
        }
      }
    }
  }
}

template <typename Stored>
void multiply_floats(const MatmulTask& task) {
  if (task.rows <= kTileRows) {
    multiply_few_rows<Stored>(task);
  } else {
    multiply_many_rows<Stored>(task);
  }
}

std::int64_t float_tile_bytes(std::int64_t k) { return kTileRows * k * 4; }

// x[rows][k] to tiles [k][height].
void pack_floats(const PackTask& task) {
  for (std::int64_t tile = task.first_tile; tile < task.end_tile; ++tile) {
    const std::int64_t row = tile * kTileRows;
    const std::int64_t left = task.rows - row;
    const int height = height_of(left);
    const int rows = static_cast<int>(left < height ? left : height);
    const float* from = task.x + row * task.x_stride;
    float* to = reinterpret_cast<float*>(task.to) + row * task.k;
    for (std::int64_t i = 0; i < task.k; ++i) {
      for (int r = 0; r < rows; ++r) to[i * height + r] = from[r * task.x_stride + i];
      for (int r = rows; r < height; ++r) to[i * height + r] = 0.0f;
    }
  }
}

}  // namespace
}  // namespace tinyloop
