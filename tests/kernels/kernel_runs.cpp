// SPDX-License-Identifier: Apache-2.0
// What the kernel checks share: device memory between guard bands, seeded random numbers. Not the
// devices under test: tested_devices.cpp, of which there is one for each executable.
#include "kernels/kernel_runs.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "test_seed.h"

namespace tinyloop {
namespace {

const float kGuardValue = std::bit_cast<float>(0x7fc0dead);  // a NaN that no operation makes

}  // namespace

Random::Random(std::uint64_t stream) {
  std::seed_seq sequence{test_seed(), test_seed() >> 32, stream};
  engine_.seed(sequence);
}

std::int64_t Random::between(std::int64_t least, std::int64_t most) {
  return least +
         static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
}

float Random::uniform(float least, float most) {
  const double unit = static_cast<double>(engine_() >> 11) * 0x1p-53;
  return static_cast<float>(least + unit * (static_cast<double>(most) - least));
}

std::vector<float> Random::floats(std::int64_t count, float magnitude) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(-magnitude, magnitude);
  return values;
}

GuardedRows::GuardedRows(Ops& ops, std::int64_t rows, std::int64_t width)
    : GuardedRows(ops, rows, width,
                  std::vector<float>(static_cast<std::size_t>(rows * width), kGuardValue)) {}

GuardedRows::GuardedRows(Ops& ops, std::int64_t rows, std::int64_t width,
                         std::span<const float> content)
    : ops_(ops),
      count_(rows),
      width_(width),
      stride_(width + 5),  // odd against every vector width
      buffer_(ops, static_cast<std::size_t>(rows * stride_ + 2 * kGuard) * sizeof(float)) {
  std::vector<float> all(buffer_.bytes() / sizeof(float), kGuardValue);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(content.begin() + r * width, width, all.begin() + kGuard + r * stride_);
  }
  ops.upload(buffer_.ptr(), all.data(), buffer_.bytes());
}

std::vector<float> GuardedRows::read() const {
  std::vector<float> all(buffer_.bytes() / sizeof(float));
  ops_.download(all.data(), buffer_.ptr(), buffer_.bytes());
  std::vector<float> content;
  std::int64_t overwritten = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(all.size()); ++i) {
    const std::int64_t at = i - kGuard;
    const float value = all[static_cast<std::size_t>(i)];
    if (at >= 0 && at < count_ * stride_ && at % stride_ < width_) {
      content.push_back(value);
    } else if (std::bit_cast<std::uint32_t>(value) != std::bit_cast<std::uint32_t>(kGuardValue)) {
      ++overwritten;
    }
  }
  CHECK_MESSAGE(overwritten == 0, "guard values overwritten");
  return content;
}

PackedMatrix::PackedMatrix(WeightType t, std::int64_t outputs, std::int64_t inputs,
                           std::span<const float> values)
    : type(t),
      n(outputs),
      k(inputs),
      data(packed_data_bytes(t, outputs, inputs)),
      scales(packed_scale_bytes(t, outputs, inputs)) {
  const std::size_t data_bytes = packed_data_bytes(t, kPanel, k),
                    scale_bytes = packed_scale_bytes(t, kPanel, k);
  for (std::int64_t panel = 0; panel < panels_of(n); ++panel) {
    std::vector<float> rows(static_cast<std::size_t>(kPanel * k));
    const std::int64_t count = std::min(kPanel, n - panel * kPanel) * k;
    std::copy_n(values.begin() + panel * kPanel * k, count, rows.begin());
    const auto p = static_cast<std::size_t>(panel);
    pack_panel(type, k, rows, std::span(data).subspan(p * data_bytes, data_bytes),
               std::span(scales).subspan(p * scale_bytes, scale_bytes));
  }
}

float PackedMatrix::value(std::int64_t row, std::int64_t column) const {
  return unpack_value(type, k, data, scales, row, column);
}

DeviceMatrix::DeviceMatrix(Ops& ops, const PackedMatrix& packed)
    : type(packed.type),
      n(packed.n),
      k(packed.k),
      data(ops, packed.data.size()),
      scales(ops, packed.scales.size()) {
  ops.upload(data.ptr(), packed.data.data(), packed.data.size());
  ops.upload(scales.ptr(), packed.scales.data(), packed.scales.size());
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];  // which NaN it is does not matter
    if (both_nan || std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]))
      continue;
    MESSAGE("first difference at ", i, " of ", a.size(), ": ", a[i], " and ", b[i]);
    return false;
  }
  return true;
}

}  // namespace tinyloop
