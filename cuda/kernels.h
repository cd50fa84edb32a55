// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA backend as a table of host functions, one for each operation of
// device/ops.h. Not memory, not streams, not cuBLAS: those are cuda_ops' business.
//
// Every function enqueues its work on the stream and returns; it allocates nothing, waits for
// nothing, makes no runtime call except launches, and so may be captured in a graph. Launch errors
// are left to the caller, who asks the runtime after the call. All pointers are device pointers,
// except where a comment says host. The caller owns all memory: operands, tables, workspace.
//
// Rows, Matrix, KvSegment, KvRow, KvCopy and the shapes mean what they mean in device/ops.h. The
// same sources are compiled twice: by nvcc for devices, and as host C++ for tests (launch.h), where
// device pointers are host pointers and every function has done its work when it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tinyloop/device/ops.h"

struct CUstream_st;

namespace tinyloop::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Working memory. Calls on one stream may share one: nothing in `data` outlives a call.
struct Workspace {
  std::byte* data = nullptr;         // aligned to 256 bytes, at least what the call's *_bytes says
  std::int32_t* counters = nullptr;  // [kCounters]: zero before the first call; calls leave it zero
};
inline constexpr std::int64_t kCounters = 16384;

// The tables that `KvRow::sequence` points into, on the device.
struct KvSequence {
  std::int32_t first_segment = 0, segments = 0;  // of KvTables::segments, ascending in first_tile
};
struct KvTables {
  const KvSegment* segments = nullptr;
  const KvSequence* sequences = nullptr;
};

// The formats that cuBLAS takes.
enum class PlainType { f32, f16, bf16 };

// A few queries of one run of rows that share sequence and plane; made by plan_attention.
struct AttentionTile {
  std::int32_t row = 0;  // the run's first row
  std::int32_t first_query =
      0;  // of the run; query i is row + i / group, head i % group of the kv head
  std::int32_t queries = 0;      // 1 .. kAttentionQueries
  std::int32_t first_block = 0;  // blocks of 256 positions that some query sees
  std::int32_t blocks = 0;
  std::int32_t first_unit = 0;  // blocks of the tiles before
};
inline constexpr int kAttentionQueries = 16;
inline constexpr int kMostHeadDim = 256;

struct AttentionPlan {
  std::vector<AttentionTile> tiles;  // to be uploaded by the caller
  std::int64_t units = 0;            // blocks of all tiles
  std::int32_t most_queries = 0;     // of a tile
  bool split = false;  // blocks are shared out and folded afterwards, to the same bits
  std::size_t workspace_bytes = 0;
};

// Of a plan: a call that needs more to be split is not. Enough for 16 queries of each of 16 heads
// of 128 over 128k positions.
inline constexpr std::size_t kMostPartialBytes = std::size_t{96} << 20;

// On the host. Throws Error(usage) for heads beyond kMostHeadDim. Rows that share sequence and
// plane should be neighbours, for speed; any order is right.
AttentionPlan plan_attention(std::span<const KvRow> rows, const AttentionShape& shape);

inline constexpr std::int64_t kFewRows = 16;  // up to here own kernels beat conversion and cuBLAS
inline constexpr int kMostTopK = 1024;

std::size_t matmul_workspace_bytes(std::int64_t rows, WeightType type, std::int64_t n,
                                   std::int64_t k);
std::size_t top_k_workspace_bytes(std::int64_t rows, std::int64_t vocab, int k);

struct Kernels {
  // index: [rows] i32 on the device
  void (*gather)(Rows to, Rows from, const std::int32_t* index, std::int64_t rows,
                 std::int64_t width, Stream stream);
  void (*scatter)(Rows to, Rows from, const std::int32_t* index, std::int64_t rows,
                  std::int64_t width, Stream stream);
  // ids: [rows] on the device
  void (*embed)(Rows to, const Matrix& table, const TokenId* ids, std::int64_t rows, float scale,
                Stream stream);
  void (*add)(Rows y, Rows x, std::int64_t rows, std::int64_t width, Stream stream);
  void (*blend)(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width,
                Stream stream);
  // weight: [width]; y may be x
  void (*rms_norm)(Rows y, Rows x, const float* weight, std::int64_t rows, std::int64_t width,
                   float eps, Stream stream);
  void (*gated_silu)(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width, Stream stream);

  // Any number of rows; made for kFewRows and less. A row's bits depend on the row and on w only,
  // not on how many rows there are. Workspace: matmul_workspace_bytes.
  void (*matmul)(Rows y, Rows x, const Matrix& w, std::int64_t rows, Workspace workspace,
                 Stream stream);
  // For cuBLAS: to[r][0..k) = W[first + r][0..k), dense row-major, r < rows; first + rows <= w.n.
  // Values beyond f16's range become its greatest.
  void (*unpack)(void* to, PlainType type, const Matrix& w, std::int64_t first, std::int64_t rows,
                 Stream stream);
  // For cuBLAS: to[r][0..width) = x[r][0..width), dense; as above beyond f16's range (NaN stays
  // NaN).
  void (*convert)(void* to, PlainType type, Rows x, std::int64_t rows, std::int64_t width,
                  Stream stream);

  // angles: [rows][head_dim / 2][2]; bias, q_norm, k_norm may be null
  void (*rotate)(Rows qkv, std::int64_t rows, const RotateShape& shape, const float* angles,
                 const float* bias, const float* q_norm, const float* k_norm, Stream stream);
  // rows: [count] on the device
  void (*append)(Rows k, Rows v, const KvRow* rows, std::int64_t count, KvTables tables,
                 const KvGeometry& geometry, Stream stream);
  // copies: [count] on the device; sequences: how many the tables have
  void (*copy_positions)(const KvCopy* copies, std::int64_t count, KvTables tables,
                         std::int64_t sequences, const KvGeometry& geometry, Stream stream);
  // plan: on the host, of the same rows; tiles: plan.tiles on the device. A row's bits do not
  // depend on its company or on plan.split: a prompt in chunks gives the bits of the prompt in one
  // piece.
  void (*attention)(Rows out, Rows q, const KvRow* rows, KvTables tables,
                    const AttentionShape& shape, const AttentionPlan& plan,
                    const AttentionTile* tiles, Workspace workspace, Stream stream);

  // The k greatest of each row of logits, the greatest first, of equals the lowest id first.
  // values: [rows][k], ids: [rows][k], not_finite: [rows] 1 where any logit of the row is NaN or
  // infinite (values and ids are then of no use), else 0. 1 <= k <= min(vocab, kMostTopK).
  void (*top_k)(float* values, TokenId* ids, std::int32_t* not_finite, Rows logits,
                std::int64_t rows, std::int64_t vocab, int k, Workspace workspace, Stream stream);
};

const Kernels& device_kernels();    // compiled by nvcc; in the library where CUDA is built in
const Kernels& emulated_kernels();  // the same sources as host C++; in tests only

}  // namespace tinyloop::cuda
