// SPDX-License-Identifier: Apache-2.0
// Names and sizes of K and V tiles in each storage mode. Encoding and decoding happen on the
// device.
#include "tinyloop/device/kv_tile.h"

namespace tinyloop {
namespace {

struct ModeRow {
  std::string_view name;
  std::int64_t key_bits, value_bits;  // of one stored value
};

// In the order of the enumeration.
constexpr ModeRow kModes[] = {{"f32", 32, 32}, {"f16", 16, 16}, {"int8", 8, 8}, {"int4", 5, 4}};

constexpr std::int64_t kScaleBytes = kTile * 2;  // of one group

const ModeRow& row_of(KvMode mode) { return kModes[static_cast<std::size_t>(mode)]; }

std::size_t whole_lines(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes + 63) / 64 * 64;
}

}  // namespace

std::string_view name_of(KvMode mode) { return row_of(mode).name; }

std::size_t KvGeometry::key_group_bytes() const {
  if (!grouped()) return 0;
  return static_cast<std::size_t>(kScaleBytes + kKvGroup * kTile * row_of(mode).key_bits / 8);
}

std::size_t KvGeometry::value_scale_bytes() const {
  return grouped() ? whole_lines(groups() * kScaleBytes) : 0;
}

std::size_t KvGeometry::key_bytes() const {
  return whole_lines((grouped() ? groups() * kScaleBytes : 0) +
                     head_dim * kTile * row_of(mode).key_bits / 8);
}

std::size_t KvGeometry::value_bytes() const {
  return value_scale_bytes() + whole_lines(padded_head_dim() * kTile * row_of(mode).value_bits / 8);
}

}  // namespace tinyloop
