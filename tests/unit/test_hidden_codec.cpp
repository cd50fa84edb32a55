// SPDX-License-Identifier: Apache-2.0
// Records of the store-h modes: sizes, error bounds, exact cases, what is not finite.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "tinyloop/kv/hidden_codec.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

std::vector<float> coded(StorageMode mode, std::vector<float> row) {
  std::vector<std::byte> record(hidden_record_bytes(mode, static_cast<std::int64_t>(row.size())),
                                std::byte{0xff});
  encode_hidden(mode, row, record);
  std::vector<float> again(row.size());
  decode_hidden(mode, record, again);
  for (std::size_t i = 0; i < row.size(); ++i) {
    CHECK((again[i] == row[i] || (std::isnan(again[i]) && std::isnan(row[i]))));
  }
  return row;
}

// Rows of Hadamard matrices (Sylvester's) times x, block by block; divided by their size where
// `back`, which undoes the first.
std::vector<double> transformed(std::span<const double> x, bool back) {
  std::size_t block = 1;
  while (x.size() % (2 * block) == 0) block *= 2;
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < block; ++j) {
      const double term = x[i / block * block + j];
      y[i] += std::popcount(i % block & j) % 2 != 0 ? -term : term;
    }
    if (back) y[i] /= static_cast<double>(block);
  }
  return y;
}

std::vector<float> random_row(std::size_t width) {
  std::vector<float> row;
  for (std::uint32_t i = 0; i < width; ++i) {
    row.push_back(static_cast<float>(static_cast<std::int32_t>(philox(3, {i, 0, 0, 0})[0])) *
                  0x1p-29f * (i < 32 ? 1.0f : 100.0f));
  }
  return row;
}

TEST_CASE("records have their stated size") {
  CHECK(hidden_record_bytes(StorageMode::h16, 33) == 68);
  CHECK(hidden_record_bytes(StorageMode::h16, 64) == 128);
  CHECK(hidden_record_bytes(StorageMode::h8, 33) == 2 * 34);
  CHECK(hidden_record_bytes(StorageMode::h8, 72) == 104);  // 3 * 34 and 2 more
  CHECK(hidden_record_bytes(StorageMode::h4, 64) == 2 * 18);
}

TEST_CASE("transformed values err by at most half a step of their group, a whole one at its end") {
  for (const std::size_t width : {1u, 16u, 31u, 32u, 33u, 72u, 80u, 96u, 576u}) {
    const std::vector<float> row = random_row(width);
    const std::vector<double> exact =
        transformed(std::vector<double>(row.begin(), row.end()), false);
    for (const StorageMode mode : {StorageMode::h8, StorageMode::h4}) {
      const std::vector<float> got = coded(mode, row);
      const std::vector<double> back =
          transformed(std::vector<double>(got.begin(), got.end()), false);
      int at_end = 0;
      for (std::size_t first = 0; first < width; first += 32) {
        double greatest = 0.0;
        const std::size_t end = std::min(width, first + 32);
        for (std::size_t i = first; i < end; ++i)
          greatest = std::max(greatest, std::fabs(exact[i]));
        const double limit = mode == StorageMode::h8 ? 128.0 : 8.0;
        const double step = greatest / limit * (1.0 + 0x1p-7);  // a scale has 8 bits
        for (std::size_t i = first; i < end; ++i) {
          const double error = std::fabs(back[i] - exact[i]);
          // Beyond limit - 1.5 steps the other side of zero has no number of its own.
          const bool is_end = std::fabs(exact[i]) > (limit - 1.5) * step * 0.99;
          CHECK(error <= (is_end ? 1.0 : 0.5) * step + 1e-6 * greatest);
          at_end += is_end;
        }
      }
      CHECK(at_end > 0);
    }
    const std::vector<float> half = coded(StorageMode::h16, row);
    for (std::size_t i = 0; i < width; ++i) {
      CHECK(std::fabs(half[i] - row[i]) <= std::fabs(row[i]) * 0x1p-11f);
    }
  }
}

TEST_CASE("rows whose transform is whole steps come back exactly") {
  for (const std::size_t width : {31u, 32u, 40u, 80u, 96u, 576u}) {
    for (const StorageMode mode : {StorageMode::h8, StorageMode::h4}) {
      const std::int32_t limit = mode == StorageMode::h8 ? 128 : 8;
      for (const double sign : {1.0, -1.0}) {
        std::vector<double> steps(width);
        for (std::uint32_t i = 0; i < width; ++i) {
          const auto word = static_cast<std::int32_t>(philox(5, {i, 0, 0, 0})[0] >> 1);
          steps[i] = sign * (i % 32 == 0 ? -limit : word % (2 * limit) - limit);
        }
        const std::vector<double> row = transformed(steps, true);
        const std::vector<float> given(row.begin(), row.end());
        CHECK(coded(mode, given) == given);
      }
    }
  }
}

TEST_CASE("one great channel does not cost the others their bits") {
  // As models have them: beside it, without the transform, all others would become zeros.
  std::vector<float> row(64);
  for (std::uint32_t i = 0; i < 64; ++i) row[i] = i % 2 != 0 ? 1.0f : -1.0f;
  row[5] = 40.0f;
  const std::vector<float> got = coded(StorageMode::h4, row);
  double squares = 0.0;
  for (std::size_t i = 0; i < 64; ++i) squares += std::pow(got[i] - row[i], 2) / 64.0;
  CHECK(squares < 0.5);
}

TEST_CASE("zeros stay zeros, tiny rows do not grow, and what is not finite stays so") {
  for (const StorageMode mode : {StorageMode::h16, StorageMode::h8, StorageMode::h4}) {
    std::vector<float> row(40);
    for (const float x : coded(mode, row)) CHECK(x == 0.0f);
    // A small number does not become the greatest of its group where a step is too small to divide
    // by.
    std::vector<float> tiny(40, 1e-43f);
    tiny[1] = -1e-41f;
    for (const float x : coded(mode, tiny)) CHECK(std::fabs(x) <= 1e-41f);
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      row[3] = bad;
      CHECK(!std::isfinite(coded(mode, row)[3]));
    }
  }
}

}  // namespace
}  // namespace tinyloop
