// SPDX-License-Identifier: Apache-2.0
// Tests of the packed layout: where values lie, by the description in the header, and what
// quantisation may cost.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/model/packed_matrix.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

constexpr WeightType kTypes[] = {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q8,
                                 WeightType::q4};

struct Panel {
  Panel(WeightType type, std::int64_t k, std::span<const float> rows)
      : data(packed_data_bytes(type, 16, k)), scales(packed_scale_bytes(type, 16, k)) {
    pack_panel(type, k, rows, data, scales);
  }
  std::vector<std::byte> data, scales;
};

// 16 rows of k values, each different: row + column / 1000, alternating in sign.
std::vector<float> numbered_rows(std::int64_t k) {
  std::vector<float> rows;
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t column = 0; column < k; ++column) {
      const float value = static_cast<float>(row + 1) + static_cast<float>(column) / 1000.0f;
      rows.push_back(column % 2 == 0 ? value : -value);
    }
  }
  return rows;
}

template <typename T>
T read(const std::vector<std::byte>& bytes, std::int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

TEST_CASE("names") {
  for (const WeightType type : kTypes) CHECK(parse_weight_type(name_of(type)) == type);
  CHECK(name_of(WeightType::bf16) == "bf16");
  try {
    parse_weight_type("q5");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()) ==
          "unknown weight type 'q5'; known are f32, f16, bf16, q8, q4");
  }
}

TEST_CASE("sizes") {
  CHECK(panels_of(1) == 1);
  CHECK(panels_of(16) == 1);
  CHECK(panels_of(17) == 2);
  CHECK(groups_of(33) == 2);
  CHECK(packed_data_bytes(WeightType::f32, 17, 5) == 2 * 5 * 16 * 4);
  CHECK(packed_data_bytes(WeightType::f16, 17, 5) == 2 * 5 * 16 * 2);
  CHECK(packed_data_bytes(WeightType::bf16, 16, 5) == 5 * 16 * 2);
  CHECK(packed_data_bytes(WeightType::q8, 17, 33) == 2 * 2 * 8 * 16 * 4);
  CHECK(packed_data_bytes(WeightType::q4, 17, 33) == 2 * 2 * 4 * 16 * 4);
  CHECK(packed_scale_bytes(WeightType::q8, 17, 33) == 2 * 2 * 16 * 2);
  CHECK(packed_scale_bytes(WeightType::q4, 1, 1) == 32);
  CHECK(packed_scale_bytes(WeightType::f16, 17, 33) == 0);
}

TEST_CASE("plain types lie as [k][16]") {
  const std::int64_t k = 7;
  const std::vector<float> rows = numbered_rows(k);
  const Panel f32(WeightType::f32, k, rows), f16(WeightType::f16, k, rows),
      bf16(WeightType::bf16, k, rows);
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t column = 0; column < k; ++column) {
      const float value = rows[static_cast<std::size_t>(row * k + column)];
      CHECK(read<float>(f32.data, column * 16 + row) == value);
      CHECK(read<std::uint16_t>(f16.data, column * 16 + row) == float_to_half(value));
      CHECK(read<std::uint16_t>(bf16.data, column * 16 + row) == float_to_bfloat(value));
    }
  }
}

TEST_CASE("q8 and q4 lie as described and lose at most half a step") {
  for (const std::int64_t k : {1, 31, 32, 33, 70}) {
    const std::vector<float> rows = numbered_rows(k);
    const Panel q8(WeightType::q8, k, rows), q4(WeightType::q4, k, rows);
    for (std::int64_t row = 0; row < 16; ++row) {
      for (std::int64_t column = 0; column < k; ++column) {
        const std::int64_t g = column / 32, e = column % 32;
        const double value = rows[static_cast<std::size_t>(row * k + column)];
        const double scale8 = half_to_float(read<std::uint16_t>(q8.scales, g * 16 + row));
        const double q = read<std::int8_t>(q8.data, ((g * 8 + e / 4) * 16 + row) * 4 + e % 4);
        CHECK(std::fabs(q * scale8 - value) <= 0.501 * scale8);
        const double scale4 = half_to_float(read<std::uint16_t>(q4.scales, g * 16 + row));
        const int pair = read<std::uint8_t>(q4.data, ((g * 4 + e % 16 / 4) * 16 + row) * 4 + e % 4);
        const int nibble = (e < 16 ? pair & 15 : pair >> 4) - 8;
        CHECK(std::abs(nibble) <= 7);
        CHECK(std::fabs(nibble * scale4 - value) <= 0.501 * scale4);
      }
    }
  }
}

TEST_CASE("what lies beyond k is zero") {
  const std::int64_t k = 37;
  const std::vector<float> rows = numbered_rows(k);
  const Panel q8(WeightType::q8, k, rows), q4(WeightType::q4, k, rows);
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t e = k - 32; e < 32; ++e) {
      CHECK(read<std::int8_t>(q8.data, ((8 + e / 4) * 16 + row) * 4 + e % 4) == 0);
      const int pair = read<std::uint8_t>(q4.data, ((4 + e % 16 / 4) * 16 + row) * 4 + e % 4);
      CHECK((e < 16 ? pair & 15 : pair >> 4) == 8);
    }
  }
}

TEST_CASE("unpack_value finds every value in several panels") {
  const std::int64_t k = 45;
  const std::vector<float> one = numbered_rows(k);
  for (const WeightType type : kTypes) {
    // The second panel is the first one with the opposite sign.
    std::vector<float> other = one;
    for (float& value : other) value = -value;
    const Panel first(type, k, one), second(type, k, other);
    std::vector<std::byte> data = first.data, scales = first.scales;
    data.insert(data.end(), second.data.begin(), second.data.end());
    scales.insert(scales.end(), second.scales.begin(), second.scales.end());
    const double step = type == WeightType::q8   ? 17.0 / 127
                        : type == WeightType::q4 ? 17.0 / 7
                                                 : 0.125;  // bf16 from 16 on
    for (std::int64_t row = 0; row < 32; ++row) {
      for (std::int64_t column = 0; column < k; ++column) {
        const float expected =
            (row < 16 ? one : other)[static_cast<std::size_t>(row % 16 * k + column)];
        const float value = unpack_value(type, k, data, scales, row, column);
        if (type == WeightType::f32) {
          CHECK(value == expected);
        } else {
          CHECK(std::fabs(static_cast<double>(value) - static_cast<double>(expected)) <=
                0.51 * step);
        }
      }
    }
  }
}

TEST_CASE("scales are the nearest f16 that does not clip") {
  // 0x1p-27 / 127 would round to 0, which clips everything: the smallest f16 is taken. Beyond 127 *
  // 65504 values clip.
  struct Case {
    WeightType type;
    float greatest, scale;
  };
  const Case cases[] = {
      {WeightType::q8, 100.0f, half_to_float(float_to_half(100.0f / 127.0f))},
      {WeightType::q4, 7.0f + 0x1p-9f, 1.0f},
      {WeightType::q8, 0x1p-27f, 0x1p-24f},
      {WeightType::q8, 0.0f, 0.0f},
      {WeightType::q8, 1e30f, 65504.0f},
  };
  for (const Case& c : cases) {
    std::vector<float> rows(16 * 32, 0.0f);
    rows[3 * 32 + 5] = -c.greatest;
    const Panel panel(c.type, 32, rows);
    CHECK(half_to_float(read<std::uint16_t>(panel.scales, 3)) == c.scale);
    CHECK(read<std::uint16_t>(panel.scales, 4) == 0);
    const float stored = unpack_value(c.type, 32, panel.data, panel.scales, 3, 5);
    if (c.greatest < 1e20f) {
      CHECK(std::fabs(stored + c.greatest) <= 0.51f * c.scale);
    } else {
      CHECK(stored == -127.0f * 65504.0f);
    }
  }
}

TEST_CASE("rounding a tiny scale down never clips") {
  // Subnormal f16 scales are coarse: 127.4 steps of 2^-24 / 127 ... every magnitude must stay
  // within half a step.
  for (int i = 1; i < 4000; ++i) {
    const float greatest = static_cast<float>(i) * 0x1p-22f;
    std::vector<float> rows(16 * 32, 0.0f);
    rows[0] = greatest;
    for (const WeightType type : {WeightType::q8, WeightType::q4}) {
      const Panel panel(type, 32, rows);
      const float scale = half_to_float(read<std::uint16_t>(panel.scales, 0));
      const float stored = unpack_value(type, 32, panel.data, panel.scales, 0, 0);
      CHECK(std::fabs(stored - greatest) <= 0.5f * scale);
    }
  }
}

}  // namespace
}  // namespace tinyloop
