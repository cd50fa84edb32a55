// SPDX-License-Identifier: Apache-2.0
// Plain loops: a record is written once for a position and plane, beside matrix products.
#include "tinyloop/kv/hidden_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tinyloop/number_formats.h"

namespace tinyloop {

namespace {

constexpr std::size_t kGroup = 32, kScaleBytes = 2;

std::size_t groups_of(std::size_t hidden) { return (hidden + kGroup - 1) / kGroup; }

std::size_t hadamard_block(std::size_t hidden) { return hidden & (~hidden + 1); }

void hadamard(std::span<float> row) {
  const std::size_t block = hadamard_block(row.size());
  for (std::size_t half = 1; half < block; half *= 2) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if ((i & half) != 0) continue;
      const float a = row[i], b = row[i + half];
      row[i] = a + b;
      row[i + half] = a - b;
    }
  }
}

struct GroupScale {
  std::uint16_t stored;  // bf16
  float inverse;
};

GroupScale scale_of(std::span<const float> group, float limit) {
  float greatest = 0.0f;
  bool finite = true;
  for (const float x : group) {
    greatest = std::max(greatest, std::fabs(x));
    finite = finite && std::isfinite(x);
  }
  if (!finite) return {0x7fc0, 0.0f};
  const std::uint32_t up = (std::bit_cast<std::uint32_t>(greatest / limit) + 0xffffu) >> 16;
  const float inverse = 1.0f / std::bit_cast<float>(up << 16);
  if (std::isinf(inverse)) return {0, 0.0f};
  if (std::ranges::find(group, greatest) == group.end()) {
    return {static_cast<std::uint16_t>(up), inverse};
  }
  return {static_cast<std::uint16_t>(up | 0x8000u), -inverse};
}

}  // namespace

std::size_t hidden_record_bytes(StorageMode mode, std::int64_t hidden) {
  const auto width = static_cast<std::size_t>(hidden);
  if (mode == StorageMode::h16) return (width * 2 + 3) / 4 * 4;
  const std::size_t group = kScaleBytes + (mode == StorageMode::h8 ? kGroup : kGroup / 2);
  return (groups_of(width) * group + 3) / 4 * 4;
}

void encode_hidden(StorageMode mode, std::span<float> row, std::span<std::byte> record) {
  std::ranges::fill(record, std::byte{0});
  if (mode == StorageMode::h16) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::uint16_t half = float_to_half(row[i]);
      std::memcpy(&record[2 * i], &half, sizeof(half));
    }
  } else {
    hadamard(row);
    const std::size_t groups = groups_of(row.size());
    const std::span<std::byte> values = record.subspan(groups * kScaleBytes);
    const float limit = mode == StorageMode::h8 ? 128.0f : 8.0f;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::span<const float> group =
          row.subspan(g * kGroup, std::min(kGroup, row.size() - g * kGroup));
      const GroupScale scale = scale_of(group, limit);
      std::memcpy(&record[g * kScaleBytes], &scale.stored, kScaleBytes);
      for (std::size_t j = 0; j < group.size(); ++j) {
        const float steps = scale.inverse == 0.0f ? 0.0f : std::nearbyint(group[j] * scale.inverse);
        const int q = static_cast<int>(std::clamp(steps, -limit, limit - 1.0f));
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
  const std::span<const std::byte> values = record.subspan(groups_of(row.size()) * kScaleBytes);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::size_t g = i / kGroup, j = i % kGroup;
    std::uint16_t scale = 0;
    std::memcpy(&scale, &record[g * kScaleBytes], kScaleBytes);
    int q = 0;
    if (mode == StorageMode::h8) {
      q = static_cast<std::int8_t>(values[i]);
    } else {
      const auto both = static_cast<unsigned>(values[g * kGroup / 2 + j % 16]);
      q = static_cast<int>((j < 16 ? both : both >> 4) & 15u) - 8;
    }
    row[i] = static_cast<float>(q) * std::bit_cast<float>(std::uint32_t{scale} << 16);
  }
  hadamard(row);
  const float part = 1.0f / static_cast<float>(hadamard_block(row.size()));
  for (float& x : row) x *= part;
}

}  // namespace tinyloop
