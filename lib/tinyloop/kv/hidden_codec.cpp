// SPDX-License-Identifier: Apache-2.0
// Plain loops: a record is written once for a position and plane, beside matrix products.
#include "tinyloop/kv/hidden_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tinyloop/number_formats.h"

namespace tinyloop {

namespace {

constexpr std::size_t kGroup = 32;

std::size_t groups_of(std::size_t hidden) { return (hidden + kGroup - 1) / kGroup; }

float rounded(float x, float inverse, float limit) {
  const float scaled = std::nearbyint(x * inverse);
  // Not a number: the scale is none either, so decoding gives none again.
  return scaled == scaled ? std::clamp(scaled, -limit, limit) : 0.0f;
}

}  // namespace

std::size_t hidden_record_bytes(StorageMode mode, std::int64_t hidden) {
  const auto width = static_cast<std::size_t>(hidden);
  if (mode == StorageMode::h16) return (width * 2 + 3) / 4 * 4;
  return groups_of(width) * (sizeof(float) + (mode == StorageMode::h8 ? kGroup : kGroup / 2));
}

void encode_hidden(StorageMode mode, std::span<float> row, std::span<std::byte> record) {
  std::ranges::fill(record, std::byte{0});
  if (mode == StorageMode::h16) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::uint16_t half = float_to_half(row[i]);
      std::memcpy(&record[2 * i], &half, sizeof(half));
    }
  } else {
    const std::size_t groups = groups_of(row.size());
    const std::span<std::byte> values = record.subspan(groups * sizeof(float));
    const float limit = mode == StorageMode::h8 ? 127.0f : 7.0f;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::span<const float> group =
          row.subspan(g * kGroup, std::min(kGroup, row.size() - g * kGroup));
      float greatest = 0.0f;
      bool finite = true;
      for (const float x : group) {
        greatest = std::max(greatest, std::fabs(x));
        finite = finite && std::isfinite(x);
      }
      const float scale = finite ? greatest / limit : NAN;
      // Numbers so small that the quotient is infinite become zeros.
      const float quotient = 1.0f / scale;
      const float inverse = scale > 0.0f && !std::isinf(quotient) ? quotient : 0.0f;
      std::memcpy(&record[g * sizeof(float)], &scale, sizeof(scale));
      for (std::size_t j = 0; j < group.size(); ++j) {
        const int q = static_cast<int>(rounded(group[j], inverse, limit));
        if (mode == StorageMode::h8) {
          values[g * kGroup + j] = static_cast<std::byte>(q);
        } else {
          values[g * kGroup / 2 + j % 16] |=
              static_cast<std::byte>(static_cast<unsigned>(q + 8) << (j < 16 ? 0 : 4));
        }
      }
    }
  }
  decode_hidden(mode, record, row);
}

void decode_hidden(StorageMode mode, std::span<const std::byte> record, std::span<float> row) {
  if (mode == StorageMode::h16) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, &record[2 * i], sizeof(half));
      row[i] = half_to_float(half);
    }
    return;
  }
  const std::span<const std::byte> values = record.subspan(groups_of(row.size()) * sizeof(float));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::size_t g = i / kGroup, j = i % kGroup;
    float scale = 0.0f;
    std::memcpy(&scale, &record[g * sizeof(float)], sizeof(scale));
    int q = 0;
    if (mode == StorageMode::h8) {
      q = static_cast<std::int8_t>(values[i]);
    } else {
      const auto both = static_cast<unsigned>(values[g * kGroup / 2 + j % 16]);
      q = static_cast<int>((j < 16 ? both : both >> 4) & 15u) - 8;
    }
    row[i] = static_cast<float>(q) * scale;
  }
}

}  // namespace tinyloop
