// SPDX-License-Identifier: Apache-2.0
// The CPU device: device memory is host memory, operations are kernels spread over worker threads.
// One object is used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/cpu/aligned_memory.h"
#include "tinyloop/cpu/kernel_table.h"
#include "tinyloop/cpu/select_kernels.h"
#include "tinyloop/cpu/worker_threads.h"
#include "tinyloop/device/ops.h"
#include "tinyloop/device/query_tiles.h"

namespace tinyloop {

class CpuOps final : public Ops {
 public:
  // isa and threads as in BackendOptions.
  CpuOps(std::string_view isa, int threads);

  std::string name() const override;
  std::string arithmetic() const override { return "cpu-1"; }

  DevicePtr allocate(std::size_t bytes) override;
  void release(DevicePtr memory, std::size_t bytes) override;
  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;
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

  void rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, DevicePtr angles,
              DevicePtr bias, DevicePtr q_norm, DevicePtr k_norm) override;
  void append(Rows k, Rows v, std::span<const KvRow> rows, std::span<const KvSegments> sequences,
              const KvGeometry& geometry) override;
  void copy_positions(std::span<const KvCopy> copies, std::span<const KvSegments> sequences,
                      const KvGeometry& geometry) override;
  void attention(Rows out, Rows q, std::span<const KvRow> rows,
                 std::span<const KvSegments> sequences, const AttentionShape& shape) override;

  // For measurements of the machine's limits with the same kernels and threads.
  const KernelTable& kernels() const { return *choice_.kernels; }
  WorkerThreads& workers() { return workers_; }

 private:
  // Calls work(worker, range) for shares of `items`, on the caller alone where `floats` are too few
  // to be worth a fork.
  template <typename Work>
  void share(std::int64_t items, std::int64_t floats, const Work& work);

  KernelChoice choice_;
  WorkerThreads workers_;
  WorkingMemory packed_;                      // activations of a matmul
  std::vector<WorkingMemory> worker_memory_;  // one a worker
  std::vector<QueryTile> query_tiles_;        // of an attention, kept to save the allocation
};

// Work below this many floats is done before other threads would have woken up.
inline constexpr std::int64_t kForkFloats = 32768;

template <typename Work>
void CpuOps::share(std::int64_t items, std::int64_t floats, const Work& work) {
  if (floats < kForkFloats || items < 2 || workers_.count() == 1) {
    work(0, Range{0, items});
    return;
  }
  workers_.run([&](int worker) {
    const Range range = WorkerThreads::share(items, workers_.count(), worker);
    if (range.first < range.end) work(worker, range);
  });
}

}  // namespace tinyloop
