// SPDX-License-Identifier: Apache-2.0
// Packs weight matrices into panels and looks single values up. Not fast, not meant to be:
// conversion happens once.
#include "tinyloop/model/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string>

#include "tinyloop/error.h"
#include "tinyloop/model/codebook.h"
#include "tinyloop/model/codebook_search.h"
#include "tinyloop/model/minimum_search.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

struct TypeRow {
  WeightType type;
  std::string_view name;
  std::int64_t bits;  // of one stored value
};

constexpr TypeRow kTypes[] = {
    {WeightType::f32, "f32", 32}, {WeightType::f16, "f16", 16}, {WeightType::bf16, "bf16", 16},
    {WeightType::q8, "q8", 8},    {WeightType::q4, "q4", 4},    {WeightType::q4_1, "q4_1", 4},
};

const TypeRow& row_of(WeightType type) { return kTypes[static_cast<std::size_t>(type)]; }

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

constexpr float kGreatestQ8 = 127.0f;

// The f16 scale of a group of q8 whose greatest magnitude is given, as bits.
std::uint16_t scale_of(float magnitude) {
  if (magnitude == 0.0f) return 0;
  constexpr std::uint16_t kLargestFinite = 0x7bff;
  std::uint16_t scale = std::min(float_to_half(magnitude / kGreatestQ8), kLargestFinite);
  const bool clips = std::nearbyint(magnitude / half_to_float(scale)) > kGreatestQ8;
  if (clips && scale < kLargestFinite) ++scale;  // the next f16: positive halves order as integers
  return scale;
}

// One value of a group of q8 as an integer.
std::int32_t quantise(float value, float scale) {
  if (scale == 0.0f) return 0;
  return static_cast<std::int32_t>(
      std::clamp(std::nearbyint(value / scale), -kGreatestQ8, kGreatestQ8));
}

// Where W[lane][32 * group + e] sits inside a panel of q8: [groups][8][16][4].
std::int64_t q8_offset(std::int64_t group, std::int64_t lane, std::int64_t e) {
  return ((group * 8 + e / 4) * kPanel + lane) * 4 + e % 4;
}

// The same for q4, [groups][4][16][4] bytes; e >= 16 is the high nibble.
std::int64_t q4_offset(std::int64_t group, std::int64_t lane, std::int64_t e) {
  return ((group * 4 + e % 16 / 4) * kPanel + lane) * 4 + e % 4;
}

// One group of q8; its scale is returned as bits.
std::uint16_t pack_q8_group(std::span<const float> values, std::byte* data, std::int64_t group,
                            std::int64_t lane) {
  float magnitude = 0.0f;
  for (const float value : values) magnitude = std::max(magnitude, std::fabs(value));
  const std::uint16_t bits = scale_of(magnitude);
  for (std::int64_t e = 0; e < kGroup; ++e) {
    const auto at = static_cast<std::size_t>(e);
    const std::int32_t q = at < values.size() ? quantise(values[at], half_to_float(bits)) : 0;
    data[q8_offset(group, lane, e)] = static_cast<std::byte>(q & 0xff);
  }
  return bits;
}

void store_nibbles(const std::array<std::uint8_t, 32>& nibbles, std::byte* data, std::int64_t group,
                   std::int64_t lane) {
  for (std::int64_t e = 0; e < kGroup / 2; ++e) {
    const auto low = static_cast<std::size_t>(e), high = static_cast<std::size_t>(e + kGroup / 2);
    data[q4_offset(group, lane, e)] = static_cast<std::byte>(nibbles[low] | (nibbles[high] << 4));
  }
}

// Where a group's f16 scale sits in a panel; a minimum follows kPanel scales later.
std::int64_t scale_offset(WeightType type, std::int64_t group, std::int64_t lane) {
  return ((type == WeightType::q4_1 ? 2 * group : group) * kPanel + lane) * 2;
}

// rows[16][k] to one panel of a quantised type.
void pack_quantised(WeightType type, std::int64_t k, std::span<const float> rows, std::byte* data,
                    std::byte* scales, std::span<const float> weights) {
  for (std::int64_t group = 0; group < groups_of(k); ++group) {
    const std::int64_t first = group * kGroup;
    const auto count = static_cast<std::size_t>(std::min(kGroup, k - first));
    const auto some =
        weights.empty() ? weights : weights.subspan(static_cast<std::size_t>(first), count);
    for (std::int64_t lane = 0; lane < kPanel; ++lane) {
      const auto values = rows.subspan(static_cast<std::size_t>(lane * k + first), count);
      std::byte* scale = scales + scale_offset(type, group, lane);
      if (type == WeightType::q8) {
        store(scale, pack_q8_group(values, data, group, lane));
      } else if (type == WeightType::q4) {
        const CodebookGroup packed = search_codebook_scale(values, some);
        store_nibbles(packed.nibbles, data, group, lane);
        store(scale, packed.scale);
      } else {
        const MinimumGroup packed = search_minimum(values, some);
        store_nibbles(packed.nibbles, data, group, lane);
        store(scale, packed.scale);
        store(scale + kPanel * 2, packed.minimum);
      }
    }
  }
}

}  // namespace

std::string_view name_of(WeightType type) { return row_of(type).name; }

WeightType parse_weight_type(std::string_view name) {
  std::string known;
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  throw Error(ErrorKind::usage, "unknown weight type '{}'; known are {}", name, known);
}

std::size_t packed_data_bytes(WeightType type, std::int64_t n, std::int64_t k) {
  const std::int64_t stored = is_quantised(type) ? groups_of(k) * kGroup : k;
  return static_cast<std::size_t>(panels_of(n) * stored * kPanel * row_of(type).bits / 8);
}

std::size_t packed_scale_bytes(WeightType type, std::int64_t n, std::int64_t k) {
  if (!is_quantised(type)) return 0;
  const std::int64_t numbers = type == WeightType::q4_1 ? 2 : 1;  // of a group and row
  return static_cast<std::size_t>(panels_of(n) * groups_of(k) * numbers * kPanel * 2);
}

void pack_panel(WeightType type, std::int64_t k, std::span<const float> rows,
                std::span<std::byte> data, std::span<std::byte> scales,
                std::span<const float> weights) {
  assert(weights.empty() || weights.size() == static_cast<std::size_t>(k));
  assert(rows.size() == static_cast<std::size_t>(kPanel * k));
  assert(data.size() == packed_data_bytes(type, kPanel, k));
  assert(scales.size() == packed_scale_bytes(type, kPanel, k));
  if (is_quantised(type)) {
    pack_quantised(type, k, rows, data.data(), scales.data(), weights);
    return;
  }
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t lane = 0; lane < kPanel; ++lane) {
      const float value = rows[static_cast<std::size_t>(lane * k + i)];
      const std::int64_t at = i * kPanel + lane;
      if (type == WeightType::f32) {
        store(data.data() + at * 4, value);
      } else if (type == WeightType::f16) {
        store(data.data() + at * 2, float_to_half(value));
      } else {
        store(data.data() + at * 2, float_to_bfloat(value));
      }
    }
  }
}

float unpack_value(WeightType type, std::int64_t k, std::span<const std::byte> data,
                   std::span<const std::byte> scales, std::int64_t row, std::int64_t column) {
  const std::int64_t panel = row / kPanel, lane = row % kPanel;
  if (!is_quantised(type)) {
    const std::int64_t at = (panel * k + column) * kPanel + lane;
    if (type == WeightType::f32) return load<float>(data.data() + at * 4);
    const auto bits = load<std::uint16_t>(data.data() + at * 2);
    return type == WeightType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
  }
  const std::int64_t group = panel * groups_of(k) + column / kGroup, e = column % kGroup;
  const std::byte* numbers = scales.data() + scale_offset(type, group, lane);
  const float scale = half_to_float(load<std::uint16_t>(numbers));
  if (type == WeightType::q8) {
    return static_cast<float>(load<std::int8_t>(data.data() + q8_offset(group, lane, e))) * scale;
  }
  const auto pair =
      std::to_integer<std::int32_t>(data[static_cast<std::size_t>(q4_offset(group, lane, e))]);
  const std::int32_t nibble = e < kGroup / 2 ? pair & 15 : pair >> 4;
  if (type == WeightType::q4) return static_cast<float>(kCodebook[nibble]) * scale;
  // The product is exact in float, so that the sum is rounded once.
  return static_cast<float>(nibble) * scale +
         half_to_float(load<std::uint16_t>(numbers + kPanel * 2));
}

}  // namespace tinyloop
