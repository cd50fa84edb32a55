// SPDX-License-Identifier: Apache-2.0
// One block of 256 positions for a tile of queries: scores, softmax, weighted sum of V, and the
// folding of two results. For kernels_attention.cu only, which decides which blocks a thread
// block processes.
#pragma once

#include "kv_places.h"

namespace tinyloop::cuda {
namespace {

constexpr std::uint32_t kAttentionThreads = 256;
constexpr std::int32_t kPositions = kBlock;
constexpr std::int32_t kTiles = kPositions / 16;

struct AttentionCall {
  Rows out, q;
  const KvRow* rows;
  KvTables tables;
  TileLayout layout;
  std::int32_t group;  // heads of one kv head
  std::int64_t window;
  float scale;
  const AttentionTile* tiles;
  std::int32_t tile_count;
  // Where the call is split: of each (unit, kv head, query of most_queries) m, l and o[16 *
  // panels].
  float* partial;
  std::int32_t* counters;  // [tiles][kv heads]
  std::int32_t most_queries;
};

// kCount neighbours (1 or 4), from `lane` on, of the 16 values at `vector`; scales are left out.
template <KvMode kMode, int kCount>
TL_DEVICE void load_values(float (&to)[kCount], const unsigned char* vector, std::int32_t lane) {
  static_assert(kCount == 1 || kCount == 4);
  if constexpr (kCount == 1) {
    if constexpr (kMode == KvMode::f32) {
      to[0] = reinterpret_cast<const float*>(vector)[lane];
    } else if constexpr (kMode == KvMode::f16) {
      to[0] = widen_f16(reinterpret_cast<const std::uint16_t*>(vector)[lane]);
    } else if constexpr (kMode == KvMode::int8) {
      to[0] = static_cast<float>(static_cast<std::int8_t>(vector[lane]));
    } else {
      to[0] = static_cast<float>((vector[lane % 8] >> lane / 8 * 4 & 15) - 8);
    }
  } else if constexpr (kMode == KvMode::f32) {
    const float4 four = reinterpret_cast<const float4*>(vector)[lane / 4];
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  } else if constexpr (kMode == KvMode::f16) {
    const std::uint64_t four = reinterpret_cast<const std::uint64_t*>(vector)[lane / 4];
    for (int i = 0; i < 4; ++i) to[i] = widen_f16(static_cast<std::uint16_t>(four >> 16 * i));
  } else if constexpr (kMode == KvMode::int8) {
    const std::uint32_t four = reinterpret_cast<const std::uint32_t*>(vector)[lane / 4];
    for (int i = 0; i < 4; ++i) to[i] = static_cast<float>(static_cast<std::int8_t>(four >> 8 * i));
  } else {
    const std::uint32_t four =
        reinterpret_cast<const std::uint32_t*>(vector)[lane % 8 / 4] >> lane / 8 * 4;
    for (int i = 0; i < 4; ++i)
      to[i] = static_cast<float>(static_cast<int>(four >> 8 * i & 15) - 8);
  }
}

template <int kCount>
TL_DEVICE void load_floats(float (&to)[kCount], const float* from) {  // from: aligned to kCount
  if constexpr (kCount == 1) {
    to[0] = from[0];
  } else {
    static_assert(kCount == 4);
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }
}

// The positions of a block that a query sees, relative to the block; first == end: none.
struct Visible {
  std::int32_t first, end;
};
TL_DEVICE Visible visible_in(const AttentionCall& call, const AttentionTile& tile,
                             std::int32_t query, std::int64_t block) {
  if (query >= tile.queries) return {0, 0};
  const std::int64_t last = call.rows[tile.row + (tile.first_query + query) / call.group].position;
  const std::int64_t oldest =
      call.window > 0 ? most_of(last - call.window + 1, std::int64_t{0}) : 0;
  const std::int64_t start = block * kPositions;
  if (oldest >= start + kPositions || last < start) return {0, 0};
  return {static_cast<std::int32_t>(most_of(oldest - start, std::int64_t{0})),
          static_cast<std::int32_t>(least_of(last + 1 - start, std::int64_t{kPositions}))};
}

// Total of the blocks so far: M' = max(M, m), a = exp(M - M'), c = exp(m - M'), L = L a + l c; the
// caller does O = O a + o c.
struct Folded {
  float greatest, sum, a, c;
};
TL_DEVICE Folded fold(float total_greatest, float total_sum, float greatest, float sum) {
  Folded folded;
  folded.greatest = most_of(total_greatest, greatest);
  folded.a = exp_of(total_greatest - folded.greatest);
  folded.c = exp_of(greatest - folded.greatest);
  folded.sum = total_sum * folded.a + sum * folded.c;
  return folded;
}

TL_DEVICE float minus_infinity() { return float_of(0xff800000u); }

// What the threads of a block share: kQueries queries.
template <int kQueries>
struct Shared {
  float scores[kQueries][kPositions];  // then probabilities
  const unsigned char* tiles[kTiles];  // null where no query sees any position of the tile
  Visible visible[kQueries];
  float greatest[kQueries], sum[kQueries];  // of the block where split, of all blocks otherwise
  float a[kQueries], c[kQueries];
  std::int32_t is_last;
  alignas(16) float q[1][kQueries];  // [head_dim]; the rest follows

  static constexpr std::size_t bytes(std::int32_t head_dim) {
    return sizeof(Shared) + static_cast<std::size_t>(head_dim) * kQueries * sizeof(float);
  }
};

// Positions x queries of one thread when scores are computed, channels x queries when V is
// weighted.
template <int kQueries>
constexpr int kScorePositions = kQueries == 16 ? 4 : 1;
template <int kQueries>
constexpr int kScoreQueries = kQueries == 1 ? 1 : 4;
template <int kQueries>
constexpr int kValueChannels = kQueries == 16 ? 4 : 1;

template <KvMode kMode>
constexpr bool kScaled = kMode == KvMode::int8 || kMode == KvMode::int4;

// Scores of the block; minus infinity where a query does not see a position.
template <KvMode kMode, int kQueries>
TL_DEVICE void score_block(const AttentionCall& call, Shared<kQueries>& shared) {
  constexpr int kP = kScorePositions<kQueries>, kQ = kScoreQueries<kQueries>;
  constexpr int kThreadsOfQuery = kPositions / kP;
  static_assert(kThreadsOfQuery * (kQueries / kQ) <= static_cast<int>(kAttentionThreads));
  const auto thread = static_cast<std::int32_t>(thread_index());
  const std::int32_t first_query = thread / kThreadsOfQuery * kQ;
  const std::int32_t position = thread % kThreadsOfQuery * kP;
  if (first_query >= kQueries) return;
  const unsigned char* tile = shared.tiles[position / 16];
  float acc[kQ][kP] = {};
  if (tile != nullptr) {
    const unsigned char* keys = in_global(tile + call.layout.scale_bytes);
    const float* q = &shared.q[0][first_query];
    const std::int32_t head_dim = call.layout.head_dim;
    [[maybe_unused]] constexpr int kInFlight = kQueries == 1 ? 32 : 16;  // loads of a thread
    TL_UNROLL_BY(kInFlight)
    for (std::int32_t d = 0; d < head_dim; ++d) {
      float key[kP], query[kQ];
      load_values<kMode, kP>(key, keys + d * kVectorBytes<kMode>, position % 16);
      load_floats<kQ>(query, q + d * kQueries);
      TL_UNROLL
      for (int i = 0; i < kQ; ++i) {
        TL_UNROLL
        for (int p = 0; p < kP; ++p) acc[i][p] = fma(query[i], key[p], acc[i][p]);
      }
    }
  }
  TL_UNROLL
  for (int p = 0; p < kP; ++p) {
    float key_scale = 1.0f;
    if (kScaled<kMode> && tile != nullptr) {
      key_scale = reinterpret_cast<const float*>(in_global(tile))[(position + p) % 16];
    }
    TL_UNROLL
    for (int i = 0; i < kQ; ++i) {
      const Visible visible = shared.visible[first_query + i];
      const bool sees = position + p >= visible.first && position + p < visible.end;
      float score = acc[i][p];
      if constexpr (kScaled<kMode>) score = score * key_scale;
      shared.scores[first_query + i][position + p] = sees ? score * call.scale : minus_infinity();
    }
  }
}

// Scores to probabilities, times the scale of V where there is one. Sixteen threads a query, one
// for each position modulo 16.
template <KvMode kMode, int kQueries>
TL_DEVICE void softmax_block(const AttentionCall& call, Shared<kQueries>& shared, bool split) {
  const auto query = static_cast<std::int32_t>(thread_index() / 16);
  const auto lane = static_cast<std::int32_t>(thread_index() % 16);
  const bool sees = query < kQueries && shared.visible[query].first < shared.visible[query].end;
  float greatest = minus_infinity();
  if (sees) {
    for (std::int32_t t = 0; t < kTiles; ++t) {
      greatest = most_of(greatest, shared.scores[query][t * 16 + lane]);
    }
  }
  for (std::uint32_t mask = 8; mask > 0; mask /= 2) {
    greatest = most_of(greatest, xor_lane(greatest, mask));
  }
  float sum = 0.0f;
  if (sees) {
    for (std::int32_t t = 0; t < kTiles; ++t) {
      float& score = shared.scores[query][t * 16 + lane];
      float p = exp_of(score - greatest);
      sum = sum + p;
      const unsigned char* tile = shared.tiles[t];
      if (kScaled<kMode> && tile != nullptr) {
        p = p * reinterpret_cast<const float*>(in_global(tile + call.layout.key_bytes))[lane];
      }
      score = p;
    }
  }
  sum = sum_of_16(sum);
  if (!sees || lane != 0) return;
  if (split) {
    shared.greatest[query] = greatest;
    shared.sum[query] = sum;
  } else {
    const Folded folded = fold(shared.greatest[query], shared.sum[query], greatest, sum);
    shared.greatest[query] = folded.greatest;
    shared.sum[query] = folded.sum;
    shared.a[query] = folded.a;
    shared.c[query] = folded.c;
  }
}

// What a thread has of the output: kC neighbouring channels of kQ queries.
template <int kC>
struct Share {
  std::int32_t channel, first_query;
  bool any;
};
template <int kQueries, int kQ, int kC>
TL_DEVICE Share<kC> share_of(const AttentionCall& call) {
  const auto thread = static_cast<std::int32_t>(thread_index());
  const std::int32_t threads_of_query = call.layout.panels * 16 / kC;
  const std::int32_t first_query = thread / threads_of_query * kQ;
  return {thread % threads_of_query * kC, first_query, first_query < kQueries};
}

// o of the block: a chain over the positions that a query sees, in order.
template <KvMode kMode, int kQueries, int kQ, int kC>
TL_DEVICE void weigh_block(const AttentionCall& call, const Shared<kQueries>& shared,
                           const Share<kC>& share, float (&o)[kQ][kC]) {
  // All queries that see anything see all.first .. all.end - 1; some see from some.first to
  // some.end - 1.
  Visible all = {0, kPositions}, some = {kPositions, 0};
  TL_UNROLL
  for (int i = 0; i < kQ; ++i) {
    TL_UNROLL
    for (int c = 0; c < kC; ++c) o[i][c] = 0.0f;
    const Visible visible = shared.visible[share.first_query + i];
    if (visible.first >= visible.end) continue;
    all = {most_of(all.first, visible.first), least_of(all.end, visible.end)};
    some = {least_of(some.first, visible.first), most_of(some.end, visible.end)};
  }
  if (some.first >= some.end) return;  // no query of this share: their tiles may be missing
  std::int32_t joint_first = (all.first + 3) / 4 * 4, joint_end = all.end / 4 * 4;
  if (joint_first >= joint_end) joint_first = joint_end = some.end;
  const std::int64_t values = call.layout.key_bytes + call.layout.scale_bytes +
                              share.channel / 16 * 16 * kVectorBytes<kMode>;
  // The four positions from a multiple of four on lie in one tile, behind each other.
  const auto v_of = [&](std::int32_t position) {
    return in_global(shared.tiles[position / 16] + values + position % 16 * kVectorBytes<kMode>);
  };
  const auto each_alone = [&](std::int32_t first, std::int32_t end) {
    for (std::int32_t position = first; position < end; ++position) {
      bool seen = false;
      TL_UNROLL
      for (int i = 0; i < kQ; ++i) {
        const Visible visible = shared.visible[share.first_query + i];
        seen = seen || (position >= visible.first && position < visible.end);
      }
      if (!seen) continue;
      float v[kC];
      load_values<kMode, kC>(v, v_of(position), share.channel % 16);
      TL_UNROLL
      for (int i = 0; i < kQ; ++i) {
        const Visible visible = shared.visible[share.first_query + i];
        if (position < visible.first || position >= visible.end) continue;
        const float p = shared.scores[share.first_query + i][position];
        TL_UNROLL
        for (int c = 0; c < kC; ++c) o[i][c] = fma(p, v[c], o[i][c]);
      }
    }
  };
  each_alone(some.first, joint_first);
  TL_UNROLL_BY(8)
  for (std::int32_t position = joint_first; position < joint_end; position += 4) {
    const unsigned char* four = v_of(position);
    float v[4][kC];
    TL_UNROLL
    for (int j = 0; j < 4; ++j) {
      load_values<kMode, kC>(v[j], four + j * kVectorBytes<kMode>, share.channel % 16);
    }
    TL_UNROLL
    for (int i = 0; i < kQ; ++i) {
      float p[4];
      load_floats<4>(p, &shared.scores[share.first_query + i][position]);
      TL_UNROLL
      for (int j = 0; j < 4; ++j) {
        TL_UNROLL
        for (int c = 0; c < kC; ++c) o[i][c] = fma(p[j], v[j][c], o[i][c]);
      }
    }
  }
  each_alone(joint_end, some.end);
}

}  // namespace
}  // namespace tinyloop::cuda
