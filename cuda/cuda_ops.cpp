// SPDX-License-Identifier: Apache-2.0
// The CUDA device: memory and operations as steps of the work queue, their index arrays as its
// tables. Matrix products are in cuda_matmul.cpp.
#include "cuda_ops.h"

#include <algorithm>
#include <cstring>

#include "tinyloop/error.h"

namespace tinyloop {

using cuda::KvSequence;
using cuda::KvTables;

namespace {

// For tables, unpacked weights, rounded rows, partial sums (kMostPartialBytes at most), kernels,
// graphs and cuBLAS.
constexpr std::size_t kOwnBytes = std::size_t{256} << 20;
constexpr std::size_t kSmallUpload = 64 << 10;  // goes along with the steps

float* floats(DevicePtr memory) { return reinterpret_cast<float*>(memory.address); }

template <typename T>
std::int64_t count_of(std::span<T> values) {
  return static_cast<std::int64_t>(values.size());
}

std::size_t segment_bytes(std::span<const KvSegments> sequences) {
  std::size_t bytes = sequences.size() * sizeof(KvSequence);
  for (const KvSegments& segments : sequences) bytes += segments.size_bytes();
  return bytes;
}

}  // namespace

CudaOps::CudaOps(std::unique_ptr<cuda::Runtime> runtime, const cuda::Kernels& kernels,
                 std::size_t memory_limit)
    : runtime_(std::move(runtime)),
      kernels_(kernels),
      memory_(*runtime_, memory_limit),
      transfers_(*runtime_),
      queue_(*runtime_, memory_) {}

CudaOps::~CudaOps() {
  try {
    runtime_->wait();
  } catch (const Error&) {  // the device has failed, and everybody who waited for it knows
  }
}

void CudaOps::submit() { queue_.submit(); }

void CudaOps::wait() {
  queue_.submit();
  runtime_->wait();
}

std::optional<std::size_t> CudaOps::memory_left() const {
  const std::size_t left = memory_.left_bytes();
  return left - std::min(left, kOwnBytes);
}

DevicePtr CudaOps::allocate(std::size_t bytes) { return {memory_.allocate(bytes)}; }

void CudaOps::release(DevicePtr memory, std::size_t) {
  if (!memory) return;
  try {
    queue_.submit();  // steps that use it come before whatever uses it next
    memory_.release(memory.address);
  } catch (const Error&) {  // called by destructors; a failed device fails again at the next wait
  }
}

void CudaOps::upload(DevicePtr to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const auto* source = static_cast<const std::byte*>(from);
  if (bytes <= kSmallUpload) {
    queue_.make_room(bytes);
    queue_.copy(to.address, queue_.table({source, bytes}), bytes);
    return;
  }
  queue_.submit();
  transfers_.in(to.address, source, bytes);
}

void CudaOps::download(void* to, DevicePtr from, std::size_t bytes) {
  queue_.submit();
  transfers_.out(static_cast<std::byte*>(to), from.address, bytes);
}

void CudaOps::copy(DevicePtr to, DevicePtr from, std::size_t bytes) {
  if (bytes > 0) queue_.copy(to.address, from.address, bytes);
}

DevicePtr CudaOps::attach(std::span<const std::byte> host) {
  AttachedCopy& copy = attached_[{host.data(), host.size()}];
  if (copy.users == 0) {
    try {
      copy.memory = allocate(host.size());
      transfers_.in(copy.memory.address, host.data(), host.size());
    } catch (...) {
      release(copy.memory, host.size());
      attached_.erase({host.data(), host.size()});
      throw;
    }
  }
  ++copy.users;
  return copy.memory;
}

void CudaOps::detach(DevicePtr attached, std::size_t bytes) {
  const auto found = std::find_if(attached_.begin(), attached_.end(), [&](const auto& entry) {
    return entry.second.memory.address == attached.address;
  });
  if (found == attached_.end() || --found->second.users > 0) return;
  release(attached, bytes);
  attached_.erase(found);
}

std::byte* CudaOps::scratch(Scratch& scratch, std::size_t bytes) {
  if (scratch.bytes < bytes) {
    queue_.submit();
    if (scratch.memory != nullptr) memory_.release(scratch.memory);
    scratch = {};
    scratch = {memory_.allocate(bytes), bytes};
  }
  return scratch.memory;
}

cuda::Workspace CudaOps::workspace(std::size_t bytes) {
  std::byte* counters = scratch(counters_, cuda::kCounters * sizeof(std::int32_t));
  return {scratch(workspace_, bytes), reinterpret_cast<std::int32_t*>(counters)};
}

template <typename T>
const T* CudaOps::table(std::span<const T> values) {
  return reinterpret_cast<const T*>(queue_.table(std::as_bytes(values)));
}

KvTables CudaOps::segment_tables(std::span<const KvSegments> sequences) {
  all_segments_.clear();
  all_sequences_.clear();
  for (const KvSegments& segments : sequences) {
    all_sequences_.push_back({static_cast<std::int32_t>(all_segments_.size()),
                              static_cast<std::int32_t>(segments.size())});
    all_segments_.insert(all_segments_.end(), segments.begin(), segments.end());
  }
  return {table(std::span<const KvSegment>(all_segments_)),
          table(std::span<const KvSequence>(all_sequences_))};
}

void CudaOps::gather(Rows to, Rows from, std::span<const std::int32_t> index, std::int64_t width) {
  if (index.empty()) return;
  queue_.make_room(index.size_bytes());
  queue_.kernel("gather", kernels_.gather, to, from, table(index), count_of(index), width);
}

void CudaOps::scatter(Rows to, Rows from, std::span<const std::int32_t> index, std::int64_t width) {
  if (index.empty()) return;
  queue_.make_room(index.size_bytes());
  queue_.kernel("scatter", kernels_.scatter, to, from, table(index), count_of(index), width);
}

void CudaOps::embed(Rows to, const Matrix& table_matrix, std::span<const TokenId> ids,
                    float scale) {
  if (ids.empty()) return;
  queue_.make_room(ids.size_bytes());
  queue_.kernel("embed", kernels_.embed, to, table_matrix, table(ids), count_of(ids), scale);
}

void CudaOps::add(Rows y, Rows x, std::int64_t rows, std::int64_t width) {
  if (rows > 0) queue_.kernel("add", kernels_.add, y, x, rows, width);
}

void CudaOps::blend(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width) {
  if (rows > 0) queue_.kernel("blend", kernels_.blend, y, a, x, b, rows, width);
}

void CudaOps::rms_norm(Rows y, Rows x, DevicePtr weight, std::int64_t rows, std::int64_t width,
                       float eps) {
  if (rows > 0) {
    queue_.kernel("rms_norm", kernels_.rms_norm, y, x, floats(weight), rows, width, eps);
  }
}

void CudaOps::gated_silu(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width) {
  if (rows > 0) queue_.kernel("gated_silu", kernels_.gated_silu, out, gate_up, rows, width);
}

bool CudaOps::top_k(Rows logits, std::int64_t rows, std::int64_t vocab, std::int32_t k,
                    TopLogits& best) {
  if (k < 1 || k > std::min<std::int64_t>(vocab, cuda::kMostTopK)) return false;
  const cuda::Workspace memory = workspace(cuda::top_k_workspace_bytes(rows, vocab, k));
  const auto count = static_cast<std::size_t>(rows * k);
  const auto row_count = static_cast<std::size_t>(rows);
  const std::size_t bytes = count * sizeof(float) + count * sizeof(TokenId) + row_count * 4;
  std::byte* results = scratch(best_, bytes);
  auto* values = reinterpret_cast<float*>(results);
  auto* ids = reinterpret_cast<TokenId*>(values + count);
  auto* not_finite = reinterpret_cast<std::int32_t*>(ids + count);
  queue_.kernel("top_k", kernels_.top_k, values, ids, not_finite, logits, rows, vocab, k, memory);
  std::vector<std::byte> host(bytes);
  download(host.data(), {results}, bytes);
  best.values.resize(count);
  best.ids.resize(count);
  best.not_finite.resize(row_count);
  std::memcpy(best.values.data(), host.data(), count * sizeof(float));
  std::memcpy(best.ids.data(), host.data() + count * sizeof(float), count * sizeof(TokenId));
  std::memcpy(best.not_finite.data(), host.data() + 2 * count * sizeof(float), row_count * 4);
  return true;
}

void CudaOps::rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, DevicePtr angles,
                     DevicePtr bias, DevicePtr q_norm, DevicePtr k_norm) {
  if (rows == 0) return;
  queue_.kernel("rotate", kernels_.rotate, qkv, rows, shape, floats(angles), floats(bias),
                floats(q_norm), floats(k_norm));
}

void CudaOps::append(Rows k, Rows v, std::span<const KvRow> rows,
                     std::span<const KvSegments> sequences, const KvGeometry& geometry) {
  if (rows.empty()) return;
  queue_.make_room(rows.size_bytes() + segment_bytes(sequences));
  const KvTables tables = segment_tables(sequences);
  queue_.kernel("append", kernels_.append, k, v, table(rows), count_of(rows), tables, geometry);
}

void CudaOps::copy_positions(std::span<const KvCopy> copies, std::span<const KvSegments> sequences,
                             const KvGeometry& geometry) {
  if (copies.empty()) return;
  queue_.make_room(copies.size_bytes() + segment_bytes(sequences));
  const KvTables tables = segment_tables(sequences);
  queue_.kernel("copy_positions", kernels_.copy_positions, table(copies), count_of(copies), tables,
                count_of(sequences), geometry);
}

void CudaOps::attention(Rows out, Rows q, std::span<const KvRow> rows,
                        std::span<const KvSegments> sequences, const AttentionShape& shape) {
  if (rows.empty()) return;
  const cuda::AttentionPlan plan = cuda::plan_attention(rows, shape);
  const std::span<const cuda::AttentionTile> tiles(plan.tiles);
  const cuda::Workspace memory = workspace(plan.workspace_bytes);
  queue_.make_room(rows.size_bytes() + segment_bytes(sequences) + tiles.size_bytes());
  const KvTables tables = segment_tables(sequences);
  queue_.kernel("attention", kernels_.attention, out, q, table(rows), tables, shape, plan,
                table(tiles), memory);
}

}  // namespace tinyloop
