// SPDX-License-Identifier: Apache-2.0
// Products of packed f32, f16 and bf16 weights with rows of floats. Private to kernels.cpp.
// Every output is one chain of fma over k starting at 0, whatever the number of rows or the
// blocking: between two blocks of k the chain rests in y.
#pragma once

#include "tinyloop/cpu/f32x16.h"
#include "tinyloop/cpu/kernel_table.h"
#include "tinyloop/cpu/tiles.h"

namespace tinyloop {
namespace {

// Distances of software prefetch (measured), in inputs. Packed rows come from L2 and need a little;
// weights come from memory, where the hardware's own prefetch is too timid, most of all for streams
// that several rows slow down.
constexpr std::int64_t kRowsAhead = 32;
template <typename Stored, int kRows>
constexpr std::int64_t kWeightsAhead = (kRows == 1 ? 2048 : 4096) / Stored::kBytes;

constexpr std::int64_t kBlockInputs = 256;  // inputs of a block of k

using FloatTiles = RowTiles<kTileRows>;

enum class Fetch { nothing, rows, weights };

// The microkernel, for weights and for attention: acc[r][p] = chain of fma(x[i][r], w[p][i], acc)
// for i in 0 .. count-1.
template <typename Stored, int kRows, int kPanels, int kStepOfI, int kStepOfRow, Fetch kFetch>
TL_INLINE void multiply_tile(F32x16 (&acc)[kRows][kPanels], const float* x,
                             const Byte* const (&w)[kPanels], std::int64_t count,
                             std::ptrdiff_t weights_ahead = 0) {
  for (std::int64_t i = 0; i < count; ++i) {
    F32x16 weights[kPanels];
    if constexpr (kFetch == Fetch::rows) __builtin_prefetch(x + (i + kRowsAhead) * kStepOfI);
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kFetch == Fetch::weights) {
        __builtin_prefetch(w[p] + i * Stored::kBytes + weights_ahead);
      }
      weights[p] = Stored::load_vector(w[p] + i * Stored::kBytes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 value = broadcast(x[i * kStepOfI + r * kStepOfRow]);
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) acc[r][p] = fma(value, weights[p], acc[r][p]);
    }
  }
}

// Part of a matrix product: the inputs first .. first + count - 1 of some panels, for one tile of
// rows after another.
struct FloatBlock {
  const Byte* data;     // of the first panel at the first input
  std::int64_t stride;  // bytes from one panel to the next
  std::int64_t panel;
  std::int64_t first, count;
};

template <typename Stored, int kRows, int kPanels, Fetch kFetch>
void multiply_block_tile(const MatmulTask& task, const FloatBlock& block, const RowTile& rows) {
  const auto* x = reinterpret_cast<const float*>(task.x) +
                  block.first * FloatTiles{task.rows}.packed_height() +
                  rows.packed_row * block.count;
  const OutputTile tile = output_tile(task, rows, block.panel, kPanels);
  F32x16 acc[kRows][kPanels];
  start_tile(acc, tile, block.first > 0);
  // The last part of a panel fetches the first one of the panels that come next.
  std::ptrdiff_t ahead = kWeightsAhead<Stored, kRows> * Stored::kBytes;
  const std::int64_t turn = task.k - block.first - kWeightsAhead<Stored, kRows>;
  for (std::int64_t i = 0; i < block.count;) {
    const bool before = kFetch == Fetch::weights && i < turn && turn < block.count;
    const std::int64_t end = before ? turn : block.count;
    if (i >= turn) ahead += (kPanels - 1) * block.stride;
    const Byte* w[kPanels];
    for (int p = 0; p < kPanels; ++p) w[p] = block.data + p * block.stride + i * Stored::kBytes;
    multiply_tile<Stored, kRows, kPanels, kRows, 1, kFetch>(acc, x + i * kRows, w, end - i, ahead);
    i = end;
  }
  store_tile(acc, tile);
}

// Few rows: bound by reading the weights, which are used where they are, once. With several tiles
// of rows a part of a panel is used by all before the next part, while it is in L1.
template <typename Stored, int kPanels>
TL_INLINE void multiply_panels(const MatmulTask& task, std::int64_t panel) {
  const FloatTiles tiles = {task.rows};
  const std::int64_t step = tiles.count() == 1 ? task.k : kBlockInputs;
  for (std::int64_t first = 0; first < task.k; first += step) {
    const std::int64_t count = task.k - first < step ? task.k - first : step;
    const FloatBlock block = {task.data + (panel * task.k + first) * Stored::kBytes,
                              task.k * Stored::kBytes, panel, first, count};
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      const RowTile rows = tiles.at(t);
      with_height<kTileRows>(rows.height, [&](auto height) {
        constexpr int kRows = decltype(height)::value;
        if constexpr (kPanels <= kTilePanels || kRows <= kFewRows) {
          multiply_block_tile<Stored, kRows, kPanels, Fetch::weights>(task, block, rows);
        }
      });
    }
  }
}

template <typename Stored>
void multiply_few_rows(const MatmulTask& task) {
  std::int64_t panel = task.first_panel;
  if (task.rows <= kFewRows) {
    for (; panel + kFewRowsPanels <= task.end_panel; panel += kFewRowsPanels) {
      multiply_panels<Stored, kFewRowsPanels>(task, panel);
    }
  } else {
    for (; panel + kTilePanels <= task.end_panel; panel += kTilePanels) {
      multiply_panels<Stored, kTilePanels>(task, panel);
    }
  }
  for (; panel < task.end_panel; ++panel) multiply_panels<Stored, 1>(task, panel);
}

// Many rows: blocks of kBlockPanels panels x kBlockInputs inputs are widened to floats once and
// used for all tiles of rows (Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008): two panels of the block stay in L1 while the packed rows stream from L2.
constexpr std::int64_t kBlockPanels = 8;
static_assert(kBlockPanels * kBlockInputs * kLanes <= kMatmulScratchFloats);

// Brings the stored weights of the next block towards the cache, a little with every tile, because
// widening them would wait for memory while nothing else is done.
class NextBlock {
 public:
  NextBlock(const Byte* from, std::int64_t panels, std::int64_t stride, std::int64_t panel_bytes,
            std::int64_t calls)
      : from_(from),
        stride_(stride),
        lines_((panel_bytes + kLine - 1) / kLine),
        left_(panels * lines_),
        each_(left_ / calls + 1) {}
  TL_INLINE void fetch_some() {
    const std::int64_t count = left_ < each_ ? left_ : each_;
    for (std::int64_t i = 0; i < count; ++i) {
      __builtin_prefetch(from_ + line_ * kLine, 0, 2);
      if (++line_ == lines_) {
        line_ = 0;
        from_ += stride_;
      }
    }
    left_ -= count;
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const Byte* from_;
  std::int64_t stride_, lines_, left_, each_, line_ = 0;
};

// The block after (panel, first): further along k, or the start of the next panels; empty at the
// end.
template <typename Stored>
TL_INLINE NextBlock next_block(const MatmulTask& task, std::int64_t panel, std::int64_t first,
                               std::int64_t calls) {
  first += kBlockInputs;
  if (first >= task.k) {
    first = 0;
    panel += kBlockPanels;
  }
  const std::int64_t left = task.end_panel - panel;
  const std::int64_t panels = left < 0 ? 0 : left < kBlockPanels ? left : kBlockPanels;
  const std::int64_t count = task.k - first < kBlockInputs ? task.k - first : kBlockInputs;
  return {task.data + (panel * task.k + first) * Stored::kBytes, panels, task.k * Stored::kBytes,
          count * Stored::kBytes, calls};
}

template <typename Stored>
TL_INLINE FloatBlock widen_block(const MatmulTask& task, std::int64_t panel, std::int64_t panels,
                                 std::int64_t first) {
  const std::int64_t count = task.k - first < kBlockInputs ? task.k - first : kBlockInputs;
  const Byte* from = task.data + (panel * task.k + first) * Stored::kBytes;
  if constexpr (Stored::kBytes == StoredF32::kBytes) {  // floats are used where they are
    return {from, task.k * Stored::kBytes, panel, first, count};
  }
  for (std::int64_t p = 0; p < panels; ++p) {
    const Byte* w = from + p * task.k * Stored::kBytes;
    float* to = task.scratch + p * kBlockInputs * kLanes;
    for (std::int64_t i = 0; i < count; ++i) {
      store(to + i * kLanes, Stored::load_vector(w + i * Stored::kBytes));
    }
  }
  return {reinterpret_cast<const Byte*>(task.scratch), kBlockInputs * StoredF32::kBytes, panel,
          first, count};
}

template <typename Stored>
void multiply_many_rows(const MatmulTask& task) {
  const FloatTiles tiles = {task.rows};
  for (std::int64_t panel = task.first_panel; panel < task.end_panel; panel += kBlockPanels) {
    const std::int64_t left = task.end_panel - panel;
    const std::int64_t panels = left < kBlockPanels ? left : kBlockPanels;
    const std::int64_t calls = tiles.count() * ((panels + kTilePanels - 1) / kTilePanels);
    for (std::int64_t first = 0; first < task.k; first += kBlockInputs) {
      FloatBlock block = widen_block<Stored>(task, panel, panels, first);
      NextBlock next = next_block<Stored>(task, panel, first, calls);
      while (block.panel < panel + panels) {
        const bool several = block.panel + kTilePanels <= panel + panels;
        for (std::int64_t t = 0; t < tiles.count(); ++t) {
          const RowTile rows = tiles.at(t);
          next.fetch_some();
          with_height<kTileRows>(rows.height, [&](auto height) {
            constexpr int kRows = decltype(height)::value;
            if (several) {
              multiply_block_tile<StoredF32, kRows, kTilePanels, Fetch::rows>(task, block, rows);
            } else {
              multiply_block_tile<StoredF32, kRows, 1, Fetch::rows>(task, block, rows);
            }
          });
        }
        block.panel += several ? kTilePanels : 1;
        block.data += (several ? kTilePanels : 1) * block.stride;
      }
    }
  }
}

// From here on widening once is cheaper than converting for every tile.
constexpr std::int64_t kFewTiles = 3;

template <typename Stored>
void multiply_floats(const MatmulTask& task) {
  if (FloatTiles{task.rows}.count() <= kFewTiles) {
    multiply_few_rows<Stored>(task);
  } else {
    multiply_many_rows<Stored>(task);
  }
}

std::int64_t packed_float_bytes(std::int64_t rows, std::int64_t k) {
  return FloatTiles{rows}.packed_height() * k * 4;
}

// x[rows][k] to [block of k][tile][k of the block][height]: in the order of use. Surplus rows are
// copies of the last one; what they give is not stored.
void pack_floats(const PackTask& task) {
  const FloatTiles tiles = {task.rows};
  const std::int64_t step = tiles.count() == 1 ? task.k : kBlockInputs;
  for (std::int64_t t = task.first_tile; t < task.end_tile; ++t) {
    const RowTile tile = tiles.at(t);
    const float* from = task.x + tile.row * task.x_stride;
    for (std::int64_t first = 0; first < task.k; first += step) {
      const std::int64_t count = task.k - first < step ? task.k - first : step;
      float* to = reinterpret_cast<float*>(task.to) + first * tiles.packed_height() +
                  tile.packed_row * count;
      with_height<kTileRows>(tile.height, [&](auto height) {
        constexpr int kRows = decltype(height)::value;
        const float* x[kRows];
        for (int r = 0; r < kRows; ++r) {
          x[r] = from + (r < tile.rows ? r : tile.rows - 1) * task.x_stride + first;
        }
        for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) to[i * kRows + r] = x[r][i];
        }
      });
    }
  }
}

}  // namespace
}  // namespace tinyloop
