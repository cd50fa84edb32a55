// SPDX-License-Identifier: Apache-2.0
// A device for tests whose memory the host may not touch outside an operation: it crashes, as it
// would be wrong on a GPU. Computes with the CPU operations, so results are equal to theirs bit for
// bit; not fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "tinyloop/backend.h"
#include "tinyloop/device/ops.h"

namespace tinyloop {

class GuardedOps final : public Ops {
 public:
  // arena_bytes: address space for all device memory; pages cost nothing before they are used.
  explicit GuardedOps(int threads = 1, const std::string& isa = "",
                      std::size_t arena_bytes = std::size_t{1} << 32);
  ~GuardedOps() override;
  GuardedOps(const GuardedOps&) = delete;
  GuardedOps& operator=(const GuardedOps&) = delete;

  std::string name() const override { return "guarded " + cpu_->name(); }
  std::string arithmetic() const override { return cpu_->arithmetic(); }
  // Bytes handed out and not released yet; 0 when everybody has cleaned up.
  std::size_t live_bytes() const;
  // Refuses what would bring them above this.
  void limit(std::size_t bytes) { limit_ = bytes; }

  DevicePtr allocate(std::size_t bytes) override;
  void release(DevicePtr memory, std::size_t bytes) override;
  void upload(DevicePtr to, const void* from, std::size_t bytes) override;
  void download(void* to, DevicePtr from, std::size_t bytes) override;
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override;
  DevicePtr attach(std::span<const std::byte> host) override;  // a copy in the arena
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

 private:
  class Opened;  // the arena is accessible while one exists

  // Throws std::logic_error unless the bytes lie inside one live allocation (null is allowed if
  // bytes is 0).
  void check(DevicePtr memory, std::int64_t bytes, const char* what) const;
  void check(Rows memory, std::int64_t rows, std::int64_t width, const char* what) const;
  void check(const Matrix& w) const;
  void check(std::span<const KvRow> rows, std::span<const KvSegments> sequences,
             const KvGeometry& geometry) const;

  std::unique_ptr<Ops> cpu_;
  std::byte* arena_;
  std::size_t arena_bytes_;
  std::size_t limit_ = SIZE_MAX;
  std::size_t used_ = 0;                          // high-water mark, whole pages
  std::map<std::size_t, std::size_t> live_;       // offset to bytes
  std::multimap<std::size_t, std::size_t> free_;  // rounded bytes to offset
};

}  // namespace tinyloop
