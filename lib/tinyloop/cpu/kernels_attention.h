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

// The four storage modes. kScaled: a float for each position stands in front of the K part and of
// the V part.
template <typename StoredValue, bool kHasScales>
struct KvStored {
  using Stored = StoredValue;
  static constexpr bool kScaled = kHasScales;
  static constexpr std::ptrdiff_t kScaleBytes = kHasScales ? 64 : 0;
};
using KvF32 = KvStored<StoredF32, false>;
using KvF16 = KvStored<StoredF16, false>;
using KvInt8 = KvStored<StoredInt8, true>;
using KvInt4 = KvStored<StoredInt4, true>;

TL_INLINE void fetch(const Byte* from, std::ptrdiff_t bytes) {
  for (std::ptrdiff_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

// Tiles or panels taken together for so many queries (measured; unpacking int4 has the longest
// latency to hide).
template <typename Kv, int kRows>
constexpr int kPanelsFor =
    kRows > kFewRows                                         ? kTilePanels
    : kRows == 1 && Kv::Stored::kBytes == StoredInt4::kBytes ? kOneRowPanels
                                                             : kFewRowsPanels;

// Scores of kRows queries against kTiles tiles, tile t giving columns of scores at 16 * number[t].
template <typename Kv, int kRows, int kTiles>
TL_INLINE void score_tiles(const AttentionBlock& block, const int* number) {
  const Byte* keys[kTiles];
  for (int t = 0; t < kTiles; ++t) keys[t] = block.tiles[number[t]] + Kv::kScaleBytes;
  F32x16 acc[kRows][kTiles];
  clear_tile(acc);
  // K and V come from memory, most of the time in pieces too short for the hardware's prefetch:
  // while K is used the V parts of the same tiles are fetched.
  for (std::int64_t d = 0; d < block.head_dim; d += kLanes) {
    const std::int64_t count = block.head_dim - d < kLanes ? block.head_dim - d : kLanes;
    const Byte* part[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      part[t] = keys[t] + d * Kv::Stored::kBytes;
      fetch(part[t] + block.value_offset, kLanes * Kv::Stored::kBytes);
    }
    multiply_tile<typename Kv::Stored, kRows, kTiles, kRows, 1, Fetch::nothing>(
        acc, block.q + d * kRows, part, count);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTiles; ++t) {
    const F32x16 scale = broadcast(block.scale);
    F32x16 key_scale = scale;
    if constexpr (Kv::kScaled) {
      key_scale = load(reinterpret_cast<const float*>(keys[t] - Kv::kScaleBytes));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      F32x16 score = acc[r][t];
      if constexpr (Kv::kScaled) score = score * key_scale;
      store(block.scores + r * kBlockPositions + number[t] * kLanes, score * scale);
    }
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
  for (; t + kTiles <= count; t += kTiles) score_tiles<Kv, kRows, kTiles>(block, number + t);
  for (; t < count; ++t) score_tiles<Kv, kRows, 1>(block, number + t);
}

// Scores of one query to probabilities (times the V scale where there is one), in place; returns m
// and l.
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
    F32x16 p = exp(load(scores + t * kLanes) - broadcast(greatest));
    sum = sum + p;
    if constexpr (Kv::kScaled) {
      p = p * load(reinterpret_cast<const float*>(block.tiles[t] + block.value_offset));
    }
    store(scores + t * kLanes, p);
  }
  return {greatest, sum_lanes(sum)};
}

// values[r][panel ..] = chain over the positions first .. end - 1 of fma(p, v, .), resumed where
// `resume`.
template <typename Kv, int kRows, int kPanels>
TL_INLINE void weigh_positions(const AttentionBlock& block, const float* p, float* values,
                               std::int64_t stride, int rows, std::int64_t panel, int first,
                               int end, bool resume) {
  using Stored = typename Kv::Stored;
  F32x16 acc[kRows][kPanels];
  const OutputTile tile = {values + panel * kLanes, stride, rows, kPanels * kLanes};
  start_tile(acc, tile, resume);
  for (int at = first; at < end;) {
    const int number = at / kLanes, lane = at % kLanes;
    const int count = end - at < kLanes - lane ? end - at : kLanes - lane;
    const Byte* v[kPanels];
    for (int c = 0; c < kPanels; ++c) {
      v[c] = block.tiles[number] + block.value_offset + Kv::kScaleBytes +
             ((panel + c) * kLanes + lane) * Stored::kBytes;
    }
    // While V is used the K part that comes next is fetched.
    if (block.next_tiles[number] != nullptr) {
      fetch(block.next_tiles[number] + Kv::kScaleBytes + panel * kLanes * Stored::kBytes,
            kPanels * kLanes * Stored::kBytes);
    }
    multiply_tile<Stored, kRows, kPanels, 1, kBlockPositions, Fetch::nothing>(acc, p + at, v,
                                                                              count);
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

// Storing K and V. int8: scale = greatest magnitude / 127, q = round(x * (1 / scale)); int4 with 7.
template <int kLimit>
TL_INLINE QuantisedScale kv_scale(const float* x, std::int64_t count) {
  F32x16 most = broadcast(0.0f);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    most = greatest_magnitude(most,
                              load_first(x + i, static_cast<int>(left < kLanes ? left : kLanes)));
  }
  const float scale = max_lanes_as_integers(most) / static_cast<float>(kLimit);
  const float inverse = 1.0f / scale;
  if (inverse > 0x1.fffffep127f) return {0.0f, 0.0f};
  return {scale, inverse};
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

template <int kLimit>
TL_INLINE void quantise_channels(Byte* to, const StoreTask& task, const float* x,
                                 std::int64_t channel, float inverse) {
  store_int8(to, round_into(load_channels(task, x, channel), inverse, static_cast<float>(kLimit)));
}

void store_kv_int8(const StoreTask& task) {
  const QuantisedScale k_scale = kv_scale<127>(task.k, task.head_dim);
  const QuantisedScale v_scale = kv_scale<127>(task.v, task.head_dim);
  Byte* v_part = task.tile + task.value_offset;
  reinterpret_cast<float*>(task.tile)[task.lane] = k_scale.scale;
  reinterpret_cast<float*>(v_part)[task.lane] = v_scale.scale;
  Byte* k = task.tile + KvInt8::kScaleBytes + task.lane;
  Byte* v = v_part + KvInt8::kScaleBytes + task.lane * kLanes;
  for (std::int64_t i = 0; i < task.head_dim; i += kLanes) {
    alignas(64) Byte q[kLanes];
    quantise_channels<127>(q, task, task.k, i, k_scale.inverse);
    for (int lane = 0; lane < kLanes && i + lane < task.head_dim; ++lane)
      k[(i + lane) * kLanes] = q[lane];
    quantise_channels<127>(v + i * kLanes, task, task.v, i, v_scale.inverse);
  }
}

void store_kv_int4(const StoreTask& task) {
  const QuantisedScale k_scale = kv_scale<7>(task.k, task.head_dim);
  const QuantisedScale v_scale = kv_scale<7>(task.v, task.head_dim);
  Byte* v_part = task.tile + task.value_offset;
  reinterpret_cast<float*>(task.tile)[task.lane] = k_scale.scale;
  reinterpret_cast<float*>(v_part)[task.lane] = v_scale.scale;
  Byte* k = task.tile + KvInt4::kScaleBytes + task.lane % 8;
  Byte* v = v_part + KvInt4::kScaleBytes + task.lane * 8;
  const int shift = task.lane < 8 ? 0 : 4;
  const int keep = task.lane < 8 ? 0xf0 : 0x0f;
  for (std::int64_t i = 0; i < task.head_dim; i += kLanes) {
    alignas(64) Byte q[kLanes];
    quantise_channels<7>(q, task, task.k, i, k_scale.inverse);
    for (int lane = 0; lane < kLanes && i + lane < task.head_dim; ++lane) {
      Byte& pair = k[(i + lane) * 8];
      const int nibble = (q[lane] + 8) & 15;
      pair = static_cast<Byte>((pair & keep) | (nibble << shift));
    }
    quantise_channels<7>(q, task, task.v, i, v_scale.inverse);
    for (int j = 0; j < 8; ++j) {
      v[i * 8 + j] = static_cast<Byte>(((q[j] + 8) & 15) | (((q[j + 8] + 8) & 15) << 4));
    }
  }
}

}  // namespace
}  // namespace tinyloop
