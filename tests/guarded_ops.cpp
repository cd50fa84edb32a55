// SPDX-License-Identifier: Apache-2.0
// The guarded device: an arena under mprotect around the CPU operations, and a check of every
// address handed in.
#include "guarded_ops.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>

#include "tinyloop/backend.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

std::int64_t bytes_of_rows(std::int64_t rows, std::int64_t stride, std::int64_t width) {
  return rows == 0 ? 0 : ((rows - 1) * stride + width) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

// Operations do not nest, so opening and closing is all there is.
class GuardedOps::Opened {
 public:
  explicit Opened(const GuardedOps& ops) : ops_(ops) { protect(PROT_READ | PROT_WRITE); }
  ~Opened() { protect(PROT_NONE); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  void protect(int access) const {
    if (ops_.used_ > 0) mprotect(ops_.arena_, ops_.used_, access);
  }
  const GuardedOps& ops_;
};

GuardedOps::GuardedOps(int threads, const std::string& isa, std::size_t arena_bytes)
    : cpu_(make_ops("cpu", {isa, threads})), arena_bytes_(whole_pages(arena_bytes)) {
  void* memory =
      mmap(nullptr, arena_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorKind::device, "no address space for {} bytes", arena_bytes_);
  arena_ = static_cast<std::byte*>(memory);
}

GuardedOps::~GuardedOps() { munmap(arena_, arena_bytes_); }

std::size_t GuardedOps::live_bytes() const {
  std::size_t sum = 0;
  for (const auto& [offset, bytes] : live_) sum += bytes;
  return sum;
}

void GuardedOps::check(DevicePtr memory, std::int64_t bytes, const char* what) const {
  if (bytes == 0) return;
  const std::byte* address = memory.address;
  if (address >= arena_ && address < arena_ + used_) {
    const auto offset = static_cast<std::size_t>(address - arena_);
    auto after = live_.upper_bound(offset);
    if (after != live_.begin()) {
      const auto& [start, size] = *--after;
      if (bytes > 0 && offset + static_cast<std::size_t>(bytes) <= start + size) return;
    }
  }
  throw std::logic_error(fmt::format("{}: {} bytes are not device memory", what, bytes));
}

void GuardedOps::check(Rows memory, std::int64_t rows, std::int64_t width, const char* what) const {
  check(memory.data, bytes_of_rows(rows, memory.stride, width), what);
}

void GuardedOps::check(const Matrix& w) const {
  check(w.data, static_cast<std::int64_t>(packed_data_bytes(w.type, w.n, w.k)), "matrix data");
  check(w.scales, static_cast<std::int64_t>(packed_scale_bytes(w.type, w.n, w.k)), "matrix scales");
}

void GuardedOps::check(std::span<const KvRow> rows, std::span<const KvSegments> sequences,
                       const KvGeometry& geometry) const {
  const auto tile_bytes = static_cast<std::int64_t>(geometry.tile_bytes());
  for (const KvRow& row : rows) {
    bool found = false;
    for (const KvSegment& s : sequences[static_cast<std::size_t>(row.sequence)]) {
      const std::int64_t tile = row.position / kTile - s.first_tile;
      if (tile < 0 || tile >= s.tiles) continue;
      found = true;
      for (std::int64_t head = 0; head < geometry.kv_heads; ++head) {
        check(s.base + (row.plane * s.plane_stride + head * s.head_stride + tile * tile_bytes),
              tile_bytes, "kv tile");
      }
    }
    if (!found) throw std::logic_error(fmt::format("position {} has no tile", row.position));
  }
}

DevicePtr GuardedOps::allocate(std::size_t bytes) {
  if (limit_ < SIZE_MAX && live_bytes() + bytes > limit_) {
    throw Error(ErrorKind::device, "no memory: {} bytes were refused", bytes);
  }
  const std::size_t rounded = whole_pages(bytes);
  std::size_t offset = used_;
  if (const auto fits = free_.find(rounded); fits != free_.end()) {
    offset = fits->second;
    free_.erase(fits);
  } else {
    if (bytes > arena_bytes_ || rounded > arena_bytes_ - used_) {
      throw Error(ErrorKind::device, "no memory: {} bytes were refused", bytes);
    }
    used_ += rounded;
  }
  live_[offset] = bytes;
  return {arena_ + offset};
}

void GuardedOps::release(DevicePtr memory, std::size_t bytes) {
  if (!memory) return;
  const auto offset = static_cast<std::size_t>(memory.address - arena_);
  const auto found = live_.find(offset);
  if (found == live_.end() || found->second != bytes) {
    throw std::logic_error(fmt::format("release of {} bytes that were not allocated so", bytes));
  }
  live_.erase(found);
  // The pages go back to the system, so that they are zero when handed out again and cost nothing
  // to protect.
  madvise(arena_ + offset, whole_pages(bytes), MADV_DONTNEED);
  free_.emplace(whole_pages(bytes), offset);
  if (live_.empty()) {
    free_.clear();
    used_ = 0;
  }
}

void GuardedOps::upload(DevicePtr to, const void* from, std::size_t bytes) {
  check(to, static_cast<std::int64_t>(bytes), "upload");
  const Opened opened(*this);
  cpu_->upload(to, from, bytes);
}

void GuardedOps::download(void* to, DevicePtr from, std::size_t bytes) {
  check(from, static_cast<std::int64_t>(bytes), "download");
  const Opened opened(*this);
  cpu_->download(to, from, bytes);
}

void GuardedOps::copy(DevicePtr to, DevicePtr from, std::size_t bytes) {
  check(to, static_cast<std::int64_t>(bytes), "copy to");
  check(from, static_cast<std::int64_t>(bytes), "copy from");
  const Opened opened(*this);
  cpu_->copy(to, from, bytes);
}

DevicePtr GuardedOps::attach(std::span<const std::byte> host) {
  const DevicePtr memory = allocate(host.size());
  upload(memory, host.data(), host.size());
  return memory;
}

void GuardedOps::detach(DevicePtr attached, std::size_t bytes) { release(attached, bytes); }

void GuardedOps::gather(Rows to, Rows from, std::span<const std::int32_t> index,
                        std::int64_t width) {
  check(to, static_cast<std::int64_t>(index.size()), width, "gather to");
  for (const std::int32_t row : index) {
    check(from.data + row * from.stride * 4, bytes_of_rows(1, 0, width), "gather from");
  }
  const Opened opened(*this);
  cpu_->gather(to, from, index, width);
}

void GuardedOps::scatter(Rows to, Rows from, std::span<const std::int32_t> index,
                         std::int64_t width) {
  check(from, static_cast<std::int64_t>(index.size()), width, "scatter from");
  for (const std::int32_t row : index) {
    check(to.data + row * to.stride * 4, bytes_of_rows(1, 0, width), "scatter to");
  }
  const Opened opened(*this);
  cpu_->scatter(to, from, index, width);
}

void GuardedOps::embed(Rows to, const Matrix& table, std::span<const TokenId> ids, float scale) {
  check(to, static_cast<std::int64_t>(ids.size()), table.k, "embed to");
  check(table);
  const Opened opened(*this);
  cpu_->embed(to, table, ids, scale);
}

void GuardedOps::add(Rows y, Rows x, std::int64_t rows, std::int64_t width) {
  check(y, rows, width, "add y");
  check(x, rows, width, "add x");
  const Opened opened(*this);
  cpu_->add(y, x, rows, width);
}

void GuardedOps::blend(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width) {
  check(y, rows, width, "blend y");
  check(x, rows, width, "blend x");
  const Opened opened(*this);
  cpu_->blend(y, a, x, b, rows, width);
}

void GuardedOps::rms_norm(Rows y, Rows x, DevicePtr weight, std::int64_t rows, std::int64_t width,
                          float eps) {
  check(y, rows, width, "rms_norm y");
  check(x, rows, width, "rms_norm x");
  check(weight, bytes_of_rows(1, 0, width), "rms_norm weight");
  const Opened opened(*this);
  cpu_->rms_norm(y, x, weight, rows, width, eps);
}

void GuardedOps::matmul(Rows y, Rows x, const Matrix& w, std::int64_t rows) {
  check(y, rows, w.n, "matmul y");
  check(x, rows, w.k, "matmul x");
  check(w);
  const Opened opened(*this);
  cpu_->matmul(y, x, w, rows);
}

void GuardedOps::gated_silu(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width) {
  check(out, rows, width, "gated_silu out");
  check(gate_up, rows, 2 * width, "gated_silu in");
  const Opened opened(*this);
  cpu_->gated_silu(out, gate_up, rows, width);
}

void GuardedOps::rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, DevicePtr angles,
                        DevicePtr bias, DevicePtr q_norm, DevicePtr k_norm) {
  const std::int64_t width = std::int64_t{shape.heads + shape.kv_heads} * shape.head_dim;
  check(qkv, rows, width, "rotate qkv");
  check(angles, rows * (shape.head_dim / 2) * 8, "rotate angles");
  if (bias) check(bias, bytes_of_rows(1, 0, width), "rotate bias");
  if (q_norm) check(q_norm, bytes_of_rows(1, 0, shape.head_dim), "rotate q_norm");
  if (k_norm) check(k_norm, bytes_of_rows(1, 0, shape.head_dim), "rotate k_norm");
  const Opened opened(*this);
  cpu_->rotate(qkv, rows, shape, angles, bias, q_norm, k_norm);
}

void GuardedOps::append(Rows k, Rows v, std::span<const KvRow> rows,
                        std::span<const KvSegments> sequences, const KvGeometry& geometry) {
  const std::int64_t width = std::int64_t{geometry.kv_heads} * geometry.head_dim;
  check(k, static_cast<std::int64_t>(rows.size()), width, "append k");
  check(v, static_cast<std::int64_t>(rows.size()), width, "append v");
  check(rows, sequences, geometry);
  const Opened opened(*this);
  cpu_->append(k, v, rows, sequences, geometry);
}

void GuardedOps::copy_positions(std::span<const KvCopy> copies,
                                std::span<const KvSegments> sequences, const KvGeometry& geometry) {
  for (const KvCopy& copy : copies) {
    const KvRow both[] = {{copy.sequence, copy.from_plane, copy.position},
                          {copy.sequence, copy.to_plane, copy.position}};
    check(both, sequences, geometry);
  }
  const Opened opened(*this);
  cpu_->copy_positions(copies, sequences, geometry);
}

void GuardedOps::attention(Rows out, Rows q, std::span<const KvRow> rows,
                           std::span<const KvSegments> sequences, const AttentionShape& shape) {
  const std::int64_t width = std::int64_t{shape.heads} * shape.kv.head_dim;
  check(out, static_cast<std::int64_t>(rows.size()), width, "attention out");
  check(q, static_cast<std::int64_t>(rows.size()), width, "attention q");
  check(rows, sequences, shape.kv);
  const Opened opened(*this);
  cpu_->attention(out, q, rows, sequences, shape);
}

}  // namespace tinyloop
