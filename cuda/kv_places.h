// SPDX-License-Identifier: Apache-2.0
// Where keys and values are: tiles found through the segment tables, and places inside a tile as
// device/kv_tile.h describes them. For .cu files only; computes nothing with them.
#pragma once

#include "device_values.h"

namespace tinyloop::cuda {
namespace {

// KvGeometry with its sizes worked out, which devices cannot ask it for.
struct TileLayout {
  std::int32_t kv_heads, head_dim, panels;  // panels of 16 channels in the V part
  std::int64_t scale_bytes, key_bytes, tile_bytes;
};

inline TileLayout layout_of(const KvGeometry& kv) {
  return {kv.kv_heads,
          kv.head_dim,
          static_cast<std::int32_t>(kv.padded_head_dim() / 16),
          static_cast<std::int64_t>(kv.scale_bytes()),
          static_cast<std::int64_t>(kv.key_bytes()),
          static_cast<std::int64_t>(kv.tile_bytes())};
}

// The tile of a (sequence, plane, head), which exists.
TL_DEVICE unsigned char* find_tile(const KvTables& tables, const TileLayout& layout,
                                   std::int32_t sequence, std::int64_t plane, std::int64_t head,
                                   std::int64_t tile) {
  const KvSequence of = tables.sequences[sequence];
  std::int32_t first = of.first_segment, end = of.first_segment + of.segments;
  while (end - first > 1) {
    const std::int32_t middle = (first + end) / 2;
    if (tables.segments[middle].first_tile <= tile) {
      first = middle;
    } else {
      end = middle;
    }
  }
  const KvSegment& segment = tables.segments[first];
  return reinterpret_cast<unsigned char*>(segment.base.address) + plane * segment.plane_stride +
         head * segment.head_stride + (tile - segment.first_tile) * layout.tile_bytes;
}

template <KvMode kMode>
struct KvModeConstant {
  static constexpr KvMode value = kMode;
};
template <typename F>
void with_kv_mode(KvMode mode, F&& f) {
  switch (mode) {
    case KvMode::f32:
      return f(KvModeConstant<KvMode::f32>());
    case KvMode::f16:
      return f(KvModeConstant<KvMode::f16>());
    case KvMode::int8:
      return f(KvModeConstant<KvMode::int8>());
    case KvMode::int4:
      return f(KvModeConstant<KvMode::int4>());
  }
}

// Bytes of 16 neighbours.
template <KvMode kMode>
constexpr std::int64_t kVectorBytes = kMode == KvMode::f32    ? 64
                                      : kMode == KvMode::f16  ? 32
                                      : kMode == KvMode::int8 ? 16
                                                              : 8;

}  // namespace
}  // namespace tinyloop::cuda
