// SPDX-License-Identifier: Apache-2.0
// Checks every operation but attention on every instruction set: within an error bound of a loop in
// double, same bits as portable, same bits for any number of rows and threads, nothing written
// beyond the outputs.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "guarded_ops.h"
#include "kernels/kernel_runs.h"

namespace tinyloop {
namespace {

constexpr double kUnit = 0x1p-24;  // of rounding in float

using Floats = std::vector<float>;
// Computes on a device the rows first .. first + count - 1 of an operation, [count][width].
using RunRows = std::function<Floats(Ops& ops, std::int64_t first, std::int64_t count)>;

// Properties (b) to (e) for any operation on rows; returns the portable result for (a).
Floats check_all_devices(std::int64_t rows, const RunRows& run) {
  Floats expected;
  for (const TestedDevice& device : tested_devices()) {
    INFO("device ", device.label);
    const Floats all = run(*device.ops, 0, rows);
    if (expected.empty()) expected = all;
    CHECK(same_bits(all, expected));
    if (rows == 1) continue;
    Floats single;
    for (std::int64_t r = 0; r < rows; ++r) {
      const Floats row = run(*device.ops, r, 1);
      single.insert(single.end(), row.begin(), row.end());
    }
    CHECK(same_bits(single, expected));
  }
  return expected;
}

std::span<const float> some_rows(const Floats& all, std::int64_t width, std::int64_t first,
                                 std::int64_t count) {
  return std::span(all).subspan(static_cast<std::size_t>(first * width),
                                static_cast<std::size_t>(count * width));
}

// Counts outputs further from the expectation than allowed, so that a failure is one line.
struct ErrorCount {
  std::int64_t beyond = 0;
  void add(double actual, double expected, double bound) {
    if (!(std::fabs(actual - expected) <= bound)) ++beyond;
  }
};

// A row of activations as the definition of matmul quantises it, group by group.
struct QuantisedRow {
  std::vector<std::int32_t> q;
  Floats scale;
};
QuantisedRow quantise(std::span<const float> x) {
  QuantisedRow row;
  for (std::size_t first = 0; first < x.size(); first += 32) {
    const std::span<const float> group =
        x.subspan(first, std::min<std::size_t>(32, x.size() - first));
    float greatest = 0.0f;
    for (const float value : group) greatest = std::max(greatest, std::fabs(value));
    row.scale.push_back(greatest / 127.0f);
    for (const float value : group) {
      const float inverse = greatest > 0.0f ? 127.0f / greatest : 0.0f;
      row.q.push_back(static_cast<std::int32_t>(std::nearbyint(value * inverse)));
    }
  }
  return row;
}

void check_matmul(WeightType type, std::int64_t rows, std::int64_t n, std::int64_t k,
                  Random& random) {
  INFO("matmul ", name_of(type), " rows ", rows, " n ", n, " k ", k);
  constexpr double largest = 0.5;
  const PackedMatrix w(type, n, k, random.floats(n * k, static_cast<float>(largest)));
  const Floats x = random.floats(rows * k, 3.0f);
  const Floats y = check_all_devices(rows, [&](Ops& ops, std::int64_t first, std::int64_t count) {
    const DeviceMatrix matrix(ops, w);
    const GuardedRows in(ops, count, k, some_rows(x, k, first, count)), out(ops, count, n);
    ops.matmul(out.rows(), in.rows(), matrix.matrix(), count);
    return out.read();
  });

  ErrorCount errors;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::span<const float> row = some_rows(x, k, r, 1);
    const QuantisedRow quantised = quantise(row);
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t i = 0; i < k; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double factor = is_quantised(type) ? static_cast<double>(quantised.q[at]) *
                                                       static_cast<double>(quantised.scale[at / 32])
                                                 : static_cast<double>(row[at]);
        const double term = factor * static_cast<double>(w.value(j, i));
        sum += term;
        // Steps and minimum are added one after the other: each may be as large as both ends.
        magnitude += std::fabs(type == WeightType::q4_1 ? 4 * factor * largest : term);
      }
      const std::int64_t sums = (type == WeightType::q4_1 ? 2 : 1) * groups_of(k);
      const auto roundings = static_cast<double>(is_quantised(type) ? sums + 3 : k);
      errors.add(y[static_cast<std::size_t>(r * n + j)], sum,
                 roundings * kUnit * magnitude * 1.01 + 1e-40);
    }
  }
  CHECK(errors.beyond == 0);
}

constexpr WeightType kTypes[] = {WeightType::f32, WeightType::f16, WeightType::bf16,
                                 WeightType::q8,  WeightType::q4,  WeightType::q4_1};

TEST_CASE("matmul of odd shapes") {
  Random random(1);
  for (const WeightType type : kTypes) {
    for (std::int64_t size = 1; size <= 67; ++size) {
      check_matmul(type, random.between(1, 5), size, random.between(1, 67), random);
      check_matmul(type, random.between(1, 5), random.between(1, 67), size, random);
    }
    for (std::int64_t rows = 1; rows <= 30; ++rows) {
      check_matmul(type, rows, random.between(1, 40), random.between(1, 67), random);
    }
  }
}

TEST_CASE("matmul across blocks of k, panels and threads") {
  Random random(2);
  for (const WeightType type : kTypes) {
    check_matmul(type, 1, 1500, 768, random);
    check_matmul(type, 7, 333, 513, random);
    check_matmul(type, 14, 300, 777, random);
    check_matmul(type, 37, 130, 1030, random);
  }
}

TEST_CASE("matmul keeps NaN in its own row and column") {
  const std::int64_t n = 40, k = 70;
  Random random(3);
  for (const WeightType type : kTypes) {
    const PackedMatrix w(type, n, k, random.floats(n * k));
    const Floats clean = random.floats(3 * k);
    Floats x = clean;
    x[static_cast<std::size_t>(k + 7)] = std::numeric_limits<float>::quiet_NaN();
    for (const TestedDevice& device : tested_devices()) {
      INFO(name_of(type), " on ", device.label);
      const DeviceMatrix matrix(*device.ops, w);
      const GuardedRows in(*device.ops, 3, k, x), other(*device.ops, 3, k, clean),
          out(*device.ops, 3, n);
      device.ops->matmul(out.rows(), other.rows(), matrix.matrix(), 3);
      Floats expected = out.read();
      device.ops->matmul(out.rows(), in.rows(), matrix.matrix(), 3);
      std::fill_n(expected.begin() + n, n, std::numeric_limits<float>::quiet_NaN());
      CHECK(same_bits(out.read(), expected));
    }
  }
}

TEST_CASE("quantised activations of zeros, tiny and huge values") {
  const std::int64_t n = 16, k = 96;
  Random random(4);
  const Floats values = random.floats(n * k);
  for (const float magnitude : {0.0f, 1e-44f, 1e-38f, 1e-30f, 1e30f}) {
    const Floats x = random.floats(k, magnitude);
    for (const WeightType type : {WeightType::q8, WeightType::q4, WeightType::q4_1}) {
      const PackedMatrix w(type, n, k, values);
      const Floats y = check_all_devices(1, [&](Ops& ops, std::int64_t, std::int64_t) {
        const DeviceMatrix matrix(ops, w);
        const GuardedRows in(ops, 1, k, x), out(ops, 1, n);
        ops.matmul(out.rows(), in.rows(), matrix.matrix(), 1);
        return out.read();
      });
      for (const float value : y) CHECK(std::fabs(value) <= magnitude * 96.0f);
    }
  }
}

TEST_CASE("rms_norm") {
  Random random(5);
  for (const std::int64_t width : {1, 2, 7, 15, 16, 17, 31, 33, 64, 67, 768, 2048}) {
    for (const std::int64_t rows : {1, 3, 40}) {
      INFO("width ", width, " rows ", rows);
      const Floats x = random.floats(rows * width, 4.0f), weight = random.floats(width, 2.0f);
      const float eps = 1e-5f;
      const auto run = [&](bool in_place) {
        return [&, in_place](Ops& ops, std::int64_t first, std::int64_t count) {
          const GuardedRows in(ops, count, width, some_rows(x, width, first, count)),
              out(ops, count, width);
          const GuardedRows factors(ops, 1, width, weight);
          const Rows to = in_place ? in.rows() : out.rows();
          ops.rms_norm(to, in.rows(), factors.ptr(), count, width, eps);
          return in_place ? in.read() : out.read();
        };
      };
      const Floats y = check_all_devices(rows, run(false));
      CHECK(same_bits(check_all_devices(rows, run(true)), y));
      ErrorCount errors;
      for (std::int64_t r = 0; r < rows; ++r) {
        double squares = 0.0;
        for (const float value : some_rows(x, width, r, 1))
          squares += static_cast<double>(value) * value;
        const double factor =
            1.0 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(eps));
        for (std::int64_t i = 0; i < width; ++i) {
          const double exact = x[static_cast<std::size_t>(r * width + i)] * factor *
                               weight[static_cast<std::size_t>(i)];
          errors.add(y[static_cast<std::size_t>(r * width + i)], exact,
                     std::fabs(exact) * (static_cast<double>(width) / 16 + 10) * kUnit);
        }
      }
      CHECK(errors.beyond == 0);
    }
  }
}

TEST_CASE("gated_silu over the whole range of exp") {
  Random random(6);
  for (const std::int64_t width : {1, 5, 16, 23, 67, 2048}) {
    const std::int64_t rows = 20;
    INFO("width ", width);
    Floats in;
    for (std::int64_t r = 0; r < rows; ++r) {
      // Row by row from small to beyond the point where exp overflows.
      const Floats gate = random.floats(width, std::exp2(static_cast<float>(r) * 0.5f - 2.0f));
      const Floats up = random.floats(width, 2.0f);
      in.insert(in.end(), gate.begin(), gate.end());
      in.insert(in.end(), up.begin(), up.end());
    }
    const Floats y = check_all_devices(rows, [&](Ops& ops, std::int64_t first, std::int64_t count) {
      const GuardedRows gate_up(ops, count, 2 * width, some_rows(in, 2 * width, first, count)),
          out(ops, count, width);
      ops.gated_silu(out.rows(), gate_up.rows(), count, width);
      return out.read();
    });
    ErrorCount errors;
    for (std::int64_t i = 0; i < rows * width; ++i) {
      const std::int64_t at = i / width * 2 * width + i % width;
      const double gate = in[static_cast<std::size_t>(at)],
                   up = in[static_cast<std::size_t>(at + width)];
      const double exact = gate / (1.0 + std::exp(-gate)) * up;
      errors.add(y[static_cast<std::size_t>(i)], exact, std::fabs(exact) * 6 * kUnit + 3e-36);
    }
    CHECK(errors.beyond == 0);
  }
}

TEST_CASE("gated_silu of special values") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Floats gate = {0.0f, infinity, -87.3f, -88.7f, -89.0f, -1000.0f, 1000.0f, std::nanf("")};
  Floats in = gate;
  in.insert(in.end(), gate.size(), 1.0f);
  const auto width = static_cast<std::int64_t>(gate.size());
  const Floats y = check_all_devices(1, [&](Ops& ops, std::int64_t, std::int64_t) {
    const GuardedRows gate_up(ops, 1, 2 * width, in), out(ops, 1, width);
    ops.gated_silu(out.rows(), gate_up.rows(), 1, width);
    return out.read();
  });
  CHECK(y[0] == 0.0f);
  CHECK(y[1] == infinity);
  CHECK(y[2] == doctest::Approx(-87.3 * std::exp(-87.3)).epsilon(1e-5));
  CHECK(std::fabs(y[3]) < 1e-36f);
  CHECK(y[4] == 0.0f);
  CHECK(y[5] == 0.0f);
  CHECK(y[6] == 1000.0f);
  CHECK(std::isnan(y[7]));
}

TEST_CASE("add and blend") {
  Random random(7);
  for (const std::int64_t width : {1, 15, 16, 37, 67, 3000}) {
    const std::int64_t rows = 13;
    const Floats x = random.floats(rows * width), y = random.floats(rows * width);
    const Floats sum =
        check_all_devices(rows, [&](Ops& ops, std::int64_t first, std::int64_t count) {
          const GuardedRows in(ops, count, width, some_rows(x, width, first, count));
          const GuardedRows out(ops, count, width, some_rows(y, width, first, count));
          ops.add(out.rows(), in.rows(), count, width);
          return out.read();
        });
    const float a = 0.3f, b = -1.7f;
    const Floats mix =
        check_all_devices(rows, [&](Ops& ops, std::int64_t first, std::int64_t count) {
          const GuardedRows in(ops, count, width, some_rows(x, width, first, count));
          const GuardedRows out(ops, count, width, some_rows(y, width, first, count));
          ops.blend(out.rows(), a, in.rows(), b, count, width);
          return out.read();
        });
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (sum[i] != y[i] + x[i]) ++wrong;
      if (mix[i] != std::fma(b, x[i], a * y[i])) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("gather and scatter") {
  Random random(8);
  for (const std::int64_t width : {1, 17, 64, 4000}) {
    const std::int64_t rows = 24;
    const Floats x = random.floats(rows * width);
    std::vector<std::int32_t> index(static_cast<std::size_t>(rows));
    std::iota(index.begin(), index.end(), 0);
    for (std::int64_t i = rows - 1; i > 0; --i) {
      std::swap(index[static_cast<std::size_t>(i)],
                index[static_cast<std::size_t>(random.between(0, i))]);
    }
    index.resize(11);
    for (const TestedDevice& device : tested_devices()) {
      INFO("device ", device.label, " width ", width);
      const GuardedRows from(*device.ops, rows, width, x), few(*device.ops, 11, width);
      device.ops->gather(few.rows(), from.rows(), index, width);
      const Floats gathered = few.read();
      const Floats zeros(x.size(), 0.0f);
      const GuardedRows to(*device.ops, rows, width, zeros);
      device.ops->scatter(to.rows(), few.rows(), index, width);
      const Floats scattered = to.read();
      Floats expected = zeros;
      for (std::size_t r = 0; r < index.size(); ++r) {
        const std::span<const float> row = some_rows(x, width, index[r], 1);
        CHECK(same_bits(some_rows(gathered, width, static_cast<std::int64_t>(r), 1), row));
        std::copy(row.begin(), row.end(), expected.begin() + index[r] * width);
      }
      CHECK(same_bits(scattered, expected));
    }
  }
}

TEST_CASE("embed") {
  Random random(9);
  for (const WeightType type : kTypes) {
    for (const std::int64_t k : {1, 31, 67, 512}) {
      const std::int64_t vocab = 37;
      const PackedMatrix w(type, vocab, k, random.floats(vocab * k));
      std::vector<TokenId> ids = {0, 36, 5, 5, 16, 15};
      const auto rows = static_cast<std::int64_t>(ids.size());
      const float scale = 1.5f;
      const Floats y =
          check_all_devices(rows, [&](Ops& ops, std::int64_t first, std::int64_t count) {
            const DeviceMatrix table(ops, w);
            const GuardedRows out(ops, count, k);
            ops.embed(out.rows(), table.matrix(),
                      std::span(ids).subspan(static_cast<std::size_t>(first),
                                             static_cast<std::size_t>(count)),
                      scale);
            return out.read();
          });
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < rows * k; ++i) {
        const float expected = scale * w.value(ids[static_cast<std::size_t>(i / k)], i % k);
        if (y[static_cast<std::size_t>(i)] != expected) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the guarded device refuses the host") {
  GuardedOps ops;
  const DeviceBuffer x(ops, 256), y(ops, 256);
  std::vector<float> host(64, 1.0f);
  ops.upload(x.ptr(), host.data(), 256);
  ops.add({y.ptr(), 64}, {x.ptr(), 64}, 1, 64);
  ops.download(host.data(), y.ptr(), 256);
  CHECK(host == Floats(64, 1.0f));

  // Host memory, or more than was allocated, is no operand.
  const DevicePtr from_host = {reinterpret_cast<std::byte*>(host.data())};
  CHECK_THROWS_AS(ops.add({y.ptr(), 64}, {from_host, 64}, 1, 64), std::logic_error);
  CHECK_THROWS_AS(ops.add({y.ptr(), 64}, {x.ptr(), 64}, 1, 65), std::logic_error);
  CHECK_THROWS_AS(ops.add({y.ptr(), 64}, {x.ptr(), 64}, 2, 64), std::logic_error);

  // Reading through an address outside an operation kills the process.
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    const volatile std::byte read = *x.ptr().address;
    _exit(read == std::byte{} ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
}

}  // namespace
}  // namespace tinyloop
