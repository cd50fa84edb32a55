// SPDX-License-Identifier: Apache-2.0
// Records of the store-h modes: sizes, error bounds, exact cases, what is not finite.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
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

TEST_CASE("records have their stated size") {
  CHECK(hidden_record_bytes(StorageMode::h16, 33) == 68);
  CHECK(hidden_record_bytes(StorageMode::h16, 64) == 128);
  CHECK(hidden_record_bytes(StorageMode::h8, 33) == 2 * 36);
  CHECK(hidden_record_bytes(StorageMode::h8, 64) == 2 * 36);
  CHECK(hidden_record_bytes(StorageMode::h4, 64) == 2 * 20);
}

TEST_CASE("rounding errs by at most half a step of its group, and never across positions") {
  for (const std::size_t width : {1u, 16u, 31u, 32u, 33u, 72u}) {
    std::vector<float> row;
    for (std::uint32_t i = 0; i < width; ++i) {
      row.push_back(static_cast<float>(static_cast<std::int32_t>(philox(3, {i, 0, 0, 0})[0])) *
                    0x1p-29f * (i < 32 ? 1.0f : 100.0f));
    }
    for (const StorageMode mode : {StorageMode::h8, StorageMode::h4}) {
      const std::vector<float> got = coded(mode, row);
      for (std::size_t i = 0; i < width; ++i) {
        float greatest = 0.0f;
        for (std::size_t j = i / 32 * 32; j < std::min(width, i / 32 * 32 + 32); ++j) {
          greatest = std::max(greatest, std::fabs(row[j]));
        }
        const float step = greatest / (mode == StorageMode::h8 ? 127.0f : 7.0f);
        CHECK(std::fabs(got[i] - row[i]) <= 0.5001f * step);
      }
    }
    const std::vector<float> half = coded(StorageMode::h16, row);
    for (std::size_t i = 0; i < width; ++i) {
      CHECK(std::fabs(half[i] - row[i]) <= std::fabs(row[i]) * 0x1p-11f);
    }
  }
}

TEST_CASE("whole steps are exact, zeros stay zeros, and what is not finite stays so") {
  for (const StorageMode mode : {StorageMode::h16, StorageMode::h8, StorageMode::h4}) {
    std::vector<float> row(40);
    for (std::size_t i = 0; i < 15; ++i) row[i] = static_cast<float>(i) - 7.0f;
    const std::vector<float> got = coded(mode, row);
    if (mode != StorageMode::h8) CHECK(got == row);
    for (std::size_t i = 15; i < 40; ++i) CHECK(got[i] == 0.0f);
    // A small number does not become the greatest of its group where a step is too small to divide
    // by.
    std::vector<float> tiny(40, 1e-41f);
    tiny[1] = -1e-39f;
    const std::vector<float> small = coded(mode, tiny);
    for (std::size_t i = 0; i < 40; ++i) CHECK(std::fabs(small[i]) <= std::fabs(tiny[i]));
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
