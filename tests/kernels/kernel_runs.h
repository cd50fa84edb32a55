// SPDX-License-Identifier: Apache-2.0
// What the kernel checks share: the devices under test, device memory between guard bands, seeded
// random numbers. Knows no operation.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/device/ops.h"
#include "tinyloop/model/packed_matrix.h"

namespace tinyloop {

struct TestedDevice {
  std::string label;
  std::unique_ptr<Ops> ops;
};

// Every usable instruction set with 1, 2 and 3 threads, and the guarded device. The first is
// portable with one thread, whose bits all others must repeat.
std::span<const TestedDevice> tested_devices();

// Random numbers from test_seed().
class Random {
 public:
  explicit Random(std::uint64_t stream);  // streams of one seed are independent
  std::int64_t between(std::int64_t least, std::int64_t most);
  float uniform(float least, float most);
  std::vector<float> floats(std::int64_t count, float magnitude = 1.0f);

 private:
  std::mt19937_64 engine_;
};

// Rows of floats in device memory, with guard values before, between and after the rows.
class GuardedRows {
 public:
  // Every row is `width` floats, filled with a value that no kernel computes.
  GuardedRows(Ops& ops, std::int64_t rows, std::int64_t width);
  GuardedRows(Ops& ops, std::int64_t rows, std::int64_t width, std::span<const float> content);

  Rows rows() const { return {buffer_.ptr() + kGuard * 4, stride_}; }
  DevicePtr ptr() const { return rows().data; }
  // The content [rows][width]. Fails the running test if a guard was overwritten.
  std::vector<float> read() const;

 private:
  static constexpr std::int64_t kGuard = 32;  // floats
  Ops& ops_;
  std::int64_t count_, width_, stride_;
  DeviceBuffer buffer_;
};

// A weight matrix, packed on the host.
struct PackedMatrix {
  PackedMatrix(WeightType type, std::int64_t n, std::int64_t k, std::span<const float> values);
  float value(std::int64_t row, std::int64_t column) const;  // as the packed form holds it

  WeightType type;
  std::int64_t n, k;
  std::vector<std::byte> data, scales;
};

// The same in device memory.
struct DeviceMatrix {
  DeviceMatrix(Ops& ops, const PackedMatrix& packed);
  Matrix matrix() const { return {type, n, k, data.ptr(), scales.ptr()}; }

  WeightType type;
  std::int64_t n, k;
  DeviceBuffer data, scales;
};

// True if all bits are equal; otherwise says where they differ first.
bool same_bits(std::span<const float> a, std::span<const float> b);

}  // namespace tinyloop
