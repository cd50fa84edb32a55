// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CPU: pack the rows, then share the panels of W among the threads. Never
// splits k.
#include "tinyloop/cpu/cpu_ops.h"
#include "tinyloop/cpu/device_floats.h"

namespace tinyloop {
namespace {

const MatmulKernels& kernels_for(const KernelTable& kernels, WeightType type) {
  constexpr auto kFirstQuantised = static_cast<std::size_t>(WeightType::q8);
  const auto index = static_cast<std::size_t>(type);
  return index < kFirstQuantised ? kernels.floats[index]
                                 : kernels.quantised[index - kFirstQuantised];
}

// Multiply-adds that one thread does in the time of a fork, from the cache.
constexpr std::int64_t kMultipliesPerFloat = 2;

}  // namespace

void CpuOps::matmul(Rows y, Rows x, const Matrix& w, std::int64_t rows) {
  if (rows == 0 || w.n == 0) return;
  const MatmulKernels& multiplier = kernels_for(kernels(), w.type);
  const unsigned char* packed = bytes_at(x.data);
  if (rows > 1 || is_quantised(w.type)) {  // one row of floats is its own packing
    const std::int64_t tiles = (rows + multiplier.tile_rows - 1) / multiplier.tile_rows;
    auto* to = reinterpret_cast<unsigned char*>(
        packed_.reserve(static_cast<std::size_t>(multiplier.packed_bytes(rows, w.k))));
    share(tiles, rows * w.k, [&](int, Range range) {
      multiplier.pack({to, floats_at(x.data), x.stride, rows, w.k, range.first, range.end});
    });
    packed = to;
  }
  for (WorkingMemory& memory : worker_memory_) memory.reserve(kMatmulScratchFloats * sizeof(float));
  share(panels_of(w.n), rows * w.n * w.k / kMultipliesPerFloat, [&](int worker, Range range) {
    std::byte* scratch = worker_memory_[static_cast<std::size_t>(worker)].reserve(0);
    multiplier.multiply({floats_at(y.data), y.stride, packed, rows, bytes_at(w.data),
                         bytes_at(w.scales), w.n, w.k, range.first, range.end,
                         reinterpret_cast<float*>(scratch)});
  });
}

}  // namespace tinyloop
