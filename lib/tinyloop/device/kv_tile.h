// SPDX-License-Identifier: Apache-2.0
// How keys and values of 16 consecutive positions of one head lie in memory, in each storage mode.
// A K tile is a packed matrix panel whose outputs are positions; a V tile is panels whose inputs
// are positions, so that the kernels for weights serve attention too. Who owns tiles is
// kv/kv_cache.
//
// tile = K part, V part; position p sits in tile p / 16 at lane p % 16; hp = head_dim rounded up to
// 16.
//
//   f32 f16  K [head_dim][16 positions]; V [hp / 16][16 positions][16 channels]
//   int8     K scales [16] f32, K [head_dim][16] int8;
//            V scales [16] f32, V [hp / 16][16][16] int8
//   int4     as int8 with two values a byte:
//            K [head_dim][8 bytes], byte j holds positions j (low half) and j + 8 (high half);
//            V [hp / 16][16][8 bytes], byte j holds channels j and j + 8 of the panel; a half is
//            the value + 8
//
// int8: scale = greatest magnitude / 127, q = round-to-nearest-even(x * (1 / scale)), value = q *
// scale; int4 the same with 7. A vector of zeros has scale 0 and q 0, and so has one so small that
// 1 / scale would be infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tinyloop {

enum class KvMode { f32, f16, int8, int4 };

inline constexpr std::int64_t kTile = 16;    // positions of one tile
inline constexpr std::int64_t kBlock = 256;  // of one softmax block, at absolute multiples of 256

std::string_view name_of(KvMode mode);

struct KvGeometry {
  KvMode mode = KvMode::f16;
  std::int32_t kv_heads = 0, head_dim = 0;

  std::int64_t padded_head_dim() const { return (head_dim + 15) / 16 * 16; }
  std::size_t scale_bytes() const;  // of one tile's K scales (as many again for V): 64 or 0
  std::size_t key_bytes() const;    // K part with its scales, a multiple of 64
  std::size_t value_bytes() const;  // V part with its scales, a multiple of 64
  std::size_t tile_bytes() const { return key_bytes() + value_bytes(); }
};

}  // namespace tinyloop
