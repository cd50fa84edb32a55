// SPDX-License-Identifier: Apache-2.0
// Products of the GPU's own kernels, whose order of sums is not the CPU's: within an error bound of
// a loop in double, the same bits for any number of rows. Then what prepares operands for cuBLAS.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "cuda/tested_cuda.h"
#include "kernels/kernel_runs.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

constexpr double kUnit = 0x1p-24;  // of rounding in float

using Floats = std::vector<float>;

constexpr WeightType kTypes[] = {WeightType::f32, WeightType::f16, WeightType::bf16,
                                 WeightType::q8,  WeightType::q4,  WeightType::q4_1};

std::span<const float> some_rows(const Floats& all, std::int64_t width, std::int64_t first,
                                 std::int64_t count) {
  return std::span(all).subspan(static_cast<std::size_t>(first * width),
                                static_cast<std::size_t>(count * width));
}

// Own kernels only, with any number of rows.
Floats multiply(const PackedMatrix& w, const Floats& x, std::int64_t first, std::int64_t count) {
  CudaOps& ops = tested_cuda();
  const DeviceMatrix matrix(ops, w);
  const GuardedRows in(ops, count, w.k, some_rows(x, w.k, first, count)), out(ops, count, w.n);
  const GuardedWorkspace memory(ops, cuda::matmul_workspace_bytes(count, w.type, w.n, w.k));
  run_kernel(ops, ops.kernels().matmul, out.rows(), in.rows(), matrix.matrix(), count,
             memory.workspace());
  CHECK(memory.is_intact());
  return out.read();
}

// A row of activations as the definition of matmul quantises it: value = q * scale.
std::vector<double> quantise(std::span<const float> x) {
  std::vector<double> values;
  for (std::size_t first = 0; first < x.size(); first += 32) {
    const std::span<const float> group =
        x.subspan(first, std::min<std::size_t>(32, x.size() - first));
    float greatest = 0.0f;
    for (const float value : group) greatest = std::max(greatest, std::fabs(value));
    const float inverse = greatest > 0.0f ? 127.0f / greatest : 0.0f;
    for (const float value : group) {
      values.push_back(std::nearbyint(value * inverse) * static_cast<double>(greatest / 127.0f));
    }
  }
  return values;
}

void check_matmul(WeightType type, std::int64_t rows, std::int64_t n, std::int64_t k,
                  Random& random) {
  INFO("matmul ", name_of(type), " rows ", rows, " n ", n, " k ", k);
  constexpr double largest = 0.5;
  const PackedMatrix w(type, n, k, random.floats(n * k, static_cast<float>(largest)));
  const Floats x = random.floats(rows * k, 3.0f);
  const Floats y = multiply(w, x, 0, rows);
  if (rows > 1) {
    Floats single;
    for (std::int64_t r = 0; r < rows; ++r) {
      const Floats row = multiply(w, x, r, 1);
      single.insert(single.end(), row.begin(), row.end());
    }
    CHECK(same_bits(single, y));
  }
  std::int64_t beyond = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::span<const float> row = some_rows(x, k, r, 1);
    const std::vector<double> factors =
        is_quantised(type) ? quantise(row) : std::vector<double>(row.begin(), row.end());
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t i = 0; i < k; ++i) {
        const double term =
            factors[static_cast<std::size_t>(i)] * static_cast<double>(w.value(j, i));
        sum += term;
        // Steps and minimum are added one after the other: each may be as large as both ends.
        magnitude += std::fabs(
            type == WeightType::q4_1 ? 4 * factors[static_cast<std::size_t>(i)] * largest : term);
      }
      // No more roundings than additions; a group has three of its own.
      const std::int64_t sums = (type == WeightType::q4_1 ? 2 : 1) * groups_of(k);
      const auto roundings = static_cast<double>(is_quantised(type) ? sums + 3 : k);
      const double bound = roundings * kUnit * magnitude * 1.01 + 1e-40;
      const double actual = y[static_cast<std::size_t>(r * n + j)];
      if (!(std::fabs(actual - sum) <= bound)) ++beyond;
    }
  }
  CHECK(beyond == 0);
}

TEST_CASE("products of odd shapes") {
  Random random(31);
  for (const WeightType type : kTypes) {
    for (std::int64_t size = 1; size <= 67; size += random.between(1, 3)) {
      check_matmul(type, random.between(1, 3), size, random.between(1, 67), random);
      check_matmul(type, random.between(1, 3), random.between(1, 67), size, random);
    }
    for (std::int64_t rows = 1; rows <= 19; ++rows) {
      check_matmul(type, rows, random.between(1, 40), random.between(1, 67), random);
    }
  }
}

TEST_CASE("products whose inputs are split") {
  Random random(32);
  for (const WeightType type : kTypes) {
    check_matmul(type, 1, 16, 4500, random);
    check_matmul(type, 3, 33, 1025, random);
    check_matmul(type, 6, 20, 2048, random);
    check_matmul(type, 37, 40, 1100, random);
  }
}

TEST_CASE("products with as many panels as need no split") {
  Random random(33);
  check_matmul(WeightType::q8, 1, 16 * 600 + 3, 64, random);
  check_matmul(WeightType::f16, 2, 16 * 530, 300, random);
}

TEST_CASE("products of a real model's shapes") {
  Random random(39);
  check_matmul(WeightType::f16, 1, 2048, 1408, random);
  check_matmul(WeightType::q8, 4, 512, 2048, random);
  check_matmul(WeightType::q4, 2, 768, 2048, random);
}

TEST_CASE("more rows than one launch has") {
  Random random(34);
  const std::int64_t rows = 530, n = 17, k = 300;
  for (const WeightType type : {WeightType::bf16, WeightType::q4}) {
    const PackedMatrix w(type, n, k, random.floats(n * k));
    const Floats x = random.floats(rows * k);
    const Floats y = multiply(w, x, 0, rows);
    for (const std::int64_t r : {0, 15, 16, 511, 512, 529}) {
      CHECK(same_bits(some_rows(y, n, r, 1), multiply(w, x, r, 1)));
    }
  }
}

TEST_CASE("a product keeps NaN in its own row and column") {
  const std::int64_t n = 40, k = 700, rows = 3;
  Random random(35);
  for (const WeightType type : kTypes) {
    INFO(name_of(type));
    const PackedMatrix w(type, n, k, random.floats(n * k));
    Floats x = random.floats(rows * k);
    Floats expected = multiply(w, x, 0, rows);
    x[static_cast<std::size_t>(k + 7)] = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(expected.begin() + n, n, std::numeric_limits<float>::quiet_NaN());
    CHECK(same_bits(multiply(w, x, 0, rows), expected));
  }
}

TEST_CASE("activations of zeros, tiny and huge values") {
  const std::int64_t n = 16, k = 96;
  Random random(36);
  const Floats values = random.floats(n * k);
  for (const float magnitude : {0.0f, 1e-44f, 1e-38f, 1e-30f, 1e30f}) {
    const Floats x = random.floats(k, magnitude);
    for (const WeightType type : {WeightType::q8, WeightType::q4, WeightType::q4_1}) {
      for (const float y : multiply(PackedMatrix(type, n, k, values), x, 0, 1)) {
        CHECK(std::fabs(y) <= magnitude * 96.0f);
      }
    }
  }
}

// --- for cuBLAS ---------------------------------------------------------------------------------

float rounded(cuda::PlainType type, float value) {
  switch (type) {
    case cuda::PlainType::f32:
      return value;
    case cuda::PlainType::f16:
      if (std::isnan(value)) return value;
      return half_to_float(float_to_half(std::clamp(value, -65504.0f, 65504.0f)));
    case cuda::PlainType::bf16:
      return bfloat_to_float(float_to_bfloat(value));
  }
  return 0.0f;
}

Floats read_plain(cuda::PlainType type, const DeviceBuffer& buffer) {
  CudaOps& ops = tested_cuda();
  if (type == cuda::PlainType::f32) return read_back<float>(ops, buffer);
  Floats values;
  for (const std::uint16_t bits : read_back<std::uint16_t>(ops, buffer)) {
    values.push_back(type == cuda::PlainType::f16 ? half_to_float(bits) : bfloat_to_float(bits));
  }
  return values;
}

// Values with a guard of ones behind them.
constexpr std::size_t kGuardValues = 16;
DeviceBuffer plain_buffer(cuda::PlainType type, std::int64_t values) {
  const std::size_t width = type == cuda::PlainType::f32 ? 4 : 2;
  const std::vector<std::byte> ones((static_cast<std::size_t>(values) + kGuardValues) * width,
                                    std::byte{0xff});
  return on_device(tested_cuda(), std::span<const std::byte>(ones));
}

void check_plain(cuda::PlainType type, const DeviceBuffer& buffer, const Floats& expected) {
  const Floats actual = read_plain(type, buffer);
  REQUIRE(actual.size() == expected.size() + kGuardValues);
  CHECK(same_bits(std::span(actual).first(expected.size()), expected));
  for (std::size_t i = expected.size(); i < actual.size(); ++i) CHECK(std::isnan(actual[i]));
}

constexpr cuda::PlainType kPlainTypes[] = {cuda::PlainType::f32, cuda::PlainType::f16,
                                           cuda::PlainType::bf16};

TEST_CASE("unpacked weights are the packed ones") {
  Random random(37);
  CudaOps& ops = tested_cuda();
  for (const WeightType type : kTypes) {
    for (const cuda::PlainType plain : kPlainTypes) {
      const std::int64_t n = random.between(1, 67), k = random.between(1, 150);
      const std::int64_t first = random.between(0, n - 1), rows = random.between(1, n - first);
      INFO(name_of(type), " n ", n, " k ", k, " rows ", first, " + ", rows);
      const PackedMatrix w(type, n, k, random.floats(n * k, 3.0f));
      const DeviceMatrix matrix(ops, w);
      const DeviceBuffer to = plain_buffer(plain, rows * k);
      run_kernel(ops, ops.kernels().unpack, static_cast<void*>(to.ptr().address), plain,
                 matrix.matrix(), first, rows);
      Floats expected;
      for (std::int64_t i = 0; i < rows * k; ++i) {
        expected.push_back(rounded(plain, w.value(first + i / k, i % k)));
      }
      check_plain(plain, to, expected);
    }
  }
}

TEST_CASE("converted rows are the rounded ones, within the format's range") {
  Random random(38);
  CudaOps& ops = tested_cuda();
  for (const cuda::PlainType plain : kPlainTypes) {
    for (const std::int64_t width : {1, 17, 300}) {
      const std::int64_t rows = 5;
      Floats x = random.floats(rows * width, 70000.0f);
      x[0] = std::numeric_limits<float>::quiet_NaN();
      x[1] = 1e-7f;
      const GuardedRows from(ops, rows, width, x);
      const DeviceBuffer to = plain_buffer(plain, rows * width);
      run_kernel(ops, ops.kernels().convert, static_cast<void*>(to.ptr().address), plain,
                 from.rows(), rows, width);
      Floats expected;
      for (const float value : x) expected.push_back(rounded(plain, value));
      check_plain(plain, to, expected);
    }
  }
}

}  // namespace
}  // namespace tinyloop
