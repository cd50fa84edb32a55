// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set as a table of pointers; kernels.cpp is compiled once for each
// and fills one table. Single-threaded, no allocation, no checks: who calls them is cpu_ops. No
// inline functions here (weak symbols).
//
// A "tile" is a few rows computed together. Activations are packed tile by tile: x [k][height],
// height being the number of rows of the tile rounded up to one that the instruction set has a
// kernel for (absent rows are zero).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tinyloop {

constexpr int kMostTileRows = 16;                     // no instruction set has higher tiles
constexpr std::int64_t kMatmulScratchFloats = 65536;  // working memory of one matmul call

struct MatmulTask {
  float* y;  // [rows][y_stride], columns 16 * first_panel .. 16 * end_panel - 1 below n are written
  std::int64_t y_stride;   // floats
  const unsigned char* x;  // packed rows
  std::int64_t rows;
  const unsigned char* data;  // packed_matrix.h
  const unsigned char* scales;
  std::int64_t n, k;
  std::int64_t first_panel, end_panel;
  float* scratch;  // [kMatmulScratchFloats], aligned to 64 bytes
};

struct PackTask {
  unsigned char* to;  // all tiles
  const float* x;     // [rows][x_stride]
  std::int64_t x_stride, rows, k;
  std::int64_t first_tile, end_tile;
};

// Packed activations and products of one family of weight types.
struct MatmulKernels {
  int tile_rows;  // there are ceil(rows / tile_rows) tiles
  std::int64_t (*packed_bytes)(std::int64_t rows, std::int64_t k);
  void (*pack)(const PackTask& task);
  void (*multiply)(const MatmulTask& task);
};

// One block of at most 256 positions, at an absolute multiple of 256, for one tile of queries of
// one kv head.
struct AttentionBlock {
  int queries;     // real ones, 1 .. attention_rows
  const float* q;  // [head_dim][height], height = attention_height(queries)
  std::int64_t head_dim;
  std::int64_t value_offset;          // bytes from a tile's start to its V part
  const unsigned char* const* tiles;  // [16]; null where no query sees any position of the tile
  const unsigned char* const*
      next_tiles;  // [16] of the block that comes next, to be prefetched; null where none
  const std::int32_t* first;  // [queries] visible positions first .. end - 1, relative to the block
  const std::int32_t* end;    // first == end: none
  float scale;
  float* scores;    // [kMostTileRows][256] working memory
  float* greatest;  // [kMostTileRows] out: greatest score m
  float* sum;       // [kMostTileRows] out: l
  float* values;    // [queries][padded head_dim] out: o; rows that see nothing are left alone
};

struct AttentionFold {
  int queries;
  std::int64_t padded_head_dim;
  const std::int32_t* first;
  const std::int32_t* end;
  const float* greatest;  // of the block
  const float* sum;
  const float* values;
  float* total_greatest;  // of all blocks so far
  float* total_sum;
  float* total_values;
};

struct RotateTask {
  float* qkv;           // one row
  const float* angles;  // [head_dim / 2][2]
  const float* bias;    // null, or [(heads + kv_heads) * head_dim]
  const float* q_norm;  // null, or [head_dim]
  const float* k_norm;
  std::int32_t heads, kv_heads, head_dim;
  bool interleaved;
  float norm_eps;
};

struct StoreTask {  // k and v of one head at one position into its tile
  unsigned char* tile;
  std::int64_t value_offset;
  const float* k;  // [head_dim]
  const float* v;
  std::int64_t head_dim;
  std::int32_t lane;  // position % 16
};

// Reads `bytes` (a multiple of 4096), one line of each stream after another, and folds them to a
// value that is to be used. Streams are equal parts of the whole, or, where panel_bytes is not 0,
// of blocks of streams * panel_bytes, as the kernels read panels of weights.
struct ReadPattern {
  int streams;
  int panel_bytes;
  int ahead;  // bytes between what is read and what is fetched; 0: nothing is fetched
  float (*read)(const unsigned char* from, std::size_t bytes);
};

// Multiply-adds on registers, in so many independent chains.
struct PeakPattern {
  int chains;
  double operations;  // of one round; a multiply-add is two
  float (*run)(std::int64_t rounds);
};

struct KernelTable {
  MatmulKernels floats[3];     // f32, f16, bf16: by WeightType
  MatmulKernels quantised[3];  // q8, q4, q4_1: by WeightType

  int attention_rows;
  int (*attention_height)(int queries);
  void (*attend[4])(const AttentionBlock& block);  // by KvMode
  void (*fold)(const AttentionFold& fold);
  void (*store[4])(const StoreTask& task);  // by KvMode

  void (*add)(float* y, const float* x, std::int64_t width);
  void (*blend)(float* y, float a, const float* x, float b, std::int64_t width);
  void (*rms_norm)(float* y, const float* x, const float* weight, std::int64_t width, float eps);
  void (*gated_silu)(float* out, const float* gate_up, std::int64_t width);
  void (*rotate)(const RotateTask& task);

  // Ways to reach the machine's limits, for measurements; which is the fastest depends on the CPU.
  const ReadPattern* reads;
  int read_count;
  const PeakPattern* float_peaks;
  int float_peak_count;
  const PeakPattern* int8_peaks;
  int int8_peak_count;
};

}  // namespace tinyloop
