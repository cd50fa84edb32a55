// SPDX-License-Identifier: Apache-2.0
// Attention over one block of positions, and the folding of blocks. Private to kernels.cpp.
// A K tile is a panel of weights whose outputs are positions, a V tile one whose inputs are
// positions, so the microkernel of the weights serves both. A query's result depends on its own
// visible positions only: others are masked by selection and never multiplied, because what lies
// there may be stale, NaN included.
#pragma once

#include "tinyloop/cpu/f32x16.h"
#include "tinyloop/cpu/kernel_table.h"
#include "tinyloop/cpu/kernels_matmul.h"
#include "tinyloop/cpu/kernels_quantised.h"

namespace tinyloop {
namespace {

constexpr int kBlockPositions = 256;
constexpr int kBlockTiles = kBlockPositions / kLanes;

int attention_height(int queries) { return height_of<kTileRows>(queries); }

constexpr std::int64_t kGroupChannels = 32;                             // share a scale
constexpr std::ptrdiff_t kGroupScaleBytes = kLanes * 2;                 // of one group, bf16
constexpr std::ptrdiff_t kScoreRows = kMostTileRows * kBlockPositions;  // floats of one group

// The four storage modes. Where kGrouped, integers of int8 are multiplied, which int4 becomes in
// the cache before: unpacking many at once costs less than half of unpacking vector by vector.
template <typename StoredValue>
struct KvFloats {
  using Stored = StoredValue;
  static constexpr bool kGrouped = false;
  static constexpr std::ptrdiff_t kKeyPanelBytes = kLanes * StoredValue::kBytes;  // of 16 channels
  static constexpr std::ptrdiff_t kValueBytes = StoredValue::kBytes;  // of 16 values of V
};
using KvF32 = KvFloats<StoredF32>;
using KvF16 = KvFloats<StoredF16>;
struct KvInt8 {
  using Stored = StoredInt8;
  static constexpr bool kGrouped = true;
  static constexpr std::ptrdiff_t kValueBytes = 16;
  static constexpr std::ptrdiff_t kKeyGroupBytes = kGroupScaleBytes + kGroupChannels * 16;
  static constexpr std::ptrdiff_t kKeyPanelBytes = kKeyGroupBytes / 2;
  // The q of a group of K, or of 16 positions of a panel of V; `room` may be used for them.
  TL_INLINE static const Byte* keys(Byte*, const Byte* from, std::int64_t) { return from; }
  TL_INLINE static const Byte* values(Byte*, const Byte* from) { return from; }
};
struct KvInt4 {
  using Stored = StoredInt8;
  static constexpr bool kGrouped = true;
  static constexpr std::ptrdiff_t kValueBytes = 8;
  static constexpr std::ptrdiff_t kKeyGroupBytes = kGroupScaleBytes + kGroupChannels * 10;
  static constexpr std::ptrdiff_t kKeyPanelBytes = kKeyGroupBytes / 2;
  // Unpacks four channels at a time. What it reads behind the last one lies in the tile still.
  TL_INLINE static const Byte* keys(Byte* room, const Byte* from, std::int64_t channels) {
    for (std::int64_t d = 0; d < channels; d += 4) {
      unpack_int5(room + d * kLanes, from + d * 8, from + channels * 8 + d * 2);
    }
    return room;
  }
  TL_INLINE static const Byte* values(Byte* room, const Byte* from) {
    for (int p = 0; p < kLanes; p += 4) unpack_int4(room + p * kLanes, from + p * 8);
    return room;
  }
};
constexpr std::ptrdiff_t kKeyRoom = kGroupChannels * kLanes;  // bytes of one tile
constexpr std::ptrdiff_t kValueRoom = kLanes * kLanes;        // bytes of one panel

TL_INLINE void fetch(const Byte* from, std::ptrdiff_t bytes) {
  for (std::ptrdiff_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

// Tiles or panels taken together for so many queries (measured).
template <typename Kv, int kRows>
constexpr int kPanelsFor = kRows > kFewRows ? kTilePanels : kFewRowsPanels;

// Scores of kRows queries against kTiles tiles, tile t giving columns of scores at 16 * number[t].
// K and V come from memory, most of the time in pieces too short for the hardware's prefetch: while
// K is used the V parts of the same tiles are fetched.
template <typename Kv, int kRows, int kTiles>
TL_INLINE void score_tiles(const AttentionBlock& block, const int* number) {
  F32x16 acc[kRows][kTiles];
  clear_tile(acc);
  for (std::int64_t d = 0; d < block.head_dim; d += kLanes) {
    const std::int64_t count = block.head_dim - d < kLanes ? block.head_dim - d : kLanes;
    const Byte* part[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      part[t] = block.tiles[number[t]] + d * Kv::Stored::kBytes;
      fetch(part[t] + block.value_offset, kLanes * Kv::Stored::kBytes);
    }
    multiply_tile<typename Kv::Stored, kRows, kTiles, kRows, 1, Fetch::nothing>(
        acc, block.q + d * kRows, part, count);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTiles; ++t) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      store(block.scores + r * kBlockPositions + number[t] * kLanes,
            acc[r][t] * broadcast(block.scale));
    }
  }
}

// The same where groups of channels have scales: score = fma(chain of the group, scale, score).
template <typename Kv, int kRows, int kTiles>
TL_INLINE void score_grouped_tiles(const AttentionBlock& block, const int* number) {
  alignas(64) Byte room[kTiles][kKeyRoom];
  const Byte* group[kTiles];
  for (int t = 0; t < kTiles; ++t) {
    group[t] = block.tiles[number[t]];
    fetch(group[t] + block.value_offset, block.value_scale_bytes);
  }
  for (std::int64_t d = 0; d < block.head_dim; d += kGroupChannels) {
    const std::int64_t left = block.head_dim - d;
    const std::int64_t count = left < kGroupChannels ? left : kGroupChannels;
    const Byte* keys[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      fetch(block.tiles[number[t]] + block.value_offset + block.value_scale_bytes +
                d * Kv::kValueBytes,
            kGroupChannels * Kv::kValueBytes);
      keys[t] = Kv::keys(room[t], group[t] + kGroupScaleBytes, count);
    }
    F32x16 acc[kRows][kTiles];
    clear_tile(acc);
    multiply_tile<StoredInt8, kRows, kTiles, kRows, 1, Fetch::nothing>(acc, block.q + d * kRows,
                                                                       keys, count);
    const bool first = d == 0, last = count == left;
#pragma GCC unroll 16
    for (int t = 0; t < kTiles; ++t) {
      const F32x16 key_scale = load_bf16(group[t]);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        float* place = block.scores + r * kBlockPositions + number[t] * kLanes;
        const F32x16 score = first ? acc[r][t] * key_scale : fma(acc[r][t], key_scale, load(place));
        store(place, last ? score * broadcast(block.scale) : score);
      }
      group[t] += Kv::kKeyGroupBytes;
    }
  }
}

template <typename Kv, int kRows, int kTiles>
TL_INLINE void score_some(const AttentionBlock& block, const int* number) {
  if constexpr (Kv::kGrouped) {
    score_grouped_tiles<Kv, kRows, kTiles>(block, number);
  } else {
    score_tiles<Kv, kRows, kTiles>(block, number);
  }
}

template <typename Kv, int kRows>
TL_INLINE void score_block(const AttentionBlock& block) {
  constexpr int kTiles = kPanelsFor<Kv, kRows>;
  int number[kBlockTiles];
  int count = 0;
  for (int t = 0; t < kBlockTiles; ++t) {
    if (block.tiles[t] != nullptr) number[count++] = t;
  }
  int t = 0;
  for (; t + kTiles <= count; t += kTiles) score_some<Kv, kRows, kTiles>(block, number + t);
  for (; t < count; ++t) score_some<Kv, kRows, 1>(block, number + t);
}

// Scores of one query to probabilities, in place; where V has scales, to as many rows of them times
// the scale of a group. Returns m and l.
struct SoftmaxPart {
  float greatest, sum;
};
template <typename Kv>
TL_INLINE SoftmaxPart softmax_row(const AttentionBlock& block, float* scores, int first, int end) {
  const int first_tile = first / kLanes, end_tile = (end + kLanes - 1) / kLanes;
  const F32x16 nothing = broadcast(-__builtin_inff());
  F32x16 most = nothing;
  for (int t = first_tile; t < end_tile; ++t) {
    const int from = first - t * kLanes, to = end - t * kLanes;
    const F32x16 score = select_lanes(from > 0 ? from : 0, to < kLanes ? to : kLanes,
                                      load(scores + t * kLanes), nothing);
    store(scores + t * kLanes, score);
    most = max(most, score);
  }
  const float greatest = max_lanes(most);
  F32x16 sum = broadcast(0.0f);
  for (int t = first_tile; t < end_tile; ++t) {
    const F32x16 p = exp(load(scores + t * kLanes) - broadcast(greatest));
    sum = sum + p;
    if constexpr (Kv::kGrouped) {
      const Byte* scale = block.tiles[t] + block.value_offset;
      float* to = scores + t * kLanes;
      for (std::int64_t d = 0; d < block.head_dim; d += kGroupChannels) {
        store(to, p * load_bf16(scale));
        scale += kGroupScaleBytes;
        to += kScoreRows;
      }
    } else {
      store(scores + t * kLanes, p);
    }
  }
  return {greatest, sum_lanes(sum)};
}

// acc[r][c] = chain of fma(p, v, acc) over the first `count` positions; panels of one group share
// p.
template <int kRows, int kPanels>
TL_INLINE void weigh_grouped_tile(F32x16 (&acc)[kRows][kPanels], const float* p,
                                  const Byte* const (&v)[kPanels], std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    F32x16 values[kPanels];
#pragma GCC unroll 16
    for (int c = 0; c < kPanels; ++c) values[c] = load_int8(v[c] + i * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kPanels; ++c) {
        acc[r][c] =
            fma(broadcast(p[i + r * kBlockPositions + c / 2 * kScoreRows]), values[c], acc[r][c]);
      }
    }
  }
}

// values[r][panel ..] = chain over the positions first .. end - 1 of fma(p, v, .), resumed where
// `resume`. Several panels begin at an even one, with the group.
template <typename Kv, int kRows, int kPanels>
TL_INLINE void weigh_positions(const AttentionBlock& block, const float* p, float* values,
                               std::int64_t stride, int rows, std::int64_t panel, int first,
                               int end, bool resume) {
  F32x16 acc[kRows][kPanels];
  const OutputTile tile = {values + panel * kLanes, stride, rows, kPanels * kLanes};
  start_tile(acc, tile, resume);
  if constexpr (Kv::kGrouped) p += panel / 2 * kScoreRows;
  for (int at = first; at < end;) {
    const int number = at / kLanes, lane = at % kLanes;
    const int count = end - at < kLanes - lane ? end - at : kLanes - lane;
    const Byte* stored = block.tiles[number] + block.value_offset + block.value_scale_bytes +
                         panel * kLanes * Kv::kValueBytes;
    // While V is used the K part that comes next is fetched.
    if (block.next_tiles[number] != nullptr) {
      fetch(block.next_tiles[number] + panel * Kv::kKeyPanelBytes, kPanels * Kv::kKeyPanelBytes);
    }
    const Byte* v[kPanels];
    if constexpr (Kv::kGrouped) {
      alignas(64) Byte room[kPanels][kValueRoom];
      for (int c = 0; c < kPanels; ++c) {
        v[c] = Kv::values(room[c], stored + c * kLanes * Kv::kValueBytes) + lane * kLanes;
      }
      weigh_grouped_tile<kRows, kPanels>(acc, p + at, v, count);
    } else {
      for (int c = 0; c < kPanels; ++c) v[c] = stored + (c * kLanes + lane) * Kv::kValueBytes;
      multiply_tile<typename Kv::Stored, kRows, kPanels, 1, kBlockPositions, Fetch::nothing>(
          acc, p + at, v, count);
    }
    at += count;
  }
  store_tile(acc, tile);
}

template <typename Kv, int kRows, int kPanels>
void weigh_channels(const AttentionBlock& block, int row, int rows, int first, int end,
                    bool resume) {
  const std::int64_t panels = (block.head_dim + kLanes - 1) / kLanes;
  const std::int64_t stride = panels * kLanes;
  const float* p = block.scores + row * kBlockPositions;
  float* values = block.values + row * stride;
  std::int64_t panel = 0;
  for (; panel + kPanels <= panels; panel += kPanels) {
    weigh_positions<Kv, kRows, kPanels>(block, p, values, stride, rows, panel, first, end, resume);
  }
  for (; panel < panels; ++panel) {
    weigh_positions<Kv, kRows, 1>(block, p, values, stride, rows, panel, first, end, resume);
  }
}

template <typename Kv>
void weigh_one(const AttentionBlock& block, int row, int first, int end, bool resume) {
  if (first < end) weigh_channels<Kv, 1, kPanelsFor<Kv, 1>>(block, row, 1, first, end, resume);
}

template <typename Kv, int kRows>
TL_INLINE void weigh_block(const AttentionBlock& block) {
  // The positions that all queries see are done jointly, a query's own ones before and after them
  // alone.
  int first = 0, end = kBlockPositions;
  for (int r = 0; r < block.queries; ++r) {
    first = block.first[r] > first ? block.first[r] : first;
    end = block.end[r] < end ? block.end[r] : end;
  }
  if (kRows == 1 || first >= end) {
    for (int r = 0; r < block.queries; ++r)
      weigh_one<Kv>(block, r, block.first[r], block.end[r], false);
    return;
  }
  for (int r = 0; r < block.queries; ++r) weigh_one<Kv>(block, r, block.first[r], first, false);
  bool resume = false;
  for (int r = 0; r < block.queries; ++r) resume = resume || block.first[r] < first;
  if (resume) {
    const std::int64_t width = (block.head_dim + kLanes - 1) / kLanes * kLanes;
    for (int r = 0; r < block.queries; ++r) {
      if (block.first[r] < first) continue;
      for (std::int64_t c = 0; c < width; c += kLanes)
        store(block.values + r * width + c, broadcast(0.0f));
    }
  }
  weigh_channels<Kv, kRows, kPanelsFor<Kv, kRows>>(block, 0, block.queries, first, end, resume);
  for (int r = 0; r < block.queries; ++r) weigh_one<Kv>(block, r, end, block.end[r], true);
}

template <typename Kv>
void attend_block(const AttentionBlock& block) {
  with_height<kTileRows>(attention_height(block.queries), [&](auto height) {
    constexpr int kRows = decltype(height)::value;
    score_block<Kv, kRows>(block);
    for (int r = 0; r < block.queries; ++r) {
      if (block.first[r] >= block.end[r]) continue;
      const SoftmaxPart part =
          softmax_row<Kv>(block, block.scores + r * kBlockPositions, block.first[r], block.end[r]);
      block.greatest[r] = part.greatest;
      block.sum[r] = part.sum;
    }
    weigh_block<Kv, kRows>(block);
  });
}

// M' = max(M, m), a = exp(M - M'), c = exp(m - M'), L = L a + l c, O = O a + o c.
void fold_block(const AttentionFold& fold) {
  const F32x16 greatest = load(fold.total_greatest), other = load(fold.greatest);
  const F32x16 both = max(greatest, other);
  const F32x16 old_part = exp(greatest - both), new_part = exp(other - both);
  const F32x16 sum = load(fold.total_sum) * old_part + load(fold.sum) * new_part;
  alignas(64) float a[kLanes], c[kLanes], m[kLanes], l[kLanes];
  store(a, old_part);
  store(c, new_part);
  store(m, both);
  store(l, sum);
  for (int r = 0; r < fold.queries; ++r) {
    if (fold.first[r] >= fold.end[r]) continue;
    fold.total_greatest[r] = m[r];
    fold.total_sum[r] = l[r];
    float* total = fold.total_values + r * fold.padded_head_dim;
    const float* values = fold.values + r * fold.padded_head_dim;
    for (std::int64_t i = 0; i < fold.padded_head_dim; i += kLanes) {
      store(total + i, load(total + i) * broadcast(a[r]) + load(values + i) * broadcast(c[r]));
    }
  }
}

// How 16 values of one head become bytes: `channel` is the first of them; channels beyond head_dim
// are zero.
TL_INLINE F32x16 load_channels(const StoreTask& task, const float* x, std::int64_t channel) {
  const std::int64_t left = task.head_dim - channel;
  return load_first(x + channel, static_cast<int>(left < kLanes ? left : kLanes));
}

void store_kv_f32(const StoreTask& task) {
  auto* k = reinterpret_cast<float*>(task.tile) + task.lane;
  auto* v = reinterpret_cast<float*>(task.tile + task.value_offset) + task.lane * kLanes;
  for (std::int64_t i = 0; i < task.head_dim; ++i) k[i * kLanes] = task.k[i];
  for (std::int64_t i = 0; i < task.head_dim; i += kLanes) {
    store(v + i * kLanes, load_channels(task, task.v, i));
  }
}

void store_kv_f16(const StoreTask& task) {
  Byte* k = task.tile + task.lane * 2;
  Byte* v = task.tile + task.value_offset + task.lane * kLanes * 2;
  for (std::int64_t i = 0; i < task.head_dim; i += kLanes) {
    alignas(64) Byte halves[kLanes * 2];
    store_f16(halves, load_channels(task, task.k, i));
    for (int lane = 0; lane < kLanes && i + lane < task.head_dim; ++lane) {
      __builtin_memcpy(k + (i + lane) * kLanes * 2, halves + lane * 2, 2);
    }
    store_f16(v + i * kLanes * 2, load_channels(task, task.v, i));
  }
}

// In place; see device/kv_tile.h.
void hadamard(float* x, std::int64_t head_dim) {
  const std::int64_t block = head_dim & -head_dim;
  for (std::int64_t half = 1; half < block; half *= 2) {
    for (std::int64_t first = 0; first < head_dim; first += 2 * half) {
      float* low = x + first;
      float* high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

// The q of a group's `count` channels (zeros behind them) and its scale.
template <int kLimit>
TL_INLINE std::uint16_t quantise_kv_group(Byte* q, const float* x, std::int64_t count) {
  const int in_low = count < kLanes ? static_cast<int>(count) : kLanes;
  const F32x16 low = load_first(x, in_low);
  const F32x16 high = load_first(x + in_low, static_cast<int>(count) - in_low);
  const float greatest =
      max_lanes_as_integers(greatest_magnitude(greatest_magnitude(broadcast(0.0f), low), high));
  store_int8(q, broadcast(0.0f));
  store_int8(q + kLanes, broadcast(0.0f));
  constexpr float kGreatestFloat = 0x1.fffffep127f;
  if (!(greatest <= kGreatestFloat)) return 0x7fc0;
  const auto bits = __builtin_bit_cast(std::uint32_t, greatest * (1.0f / kLimit));
  const std::uint32_t up = (bits + 0xffffu) >> 16;
  const float inverse = 1.0f / __builtin_bit_cast(float, up << 16);
  if (inverse > kGreatestFloat) return 0;
  const bool positive = max_lanes(max(low, high)) == greatest;
  const F32x16 by = broadcast(positive ? -inverse : inverse);
  const F32x16 least = broadcast(-kLimit), most = broadcast(kLimit - 1);
  store_int8(q, max(min(low * by, most), least));
  store_int8(q + kLanes, max(min(high * by, most), least));
  return static_cast<std::uint16_t>(positive ? up | 0x8000u : up);
}

// Calls f(group, its q [32], its scale, its channels) for each group of a head's x.
template <int kLimit, typename F>
TL_INLINE void for_each_kv_group(const float* x, std::int64_t head_dim, F&& f) {
  for (std::int64_t d = 0; d < head_dim; d += kGroupChannels) {
    const std::int64_t left = head_dim - d;
    const std::int64_t count = left < kGroupChannels ? left : kGroupChannels;
    alignas(64) Byte q[kGroupChannels];
    const std::uint16_t scale = quantise_kv_group<kLimit>(q, x + d, count);
    f(d / kGroupChannels, q, scale, count);
  }
}

TL_INLINE void store_scale(Byte* scales, std::int32_t lane, std::uint16_t scale) {
  __builtin_memcpy(scales + lane * 2, &scale, sizeof(scale));
}

void store_kv_int8(const StoreTask& task) {
  for_each_kv_group<128>(task.k, task.head_dim, [&](auto g, const Byte* q, auto scale, auto count) {
    Byte* group = task.tile + g * KvInt8::kKeyGroupBytes;
    store_scale(group, task.lane, scale);
    Byte* k = group + kGroupScaleBytes + task.lane;
    for (std::int64_t d = 0; d < count; ++d) k[d * kLanes] = q[d];
  });
  Byte* scales = task.tile + task.value_offset;
  Byte* v = scales + task.value_scale_bytes + task.lane * kLanes;
  for_each_kv_group<128>(task.v, task.head_dim, [&](auto g, const Byte* q, auto scale, auto count) {
    store_scale(scales + g * kGroupScaleBytes, task.lane, scale);
    for (std::int64_t d = 0; d < count; d += kLanes) {
      __builtin_memcpy(v + (g * kGroupChannels + d) * kLanes, q + d, kLanes);
    }
  });
}

void store_kv_int4(const StoreTask& task) {
  for_each_kv_group<16>(task.k, task.head_dim, [&](auto g, const Byte* q, auto scale, auto count) {
    Byte* group = task.tile + g * KvInt4::kKeyGroupBytes;
    store_scale(group, task.lane, scale);
    Byte* halves = group + kGroupScaleBytes + task.lane / 2;
    Byte* signs = group + kGroupScaleBytes + count * 8 + task.lane / 8;
    const int shift = task.lane % 2 * 4, bit = task.lane % 8;
    for (std::int64_t d = 0; d < count; ++d) {
      Byte &pair = halves[d * 8], &eight = signs[d * 2];
      pair = static_cast<Byte>((pair & ~(15 << shift)) | ((q[d] & 15) << shift));
      eight = static_cast<Byte>((eight & ~(1 << bit)) | ((q[d] >> 7) << bit));
    }
  });
  Byte* scales = task.tile + task.value_offset;
  Byte* v = scales + task.value_scale_bytes + task.lane * 8;
  for_each_kv_group<8>(task.v, task.head_dim, [&](auto g, const Byte* q, auto scale, auto count) {
    store_scale(scales + g * kGroupScaleBytes, task.lane, scale);
    for (std::int64_t d = 0; d < count; d += kLanes) {
      Byte* to = v + (g * kGroupChannels + d) * 8;
      for (std::int64_t j = 0; j < 8; ++j) {
        const Byte* pair = q + d + 2 * j;
        to[j] = static_cast<Byte>(((pair[0] + 8) & 15) | (((pair[1] + 8) & 15) << 4));
      }
    }
  });
}

}  // namespace
}  // namespace tinyloop
