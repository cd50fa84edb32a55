// SPDX-License-Identifier: Apache-2.0
// How keys and values of 16 consecutive positions of one head lie in memory, in each storage mode.
// Vectors of a K tile run over positions and those of a V tile over channels, so that the
// microkernel of the weights serves attention too. Who owns tiles is kv/kv_cache.
//
// tile = K part, V part, each rounded up to 64 bytes; position p sits in tile p / 16 at lane p %
// 16; hp = head_dim rounded up to 16.
//
//   f32 f16  K [head_dim][16 positions]
//            V [hp / 16][16 positions][16 channels]
//   int8     K for each group of 32 channels (the last may have fewer): scales [16] bf16,
//              q [channels][16] int8
//            V scales [groups][16] bf16, rounded up to 64 bytes, q [hp / 16][16 positions][16] int8
//   int4     K for each group: scales [16] bf16, low halves [channels][8 bytes], signs [channels][2
//              bytes]: q has 5 bits; byte j holds q & 15 of the positions 2 j (in its low half) and
//              2 j + 1, bit p of the two bytes is 1 where q of position p is negative
//            V as int8 with [8 bytes] for [16] int8: byte j holds the channels 2 j (low half) and
//              2 j + 1 as q + 8
//
// What int8 and int4 round of a key is not the key but its Hadamard transform, which spreads what
// single channels have too much of (QuaRot, arXiv 2404.00456): in blocks of B channels, B being the
// greatest power of two that divides head_dim, for half = 1, 2, 4 .. B / 2 every pair (a, b) of
// channels i and i + half of each 2 half channels becomes (a + b, a - b). Products with a query
// stay what they are when it is transformed alike and multiplied by 1 / B (see Ops::attention).
//
// A group of a position: L = 128 for int8, 16 for K and 8 for V of int4; m = its greatest
// magnitude; scale = m / L rounded up to bf16, negative where m occurs as a positive number; q =
// round-to-nearest-even(x * (1 / scale)), at most L - 1; value = q * scale. Where 1 / scale would
// be infinite scale and q are 0; where m is not finite the scale is NaN and q 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tinyloop {

enum class KvMode { f32, f16, int8, int4 };

inline constexpr std::int64_t kTile = 16;     // positions of one tile
inline constexpr std::int64_t kBlock = 256;   // of one softmax block, at absolute multiples of 256
inline constexpr std::int64_t kKvGroup = 32;  // channels that share a scale in int8 and int4

std::string_view name_of(KvMode mode);

struct KvGeometry {
  KvMode mode = KvMode::f16;
  std::int32_t kv_heads = 0, head_dim = 0;

  std::int64_t padded_head_dim() const { return (head_dim + 15) / 16 * 16; }
  bool grouped() const { return mode == KvMode::int8 || mode == KvMode::int4; }
  // Of channels with a scale of their own; 1 where there are no scales.
  std::int64_t groups() const { return grouped() ? (head_dim + kKvGroup - 1) / kKvGroup : 1; }
  std::size_t key_group_bytes() const;    // from one group of the K part to the next; 0 without
  std::size_t value_scale_bytes() const;  // in front of the values of the V part; 0 without
  std::size_t key_bytes() const;          // K part with its scales, a multiple of 64
  std::size_t value_bytes() const;        // V part with its scales, a multiple of 64
  std::size_t tile_bytes() const { return key_bytes() + value_bytes(); }
};

}  // namespace tinyloop
