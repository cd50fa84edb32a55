// SPDX-License-Identifier: Apache-2.0
// Matrix products: few rows by the kernel that streams the packed weights, many rows by cuBLAS on
// weights that are unpacked block by block.
#include <algorithm>

#include "cuda_ops.h"

namespace tinyloop {

using cuda::PlainType;

namespace {

// Of unpacked weights: small enough to be read back from the cache of a large GPU.
constexpr std::int64_t kBlockBytes = 32 << 20;

// The format both operands are given to cuBLAS in. Quantised weights have up to 18 bits with their
// scale; f16 keeps 11 of them, and its sums are exact enough beside their 8 or 4.
PlainType plain_type(WeightType type) {
  switch (type) {
    case WeightType::f32:
      return PlainType::f32;
    case WeightType::bf16:
      return PlainType::bf16;
    case WeightType::f16:
    case WeightType::q8:
    case WeightType::q4:
    case WeightType::q4_1:
      break;
  }
  return PlainType::f16;
}

}  // namespace

void CudaOps::matmul(Rows y, Rows x, const Matrix& w, std::int64_t rows) {
  if (rows == 0) return;
  if (rows > kOwnRows) {
    matmul_many(y, x, w, rows);
    return;
  }
  const cuda::Workspace memory = workspace(cuda::matmul_workspace_bytes(rows, w.type, w.n, w.k));
  queue_.kernel("matmul", kernels_.matmul, y, x, w, rows, memory);
}

void CudaOps::matmul_many(Rows y, Rows x, const Matrix& w, std::int64_t rows) {
  const PlainType type = plain_type(w.type);
  const std::int64_t value = type == PlainType::f32 ? 4 : 2;
  const std::int64_t block = std::min(
      panels_of(w.n) * kPanel, std::max(kPanel, kBlockBytes / (w.k * value) / kPanel * kPanel));
  void* plain_x = scratch(plain_rows_, static_cast<std::size_t>(rows * w.k * value));
  void* plain_w = scratch(plain_weights_, static_cast<std::size_t>(block * w.k * value));
  queue_.kernel("convert", kernels_.convert, plain_x, type, x, rows, w.k);
  for (std::int64_t first = 0; first < w.n; first += block) {
    const std::int64_t count = std::min(block, w.n - first);
    queue_.kernel("unpack", kernels_.unpack, plain_w, type, w, first, count);
    cuda::Gemm gemm;
    gemm.y = reinterpret_cast<float*>(y.columns(first).data.address);
    gemm.y_stride = y.stride;
    gemm.x = plain_x;
    gemm.w = plain_w;
    gemm.type = type;
    gemm.rows = rows;
    gemm.n = count;
    gemm.k = w.k;
    queue_.gemm(gemm);
  }
}

}  // namespace tinyloop
