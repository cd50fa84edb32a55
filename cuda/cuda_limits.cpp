// SPDX-License-Identifier: Apache-2.0
// Copies on the device and one large product, repeated so that synchronisation does not
// count.
#include "cuda_limits.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cuda_ops.h"

namespace tinyloop {
namespace {

constexpr int kCopies = 16;
constexpr int kProducts = 4;

LimitProbe memory_probe(CudaOps& ops, std::size_t array_bytes) {
  const std::size_t half = std::max<std::size_t>(array_bytes / 2, 1);
  const auto array = std::make_shared<DeviceBuffer>(ops, 2 * half);
  return {Limit::memory, static_cast<double>(2 * half) * kCopies,
          [&ops, array, half] {
            const DevicePtr first = array->ptr();
            const DevicePtr second = first + static_cast<std::int64_t>(half);
            for (int i = 0; i < kCopies; ++i) {
              ops.copy(i % 2 == 0 ? second : first, i % 2 == 0 ? first : second, half);
            }
            ops.wait();
          },
          "copies"};
}

// f16 numbers below 2: on zeros a device needs less power and is faster than with any weights.
void fill(CudaOps& ops, const DeviceBuffer& buffer) {
  std::vector<std::uint16_t> numbers(std::min<std::size_t>(buffer.bytes() / 2, 1 << 15));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::uint16_t>((i * 2654435761u >> 12) & 0xbfff);
  }
  std::size_t filled = numbers.size() * 2;
  ops.upload(buffer.ptr(), numbers.data(), filled);
  while (filled < buffer.bytes()) {
    const std::size_t more = std::min(filled, buffer.bytes() - filled);
    ops.copy(buffer.ptr() + static_cast<std::int64_t>(filled), buffer.ptr(), more);
    filled += more;
  }
}

// As large as a quarter of the array allows, at most 8192 x 8192.
LimitProbe product_probe(CudaOps& ops, Limit limit, std::size_t array_bytes) {
  std::int64_t side = 8192;
  while (side > 64 && static_cast<std::size_t>(side * side * 4) > array_bytes / 4) side /= 2;
  const auto x = std::make_shared<DeviceBuffer>(ops, static_cast<std::size_t>(side * side * 2));
  const auto w = std::make_shared<DeviceBuffer>(ops, static_cast<std::size_t>(side * side * 2));
  const auto y = std::make_shared<DeviceBuffer>(ops, static_cast<std::size_t>(side * side * 4));
  fill(ops, *x);
  fill(ops, *w);
  const double sides = static_cast<double>(side);
  return {
      limit, 2.0 * sides * sides * sides * kProducts,
      [&ops, x, w, y, side] {
        ops.submit();
        for (int i = 0; i < kProducts; ++i) {
          ops.runtime().gemm({reinterpret_cast<float*>(y->ptr().address), side, x->ptr().address,
                              w->ptr().address, cuda::PlainType::f16, side, side, side});
        }
        ops.wait();
      },
      "cuBLAS"};
}

}  // namespace

std::vector<LimitProbe> cuda_limit_probes(CudaOps& ops, std::size_t array_bytes) {
  return {memory_probe(ops, array_bytes), product_probe(ops, Limit::floats, array_bytes),
          product_probe(ops, Limit::int8, array_bytes)};
}

}  // namespace tinyloop
