// SPDX-License-Identifier: Apache-2.0
// The CPU device: memory and operations on rows. Matrix products are in cpu_matmul.cpp, attention
// in cpu_attention.cpp.
#include "tinyloop/cpu/cpu_ops.h"

#include <fmt/format.h>

#include <cstring>

#include "tinyloop/cpu/device_floats.h"

namespace tinyloop {

CpuOps::CpuOps(std::string_view isa, int threads)
    : choice_(select_kernels(isa)),
      workers_(threads),
      worker_memory_(static_cast<std::size_t>(workers_.count())) {}

std::string CpuOps::name() const {
  return fmt::format("cpu ({}, {} thread{})", choice_.name, workers_.count(),
                     workers_.count() == 1 ? "" : "s");
}

DevicePtr CpuOps::allocate(std::size_t bytes) { return {allocate_zeroed(bytes)}; }

void CpuOps::release(DevicePtr memory, std::size_t bytes) { release_zeroed(memory.address, bytes); }

void CpuOps::upload(DevicePtr to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to.address, from, bytes);
}

void CpuOps::download(void* to, DevicePtr from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from.address, bytes);
}

void CpuOps::copy(DevicePtr to, DevicePtr from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to.address, from.address, bytes);
}

DevicePtr CpuOps::attach(std::span<const std::byte> host) {
  return {const_cast<std::byte*>(host.data())};  // never written: weights are inputs only
}

void CpuOps::detach(DevicePtr, std::size_t) {}

void CpuOps::gather(Rows to, Rows from, std::span<const std::int32_t> index, std::int64_t width) {
  const auto rows = static_cast<std::int64_t>(index.size());
  share(rows, rows * width, [&](int, Range range) {
    for (std::int64_t r = range.first; r < range.end; ++r) {
      const float* source = row_at(from, index[static_cast<std::size_t>(r)]);
      std::memcpy(row_at(to, r), source, static_cast<std::size_t>(width) * sizeof(float));
    }
  });
}

void CpuOps::scatter(Rows to, Rows from, std::span<const std::int32_t> index, std::int64_t width) {
  const auto rows = static_cast<std::int64_t>(index.size());
  share(rows, rows * width, [&](int, Range range) {
    for (std::int64_t r = range.first; r < range.end; ++r) {
      float* target = row_at(to, index[static_cast<std::size_t>(r)]);
      std::memcpy(target, row_at(from, r), static_cast<std::size_t>(width) * sizeof(float));
    }
  });
}

void CpuOps::embed(Rows to, const Matrix& table, std::span<const TokenId> ids, float scale) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  const std::span<const std::byte> data(table.data.address,
                                        packed_data_bytes(table.type, table.n, table.k));
  const std::span<const std::byte> scales(table.scales.address,
                                          packed_scale_bytes(table.type, table.n, table.k));
  share(rows, rows * table.k * 8,
        [&](int, Range range) {  // a look-up costs about eight plain floats
          for (std::int64_t r = range.first; r < range.end; ++r) {
            float* row = row_at(to, r);
            const TokenId id = ids[static_cast<std::size_t>(r)];
            for (std::int64_t i = 0; i < table.k; ++i) {
              row[i] = scale * unpack_value(table.type, table.k, data, scales, id, i);
            }
          }
        });
}

void CpuOps::add(Rows y, Rows x, std::int64_t rows, std::int64_t width) {
  share(rows, rows * width, [&](int, Range range) {
    for (std::int64_t r = range.first; r < range.end; ++r)
      kernels().add(row_at(y, r), row_at(x, r), width);
  });
}

void CpuOps::blend(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width) {
  share(rows, rows * width, [&](int, Range range) {
    for (std::int64_t r = range.first; r < range.end; ++r) {
      kernels().blend(row_at(y, r), a, row_at(x, r), b, width);
    }
  });
}

void CpuOps::rms_norm(Rows y, Rows x, DevicePtr weight, std::int64_t rows, std::int64_t width,
                      float eps) {
  share(rows, rows * width, [&](int, Range range) {
    for (std::int64_t r = range.first; r < range.end; ++r) {
      kernels().rms_norm(row_at(y, r), row_at(x, r), floats_at(weight), width, eps);
    }
  });
}

void CpuOps::gated_silu(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width) {
  share(rows, rows * width * 2, [&](int, Range range) {
    for (std::int64_t r = range.first; r < range.end; ++r) {
      kernels().gated_silu(row_at(out, r), row_at(gate_up, r), width);
    }
  });
}

}  // namespace tinyloop
