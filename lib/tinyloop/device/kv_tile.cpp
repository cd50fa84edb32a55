// SPDX-License-Identifier: Apache-2.0
// Names and sizes of K and V tiles in each storage mode. Encoding and decoding happen on the
// device.
#include "tinyloop/device/kv_tile.h"

namespace tinyloop {
namespace {

struct ModeRow {
  KvMode mode;
  std::string_view name;
  std::int64_t bits;  // of one stored value
  bool scaled;        // one f32 scale for each position
};

constexpr ModeRow kModes[] = {
    {KvMode::f32, "f32", 32, false},
    {KvMode::f16, "f16", 16, false},
    {KvMode::int8, "int8", 8, true},
    {KvMode::int4, "int4", 4, true},
};

const ModeRow& row_of(KvMode mode) { return kModes[static_cast<std::size_t>(mode)]; }

std::size_t part_bytes(KvMode mode, std::int64_t channels) {
  const ModeRow& row = row_of(mode);
  const auto values = static_cast<std::size_t>(channels * kTile * row.bits / 8);
  return (row.scaled ? kTile * sizeof(float) : 0) + (values + 63) / 64 * 64;
}

}  // namespace

std::string_view name_of(KvMode mode) { return row_of(mode).name; }

std::size_t KvGeometry::scale_bytes() const {
  return row_of(mode).scaled ? kTile * sizeof(float) : 0;
}

std::size_t KvGeometry::key_bytes() const { return part_bytes(mode, head_dim); }

std::size_t KvGeometry::value_bytes() const { return part_bytes(mode, padded_head_dim()); }

}  // namespace tinyloop
