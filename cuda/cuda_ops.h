// SPDX-License-Identifier: Apache-2.0
// The CUDA device: memory on the GPU, operations as kernels and, for many rows, cuBLAS. Operations
// are recorded and start at submit(), at the latest when something is downloaded. One object is
// used by one thread at a time.
//
// Few rows (up to kOwnRows) have one order of sums, whatever their number; many rows are rounded to
// the weights' format and multiplied by cuBLAS, which promises the same bits for the same shape
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device_memory.h"
#include "kernels.h"
#include "runtime.h"
#include "tinyloop/device/ops.h"
#include "transfers.h"
#include "work_queue.h"

namespace tinyloop {

// Up to here a product is left to the own kernel, which reads the weights once for kFewRows rows.
// By the count of bytes cuBLAS is no better before: the weights are read, written unpacked, and
// read again for it. And no batch or draft tree of up to so many rows depends on its company.
inline constexpr std::int64_t kOwnRows = 2 * cuda::kFewRows;

class CudaOps final : public Ops {
 public:
  // memory_limit: the most bytes of device memory to hold, 0: what there is.
  CudaOps(std::unique_ptr<cuda::Runtime> runtime, const cuda::Kernels& kernels,
          std::size_t memory_limit);
  ~CudaOps() override;
  CudaOps(const CudaOps&) = delete;
  CudaOps& operator=(const CudaOps&) = delete;

  std::string name() const override { return "cuda (" + runtime_->device() + ")"; }
  std::string arithmetic() const override { return "cuda-1"; }
  void submit() override;
  void wait() override;
  std::optional<std::size_t> memory_left() const override;

  DevicePtr allocate(std::size_t bytes) override;
  void release(DevicePtr memory, std::size_t bytes) override;
  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;
  // A copy on the device, one for all who attach the same memory.
  DevicePtr attach(std::span<const std::byte> host) override;
  void detach(DevicePtr attached, std::size_t bytes) override;

  void gather(Rows to, Rows from, std::span<const std::int32_t> index, std::int64_t width) override;
  void scatter(Rows to, Rows from, std::span<const std::int32_t> index,
               std::int64_t width) override;
  void embed(Rows to, const Matrix& table, std::span<const TokenId> ids, float scale) override;
  void add(Rows y, Rows x, std::int64_t rows, std::int64_t width) override;
  void blend(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width) override;
  void rms_norm(Rows y, Rows x, DevicePtr weight, std::int64_t rows, std::int64_t width,
                float eps) override;
  void matmul(Rows y, Rows x, const Matrix& w, std::int64_t rows) override;
  void gated_silu(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width) override;
  bool top_k(Rows logits, std::int64_t rows, std::int64_t vocab, std::int32_t k,
             TopLogits& best) override;

  void rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, DevicePtr angles,
              DevicePtr bias, DevicePtr q_norm, DevicePtr k_norm) override;
  void append(Rows k, Rows v, std::span<const KvRow> rows, std::span<const KvSegments> sequences,
              const KvGeometry& geometry) override;
  void copy_positions(std::span<const KvCopy> copies, std::span<const KvSegments> sequences,
                      const KvGeometry& geometry) override;
  void attention(Rows out, Rows q, std::span<const KvRow> rows,
                 std::span<const KvSegments> sequences, const AttentionShape& shape) override;

  // For measurements and tests.
  cuda::Runtime& runtime() { return *runtime_; }
  const cuda::Kernels& kernels() const { return kernels_; }
  std::size_t held_bytes() const { return memory_.held_bytes(); }
  std::int64_t graph_launches() const { return queue_.graph_launches(); }

 private:
  // Device memory that grows and is used by steps only, in the order of the stream.
  struct Scratch {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  struct AttachedCopy {
    DevicePtr memory;
    std::int64_t users = 0;
  };
  std::byte* scratch(Scratch& scratch, std::size_t bytes);
  cuda::Workspace workspace(std::size_t bytes);
  template <typename T>
  const T* table(std::span<const T> values);
  cuda::KvTables segment_tables(std::span<const KvSegments> sequences);
  void matmul_many(Rows y, Rows x, const Matrix& w, std::int64_t rows);

  std::unique_ptr<cuda::Runtime> runtime_;
  const cuda::Kernels& kernels_;
  cuda::DeviceMemory memory_;
  cuda::Transfers transfers_;
  cuda::WorkQueue queue_;
  Scratch workspace_, counters_, plain_weights_, plain_rows_, best_;
  std::map<std::pair<const std::byte*, std::size_t>, AttachedCopy> attached_;
  std::vector<KvSegment> all_segments_;
  std::vector<cuda::KvSequence> all_sequences_;
};

// A CudaOps on this machine's first device. Throws Error(device) with the reason if there is none.
std::unique_ptr<CudaOps> open_cuda_ops(std::size_t memory_limit);

}  // namespace tinyloop
