// SPDX-License-Identifier: Apache-2.0
// Rotation, and storing and copying of keys and values, as the same bytes as on the CPU.
// kernels_attention reads them.
#include "kv_places.h"

namespace tinyloop::cuda {
namespace {

// --- rotation: one warp a head of a row ---------------------------------------------------------

constexpr std::uint32_t kRotateWarps = 4;

struct RotateCall {
  Rows qkv;
  std::int64_t rows;
  RotateShape shape;
  const float *angles, *bias, *q_norm, *k_norm;
};

TL_GLOBAL void rotate_kernel(RotateCall call) {
  const std::int32_t heads = call.shape.heads + call.shape.kv_heads, head_dim = call.shape.head_dim;
  const std::uint32_t lane = thread_index() % 32, warp = thread_index() / 32;
  const std::int64_t item = std::int64_t{block_x()} * kRotateWarps + warp;
  if (item >= call.rows * heads) return;
  const std::int64_t r = item / heads, head = item % heads;
  float* const place = row_at(call.qkv, r) + head * head_dim;
  float* const x = reinterpret_cast<float*>(shared_memory()) + warp * head_dim;
  for (std::int32_t d = static_cast<std::int32_t>(lane); d < head_dim; d += 32) {
    x[d] = call.bias != nullptr ? place[d] + call.bias[head * head_dim + d] : place[d];
  }
  warp_barrier();
  const float* norm = head < call.shape.heads ? call.q_norm : call.k_norm;
  if (norm != nullptr) {
    float squares = 0.0f;
    for (std::int32_t d = static_cast<std::int32_t>(lane % 16); d < head_dim; d += 16) {
      squares = fma(x[d], x[d], squares);
    }
    const float mean = divide(sum_of_16(squares), static_cast<float>(head_dim));
    const float factor = divide(1.0f, square_root(mean + call.shape.norm_eps));
    warp_barrier();
    for (std::int32_t d = static_cast<std::int32_t>(lane); d < head_dim; d += 32) {
      x[d] = x[d] * factor * norm[d];
    }
    warp_barrier();
  }
  const std::int32_t pairs = head_dim / 2;
  const float* angles = call.angles + r * pairs * 2;
  for (std::int32_t i = static_cast<std::int32_t>(lane); i < pairs; i += 32) {
    const std::int32_t first = call.shape.interleaved ? 2 * i : i;
    const std::int32_t second = call.shape.interleaved ? 2 * i + 1 : i + pairs;
    const float a = x[first], b = x[second], cosine = angles[2 * i], sine = angles[2 * i + 1];
    place[first] = fma(a, cosine, -(b * sine));
    place[second] = fma(b, cosine, a * sine);
  }
  if (head_dim % 2 != 0 && lane == 0) place[head_dim - 1] = x[head_dim - 1];
}

// --- storing: one warp a head of a row ----------------------------------------------------------

constexpr std::uint32_t kAppendWarps = 4;

struct AppendCall {
  Rows k, v;
  const KvRow* rows;
  std::int64_t count;
  KvTables tables;
  TileLayout layout;
};

// scale = greatest magnitude / limit, q = round(x * (1 / scale)); zeros where 1 / scale would be
// infinite.
struct QuantisedScale {
  float scale, inverse;
};
TL_DEVICE QuantisedScale scale_of(const float* x, std::int32_t count, float limit,
                                  std::uint32_t lane) {
  float most = 0.0f;
  for (std::int32_t d = static_cast<std::int32_t>(lane); d < count; d += 32) {
    const std::uint32_t magnitude = bits_of(x[d]) & 0x7fffffffu;
    most = float_of(most_of(bits_of(most), magnitude));
  }
  const float scale = divide(greatest_of_warp(most), limit);
  const float inverse = divide(1.0f, scale);
  if (inverse > kGreatestFloat) return {0.0f, 0.0f};
  return {scale, inverse};
}
TL_DEVICE std::int32_t quantise(float x, float inverse, float limit) {
  const float scaled = x * inverse;
  return round_to_int(scaled > limit ? limit : scaled < -limit ? -limit : scaled);
}

template <KvMode kMode>
TL_GLOBAL void append_kernel(AppendCall call) {
  const TileLayout& layout = call.layout;
  const std::uint32_t lane = thread_index() % 32;
  const std::int64_t item = std::int64_t{block_x()} * kAppendWarps + thread_index() / 32;
  if (item >= call.count * layout.kv_heads) return;
  const std::int64_t r = item / layout.kv_heads, head = item % layout.kv_heads;
  const std::int32_t head_dim = layout.head_dim;
  const float* k = row_at(call.k, r) + head * head_dim;
  const float* v = row_at(call.v, r) + head * head_dim;
  const KvRow row = call.rows[r];
  const auto place = static_cast<std::int32_t>(row.position % 16);
  unsigned char* tile =
      find_tile(call.tables, layout, row.sequence, row.plane, head, row.position / 16);
  unsigned char* k_part = tile + layout.scale_bytes;
  unsigned char* v_part = tile + layout.key_bytes + layout.scale_bytes;

  constexpr float kLimit = kMode == KvMode::int8 ? 127.0f : 7.0f;
  QuantisedScale k_scale = {}, v_scale = {};
  if constexpr (kMode == KvMode::int8 || kMode == KvMode::int4) {
    k_scale = scale_of(k, head_dim, kLimit, lane);
    v_scale = scale_of(v, head_dim, kLimit, lane);
    if (lane == 0) {
      reinterpret_cast<float*>(tile)[place] = k_scale.scale;
      reinterpret_cast<float*>(tile + layout.key_bytes)[place] = v_scale.scale;
    }
  }
  for (std::int32_t d = static_cast<std::int32_t>(lane); d < head_dim; d += 32) {
    if constexpr (kMode == KvMode::f32) {
      reinterpret_cast<float*>(k_part)[d * 16 + place] = k[d];
    } else if constexpr (kMode == KvMode::f16) {
      reinterpret_cast<std::uint16_t*>(k_part)[d * 16 + place] = narrow_f16(k[d]);
    } else if constexpr (kMode == KvMode::int8) {
      k_part[d * 16 + place] = static_cast<unsigned char>(quantise(k[d], k_scale.inverse, kLimit));
    } else {
      // Two positions share a byte and may be stored at the same time: each changes its own bits.
      const auto nibble = static_cast<std::uint32_t>(quantise(k[d], k_scale.inverse, kLimit) + 8);
      auto* word = reinterpret_cast<std::uint32_t*>(k_part + d * 8) + place % 8 / 4;
      const int shift = place % 4 * 8 + place / 8 * 4;
      atomic_and(word, ~(15u << shift));
      atomic_or(word, (nibble & 15u) << shift);
    }
  }
  // V: channels beyond head_dim are zero. A lane has one channel, or with int4 the pair of a byte.
  if constexpr (kMode == KvMode::int4) {
    for (std::int32_t i = static_cast<std::int32_t>(lane); i < layout.panels * 8; i += 32) {
      const std::int32_t panel = i / 8, low = panel * 16 + i % 8, high = low + 8;
      const std::int32_t low_q = low < head_dim ? quantise(v[low], v_scale.inverse, kLimit) : 0;
      const std::int32_t high_q = high < head_dim ? quantise(v[high], v_scale.inverse, kLimit) : 0;
      v_part[(panel * 16 + place) * 8 + i % 8] =
          static_cast<unsigned char>(((low_q + 8) & 15) | ((high_q + 8) & 15) << 4);
    }
  } else {
    for (std::int32_t d = static_cast<std::int32_t>(lane); d < layout.panels * 16; d += 32) {
      const float value = d < head_dim ? v[d] : 0.0f;
      const std::int32_t at = (d / 16 * 16 + place) * 16 + d % 16;
      if constexpr (kMode == KvMode::f32) {
        reinterpret_cast<float*>(v_part)[at] = value;
      } else if constexpr (kMode == KvMode::f16) {
        reinterpret_cast<std::uint16_t*>(v_part)[at] = narrow_f16(value);
      } else {
        v_part[at] = static_cast<unsigned char>(quantise(value, v_scale.inverse, kLimit));
      }
    }
  }
}

// --- copying: one block a head of a sequence ----------------------------------------------------
// Copies may build on each other, so a block makes those of its sequence one after another, and a
// thread always has the same channels: it reads what it has written itself.

constexpr std::uint32_t kCopyThreads = 128;

struct CopyCall {
  const KvCopy* copies;
  std::int64_t count;
  KvTables tables;
  TileLayout layout;
};

template <typename Value>
TL_DEVICE void copy_value(unsigned char* to, const unsigned char* from, std::int64_t index) {
  reinterpret_cast<Value*>(to)[index] = reinterpret_cast<const Value*>(from)[index];
}

template <KvMode kMode>
TL_DEVICE void copy_position(unsigned char* to, const unsigned char* from, const TileLayout& layout,
                             std::int32_t place) {
  const auto thread = static_cast<std::int32_t>(thread_index());
  constexpr auto kThreads = static_cast<std::int32_t>(kCopyThreads);
  if (layout.scale_bytes > 0 && thread == 0) {
    copy_value<float>(to, from, place);
    copy_value<float>(to + layout.key_bytes, from + layout.key_bytes, place);
  }
  const std::int64_t k = layout.scale_bytes, v = layout.key_bytes + layout.scale_bytes;
  for (std::int32_t d = thread; d < layout.head_dim; d += kThreads) {
    if constexpr (kMode == KvMode::f32) {
      copy_value<float>(to + k, from + k, d * 16 + place);
    } else if constexpr (kMode == KvMode::f16) {
      copy_value<std::uint16_t>(to + k, from + k, d * 16 + place);
    } else if constexpr (kMode == KvMode::int8) {
      copy_value<unsigned char>(to + k, from + k, d * 16 + place);
    } else {
      const std::int64_t at = k + d * 8 + place % 8;
      const int mask = place < 8 ? 0x0f : 0xf0;
      to[at] = static_cast<unsigned char>((to[at] & ~mask) | (from[at] & mask));
    }
  }
  constexpr std::int32_t kPieces = kMode == KvMode::int4 ? 8 : 16;  // of a panel's position
  for (std::int32_t i = thread; i < layout.panels * kPieces; i += kThreads) {
    const std::int64_t at = (i / kPieces * 16 + place) * kPieces + i % kPieces;
    if constexpr (kMode == KvMode::f32) {
      copy_value<float>(to + v, from + v, at);
    } else if constexpr (kMode == KvMode::f16) {
      copy_value<std::uint16_t>(to + v, from + v, at);
    } else {
      copy_value<unsigned char>(to + v, from + v, at);
    }
  }
}

template <KvMode kMode>
TL_GLOBAL void copy_positions_kernel(CopyCall call) {
  const std::int64_t head = block_x() % call.layout.kv_heads;
  const auto sequence = static_cast<std::int32_t>(block_x() / call.layout.kv_heads);
  for (std::int64_t i = 0; i < call.count; ++i) {
    const KvCopy copy = call.copies[i];
    if (copy.sequence != sequence) continue;
    const std::int64_t tile = copy.position / 16;
    copy_position<kMode>(find_tile(call.tables, call.layout, sequence, copy.to_plane, head, tile),
                         find_tile(call.tables, call.layout, sequence, copy.from_plane, head, tile),
                         call.layout, static_cast<std::int32_t>(copy.position % 16));
  }
}

// --- host ---------------------------------------------------------------------------------------

void rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, const float* angles,
            const float* bias, const float* q_norm, const float* k_norm, Stream stream) {
  const std::int64_t items = rows * (shape.heads + shape.kv_heads);
  if (items == 0) return;
  const RotateCall call = {qkv, rows, shape, angles, bias, q_norm, k_norm};
  launch(rotate_kernel, Grid{static_cast<std::uint32_t>(ceil_divide(items, kRotateWarps))},
         32 * kRotateWarps, kRotateWarps * sizeof(float) * static_cast<std::size_t>(shape.head_dim),
         stream, call);
}

void append(Rows k, Rows v, const KvRow* rows, std::int64_t count, KvTables tables,
            const KvGeometry& geometry, Stream stream) {
  const std::int64_t items = count * geometry.kv_heads;
  if (items == 0) return;
  const AppendCall call = {k, v, rows, count, tables, layout_of(geometry)};
  with_kv_mode(geometry.mode, [&](auto mode) {
    launch(append_kernel<decltype(mode)::value>,
           Grid{static_cast<std::uint32_t>(ceil_divide(items, kAppendWarps))}, 32 * kAppendWarps, 0,
           stream, call);
  });
}

void copy_positions(const KvCopy* copies, std::int64_t count, KvTables tables,
                    std::int64_t sequences, const KvGeometry& geometry, Stream stream) {
  if (count == 0) return;
  const CopyCall call = {copies, count, tables, layout_of(geometry)};
  with_kv_mode(geometry.mode, [&](auto mode) {
    launch(copy_positions_kernel<decltype(mode)::value>,
           Grid{static_cast<std::uint32_t>(sequences * geometry.kv_heads)}, kCopyThreads, 0, stream,
           call);
  });
}

}  // namespace

void TL_KERNELS_NAMESPACE::enter_kv(Kernels& table) {
  table.rotate = rotate;
  table.append = append;
  table.copy_positions = copy_positions;
}

}  // namespace tinyloop::cuda
