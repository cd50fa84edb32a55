// SPDX-License-Identifier: Apache-2.0
// Tests of the packed layout: where values lie, by the description in the header, and what
// quantisation may cost.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/model/packed_matrix.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

constexpr WeightType kTypes[] = {WeightType::f32, WeightType::f16, WeightType::bf16,
                                 WeightType::q8,  WeightType::q4,  WeightType::q4_1};

struct Panel {
  Panel(WeightType type, std::int64_t k, std::span<const float> rows,
        std::span<const float> weights = {})
      : data(packed_data_bytes(type, 16, k)), scales(packed_scale_bytes(type, 16, k)) {
    pack_panel(type, k, rows, data, scales, weights);
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

// 16 rows of k values, uniform in -1..1.
std::vector<float> random_rows(std::int64_t k) {
  std::mt19937 engine(static_cast<std::uint32_t>(k));
  std::vector<float> rows(static_cast<std::size_t>(16 * k));
  for (float& value : rows) value = static_cast<float>(engine()) * 0x1p-31f - 1.0f;
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
          "unknown weight type 'q5'; known are f32, f16, bf16, q8, q4, q4_1");
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
  CHECK(packed_data_bytes(WeightType::q4_1, 17, 33) == 2 * 2 * 4 * 16 * 4);
  CHECK(packed_scale_bytes(WeightType::q4, 1, 1) == 32);
  CHECK(packed_scale_bytes(WeightType::q4_1, 17, 33) == 2 * 2 * 2 * 16 * 2);
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

TEST_CASE("q8 lies as described and loses at most half a step") {
  for (const std::int64_t k : {1, 31, 32, 33, 70}) {
    const std::vector<float> rows = numbered_rows(k);
    const Panel q8(WeightType::q8, k, rows);
    for (std::int64_t row = 0; row < 16; ++row) {
      for (std::int64_t column = 0; column < k; ++column) {
        const std::int64_t g = column / 32, e = column % 32;
        const double value = rows[static_cast<std::size_t>(row * k + column)];
        const double scale = half_to_float(read<std::uint16_t>(q8.scales, g * 16 + row));
        const double q = read<std::int8_t>(q8.data, ((g * 8 + e / 4) * 16 + row) * 4 + e % 4);
        CHECK(std::fabs(q * scale - value) <= 0.501 * scale);
      }
    }
  }
}

// As tl-model(5) has it.
constexpr double kEntries[16] = {-63, -49, -39, -30, -23, -16, -10, -5,
                                 1,   6,   12,  18,  25,  33,  42,  55};

// The half byte of a value of a panel of q4.
int nibble_of(const Panel& q4, std::int64_t row, std::int64_t column) {
  const std::int64_t g = column / 32, e = column % 32;
  const int pair = read<std::uint8_t>(q4.data, (g * 4 + e % 16 / 4) * 64 + row * 4 + e % 4);
  return e < 16 ? pair & 15 : pair >> 4;
}

// The error that a group makes with a scale, each value going to the nearest entry.
double error_with(double scale, std::span<const float> values, std::span<const float> weights) {
  double error = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double least = 1e300;
    for (const double entry : kEntries) {
      least = std::min(least, std::pow(entry * scale - static_cast<double>(values[i]), 2));
    }
    error += least * (weights.empty() ? 1.0 : static_cast<double>(weights[i]));
  }
  return error;
}

TEST_CASE("q4 lies as described, of nearest entries, with a scale that is hard to better") {
  for (const std::int64_t k : {1, 31, 32, 33, 70, 320}) {
    CAPTURE(k);
    const std::vector<float> rows = random_rows(k);
    for (const bool weighted : {false, true}) {
      std::vector<float> weights;
      for (std::int64_t i = 0; weighted && i < k; ++i) {
        weights.push_back(i % 7 == 3 ? 50.0f : 0.5f + static_cast<float>(i % 3));
      }
      const Panel q4(WeightType::q4, k, rows, weights);
      double total = 0.0, fine = 0.0;
      for (std::int64_t row = 0; row < 16; ++row) {
        for (std::int64_t first = 0; first < k; first += 32) {
          const auto count = static_cast<std::size_t>(std::min<std::int64_t>(32, k - first));
          const auto values =
              std::span(rows).subspan(static_cast<std::size_t>(row * k + first), count);
          const auto some = weighted ? std::span(std::as_const(weights))
                                           .subspan(static_cast<std::size_t>(first), count)
                                     : std::span<const float>();
          const double scale = half_to_float(read<std::uint16_t>(q4.scales, first / 32 * 16 + row));
          double error = 0.0;
          for (std::size_t i = 0; i < count; ++i) {
            const auto entry = kEntries[nibble_of(q4, row, first + static_cast<std::int64_t>(i))];
            error += std::pow(entry * scale - static_cast<double>(values[i]), 2) *
                     (weighted ? static_cast<double>(some[i]) : 1.0);
          }
          // Each value is at the nearest entry.
          const double nearest = error_with(scale, values, some);
          CHECK(error <= nearest * (1 + 1e-5) + 1e-12);
          total += error;
          double greatest = 0.0, best = 1e300;
          for (const float value : values) {
            greatest = std::max(greatest, std::fabs(static_cast<double>(value)));
          }
          for (int step = -600; step <= 600; ++step) {
            best = std::min(best, error_with(greatest / 63 * step / 400, values, some));
          }
          fine += best;
        }
      }
      // A search in steps of 1/400 finds little more than one of 52 scales.
      CHECK(total <= 1.1 * fine + 1e-5);
    }
  }
}

TEST_CASE("q4_1 lies as described, of nearest steps, with a range that is hard to better") {
  for (const std::int64_t k : {1, 31, 32, 33, 70}) {
    CAPTURE(k);
    std::vector<float> rows = random_rows(k);
    for (float& value : rows) value = value * 0.25f + 0.5f;  // all of one sign
    const Panel packed(WeightType::q4_1, k, rows);
    double total = 0.0, fine = 0.0;
    for (std::int64_t row = 0; row < 16; ++row) {
      for (std::int64_t first = 0; first < k; first += 32) {
        const auto count = std::min<std::int64_t>(32, k - first);
        const std::int64_t at = first / 32 * 32 + row;
        const double scale = half_to_float(read<std::uint16_t>(packed.scales, at));
        const double minimum = half_to_float(read<std::uint16_t>(packed.scales, at + 16));
        double least = 1e300, greatest = -1e300;
        for (std::int64_t i = first; i < first + count; ++i) {
          const double value = rows[static_cast<std::size_t>(row * k + i)];
          const double error = nibble_of(packed, row, i) * scale + minimum - value;
          least = std::min(least, value);
          greatest = std::max(greatest, value);
          total += error * error;
          for (int step = 0; step < 16; ++step) {
            CHECK(std::fabs(error) <= std::fabs(step * scale + minimum - value) + 1e-6);
          }
        }
        double best = 1e300;
        for (int low = 0; low < 30; ++low) {
          for (int high = 0; high < 30; ++high) {
            const double from = least + (greatest - least) * low / 250.0;
            const double step = (greatest - (greatest - least) * high / 250.0 - from) / 15.0;
            double error = 0.0;
            for (std::int64_t i = first; i < first + count; ++i) {
              const double value = rows[static_cast<std::size_t>(row * k + i)];
              const double nearest =
                  step > 0.0 ? std::clamp(std::nearbyint((value - from) / step), 0.0, 15.0) : 0.0;
              error += std::pow(nearest * step + from - value, 2);
            }
            best = std::min(best, error);
          }
        }
        fine += best;
      }
    }
    CHECK(total <= 1.1 * fine + 1e-5);
  }
}

TEST_CASE("q4_1 takes values over that are on its grid") {
  // As a quantised file has them: 16 steps of an f16 above another, both ends in use.
  const std::int64_t k = 64;
  std::vector<float> rows;
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      const auto step = static_cast<float>(i * 7 % 16);
      const float scale = half_to_float(static_cast<std::uint16_t>(0x2a13 + 5 * row + i / 32));
      rows.push_back(step * scale + half_to_float(static_cast<std::uint16_t>(0xb0f1 + row)));
    }
  }
  const Panel packed(WeightType::q4_1, k, rows);
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      CHECK(unpack_value(WeightType::q4_1, k, packed.data, packed.scales, row, i) ==
            rows[static_cast<std::size_t>(row * k + i)]);
    }
  }
}

TEST_CASE("a weight of q4 that counts more is stored better") {
  const std::int64_t k = 32;
  const std::vector<float> rows = random_rows(k);
  std::vector<float> weights(32, 1.0f);
  weights[5] = weights[20] = 1000.0f;
  const Panel plain(WeightType::q4, k, rows), weighted(WeightType::q4, k, rows, weights);
  const auto error_at = [&](const Panel& panel, std::int64_t column) {
    double sum = 0.0;
    for (std::int64_t row = 0; row < 16; ++row) {
      const double stored = static_cast<double>(
          unpack_value(WeightType::q4, k, panel.data, panel.scales, row, column));
      sum += std::pow(stored - rows[static_cast<std::size_t>(row * k + column)], 2);
    }
    return sum;
  };
  CHECK(error_at(weighted, 5) + error_at(weighted, 20) <
        0.25 * (error_at(plain, 5) + error_at(plain, 20)));
}

TEST_CASE("what lies beyond k counts nothing") {
  const std::int64_t k = 37;
  const std::vector<float> rows = numbered_rows(k);
  const Panel q8(WeightType::q8, k, rows), q4(WeightType::q4, k, rows);
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t e = k - 32; e < 32; ++e) {
      CHECK(read<std::int8_t>(q8.data, ((8 + e / 4) * 16 + row) * 4 + e % 4) == 0);
      CHECK(nibble_of(q4, row, 32 + e) == 8);
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
    const double step = type == WeightType::q8     ? 17.0 / 127
                        : type == WeightType::q4   ? 17.0 * 14 / 63
                        : type == WeightType::q4_1 ? 2 * 17.0 / 15
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
    const Panel q8(WeightType::q8, 32, rows), q4(WeightType::q4, 32, rows);
    const float scale = half_to_float(read<std::uint16_t>(q8.scales, 0));
    CHECK(std::fabs(unpack_value(WeightType::q8, 32, q8.data, q8.scales, 0, 0) - greatest) <=
          0.5f * scale);
    // Entries are 14 of 63 apart at most; and there are few such small scales.
    CHECK(std::fabs(unpack_value(WeightType::q4, 32, q4.data, q4.scales, 0, 0) - greatest) <=
          0.2f * greatest + 0x1p-24f);
  }
}

}  // namespace
}  // namespace tinyloop
