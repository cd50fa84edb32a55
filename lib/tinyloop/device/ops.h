// SPDX-License-Identifier: Apache-2.0
// The abstract device: its memory and the dozen operations that the forward pass is made of.
// Implementations: cpu/cpu_ops, cuda/, and a test-only wrapper whose memory the host may not touch
// outside an operation.
//
// The law (see tinyloop(7)): every output element is computed in one fixed order of operations that
// depends on its own row only, never on the number of rows, threads or the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinyloop/device/kv_tile.h"
#include "tinyloop/model/packed_matrix.h"
#include "tinyloop/token.h"

namespace tinyloop {

// An address in device memory. The host computes with it and never reads through it.
struct DevicePtr {
  std::byte* address = nullptr;
  DevicePtr operator+(std::int64_t bytes) const { return {address + bytes}; }
  explicit operator bool() const { return address != nullptr; }
};

// Rows of floats: row r begins at data + r * stride floats.
struct Rows {
  DevicePtr data;
  std::int64_t stride = 0;  // floats
  Rows columns(std::int64_t first) const { return {data + first * 4, stride}; }
};

struct Matrix {  // a packed weight matrix in device memory, layout of packed_matrix.h
  WeightType type = WeightType::f32;
  std::int64_t n = 0, k = 0;
  DevicePtr data, scales;
};

// A run of positions of one sequence over all planes: the tile t of (plane, head) begins at
// base + plane * plane_stride + head * head_stride + (t - first_tile) * tile_bytes.
struct KvSegment {
  DevicePtr base;
  std::int64_t first_tile = 0, tiles = 0;
  std::int64_t plane_stride = 0, head_stride = 0;  // bytes
};

// One sequence's segments, ascending and without overlap.
using KvSegments = std::span<const KvSegment>;

struct KvRow {                // where a row of a pass stands
  std::int32_t sequence = 0;  // index into the `sequences` of the call
  std::int32_t plane = 0;
  std::int64_t position = 0;
};

struct KvCopy {  // of one position's K and V from plane to plane
  std::int32_t sequence = 0;
  std::int32_t from_plane = 0, to_plane = 0;
  std::int64_t position = 0;
};

struct RotateShape {
  std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
  bool interleaved = false;
  float norm_eps = 0.0f;  // for q_norm and k_norm
};

struct AttentionShape {
  std::int32_t heads = 0;
  KvGeometry kv;
  std::int64_t window =
      0;               // 0: all positions up to the own one; W: the last W including the own one
  float scale = 1.0f;  // of the scores
};

struct TopLogits {  // see Ops::top_k
  std::vector<float> values;
  std::vector<TokenId> ids;
  std::vector<std::int32_t> not_finite;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string name() const = 0;        // "cpu (avx2, 2 threads)"
  virtual std::string arithmetic() const = 0;  // "cpu-1": equal names promise equal bits

  // Work that was asked for may wait to begin together with more; it begins now. Where operations
  // run at once there is nothing to do.
  virtual void submit() {}
  // Returns when all work that was asked for is done. Who reads results downloads them and need not
  // wait.
  virtual void wait() {}

  // --- memory
  // Zeroed, aligned to 64 bytes. Throws Error(device) naming the size. Prefer DeviceBuffer.
  virtual DevicePtr allocate(std::size_t bytes) = 0;
  virtual void release(DevicePtr memory, std::size_t bytes) = 0;
  virtual void upload(DevicePtr to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, DevicePtr from,
                        std::size_t bytes) = 0;  // waits for the work before it
  virtual void copy(DevicePtr to, DevicePtr from,
                    std::size_t bytes) = 0;  // device to device, no overlap
  // Bytes that may still be allocated, beside what operations need for themselves; nothing where
  // that is not known.
  virtual std::optional<std::size_t> memory_left() const { return std::nullopt; }
  // Makes mapped, read-only host memory usable as device memory for the life of the mapping (on the
  // CPU: itself).
  virtual DevicePtr attach(std::span<const std::byte> host) = 0;
  virtual void detach(DevicePtr attached, std::size_t bytes) = 0;

  // --- rows
  // to[r][0..width) = from[index[r]][0..width)
  virtual void gather(Rows to, Rows from, std::span<const std::int32_t> index,
                      std::int64_t width) = 0;
  // to[index[r]][0..width) = from[r][0..width); the indexes differ from each other
  virtual void scatter(Rows to, Rows from, std::span<const std::int32_t> index,
                       std::int64_t width) = 0;
  // to[r][0..k) = scale * W[ids[r]][0..k), W packed [vocab][k]; ids are checked by the caller
  virtual void embed(Rows to, const Matrix& table, std::span<const TokenId> ids, float scale) = 0;
  // y[r][0..width) += x[r][0..width)
  virtual void add(Rows y, Rows x, std::int64_t rows, std::int64_t width) = 0;
  // y[r] = fma(b, x[r], a * y[r]), element by element
  virtual void blend(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width) = 0;
  // y[r] = x[r] * (1 / sqrt(mean(x[r]^2) + eps)) * weight, RMS norm (arXiv 1910.07467); y may be x.
  // Squares are summed in 16 lanes (lane = column % 16) by fma in column order, then the lanes by a
  // fixed tree.
  virtual void rms_norm(Rows y, Rows x, DevicePtr weight, std::int64_t rows, std::int64_t width,
                        float eps) = 0;
  // y[r][0..n) = x[r][0..k) * W^T. f32, f16, bf16: a chain of fma over k, starting at 0. q8, q4,
  // q4_1: x is quantised per row and group of 32 (scale = greatest magnitude / 127, q =
  // round-to-nearest-even(x * (127 / greatest))), dot products inside a group are exact integers,
  // groups are added in order: y = fma(float(sum), w_scale * x_scale, y), and in q4_1 then y =
  // fma(float(sum of the q of x), w_minimum * x_scale, y). y must not overlap x.
  virtual void matmul(Rows y, Rows x, const Matrix& w, std::int64_t rows) = 0;
  // out[r][0..width) = silu(gate_up[r][0..width)) * gate_up[r][width..2 width), silu(x) = x / (1 +
  // exp(-x))
  virtual void gated_silu(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width) = 0;

  // The k greatest of each row of logits [rows][vocab], best first, of equals the lowest id first:
  // values and ids [rows][k] and whether each row has a NaN or infinite logit [rows], in host
  // memory. False, and nothing is done, where the device has no such operation for this k: then the
  // logits are to be downloaded.
  virtual bool top_k(Rows /*logits*/, std::int64_t /*rows*/, std::int64_t /*vocab*/,
                     std::int32_t /*k*/, TopLogits& /*best*/) {
    return false;
  }

  // --- attention
  // In place on qkv[r] = q [heads][head_dim] | k [kv_heads][head_dim] | v: adds bias (if given) to
  // q and k, applies the per-head RMS norms (if given), then rotates each pair (a, b) to (a cos - b
  // sin, b cos + a sin), computed as fma(a, cos, -(b sin)) and fma(b, cos, a sin). angles: f32
  // [rows][head_dim/2][2] cos, sin (RoPE, arXiv 2104.09864). bias: [heads*head_dim +
  // kv_heads*head_dim].
  virtual void rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, DevicePtr angles,
                      DevicePtr bias, DevicePtr q_norm, DevicePtr k_norm) = 0;
  // Stores k and v of each row into the tile of its (sequence, plane, position). The tiles exist
  // and no two rows are the same place.
  virtual void append(Rows k, Rows v, std::span<const KvRow> rows,
                      std::span<const KvSegments> sequences, const KvGeometry& geometry) = 0;
  // Copies K and V of a position as they are stored, bit for bit, one copy after another.
  virtual void copy_positions(std::span<const KvCopy> copies, std::span<const KvSegments> sequences,
                              const KvGeometry& geometry) = 0;
  // out[r] [heads][head_dim] = softmax(scale * q K^T) V over the positions the row may see in its
  // sequence and plane; K and V are read back from their tiles in the storage mode, the row's own
  // position included. Scores are a chain of fma over head_dim. Softmax runs in blocks of 256
  // absolute positions (greatest score m, sum l of exp(s - m) in 16 lanes then a fixed tree, o =
  // chain of fma over positions in order), the blocks are folded in order: M' = max(M, m), a =
  // exp(M - M'), c = exp(m - M'), L = L a + l c, O = O a + o c; out = O / L.
  virtual void attention(Rows out, Rows q, std::span<const KvRow> rows,
                         std::span<const KvSegments> sequences, const AttentionShape& shape) = 0;
};

// Owns device memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Ops& ops, std::size_t bytes)
      : ops_(&ops), memory_(ops.allocate(bytes)), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (ops_ != nullptr) ops_->release(memory_, bytes_);
  }

  DevicePtr ptr() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(ops_, other.ops_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }

  Ops* ops_ = nullptr;
  DevicePtr memory_;
  std::size_t bytes_ = 0;
};

}  // namespace tinyloop
