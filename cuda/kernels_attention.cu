// SPDX-License-Identifier: Apache-2.0
// Attention over keys and values in their tiles, for one or many queries. kernels_kv stores
// them.
//
// A tile of queries of one kv head goes through its blocks of 256 absolute positions: scores,
// softmax of the block, weighted sum of V, fold. Every step has the order of sums that device/ops.h
// defines, so the bits are those of the CPU, whether a thread block does all blocks of a tile or
// one of them (split; the block that comes last folds), and with any company. Where a query does
// not see a position nothing is multiplied: what lies there may be stale, NaN included.
#include "attention_block.h"

namespace tinyloop::cuda {
namespace {

// out = O / L
template <int kQ, int kC>
TL_DEVICE void write_out(const AttentionCall& call, const AttentionTile& tile, std::int32_t kv_head,
                         const Share<kC>& share, int i, const float (&total)[kQ][kC], float sum) {
  const std::int32_t query = tile.first_query + share.first_query + i;
  float* to = row_at(call.out, tile.row + query / call.group) +
              (kv_head * call.group + query % call.group) * call.layout.head_dim;
  TL_UNROLL
  for (int c = 0; c < kC; ++c) {
    if (share.channel + c < call.layout.head_dim) to[share.channel + c] = divide(total[i][c], sum);
  }
}

TL_DEVICE float* partial_of(const AttentionCall& call, std::int64_t unit, std::int32_t kv_head,
                            std::int32_t query) {
  return call.partial + ((unit * call.layout.kv_heads + kv_head) * call.most_queries + query) *
                            (call.layout.panels * 16 + 2);
}

// Folds the blocks of a tile, which all thread blocks have written.
template <int kQ, int kC>
TL_DEVICE void fold_partials(const AttentionCall& call, const AttentionTile& tile,
                             std::int32_t kv_head, const Share<kC>& share) {
  for (int i = 0; i < kQ; ++i) {
    const std::int32_t query = share.first_query + i;
    if (query >= tile.queries) break;
    float greatest = minus_infinity(), sum = 0.0f, total[1][kC] = {};
    for (std::int32_t b = 0; b < tile.blocks; ++b) {
      const Visible visible = visible_in(call, tile, query, tile.first_block + b);
      if (visible.first >= visible.end) continue;
      const float* partial = partial_of(call, tile.first_unit + b, kv_head, query);
      const Folded folded = fold(greatest, sum, load_written(partial), load_written(partial + 1));
      greatest = folded.greatest;
      sum = folded.sum;
      TL_UNROLL
      for (int c = 0; c < kC; ++c) {
        const float o = load_written(partial + 2 + share.channel + c);
        total[0][c] = total[0][c] * folded.a + o * folded.c;
      }
    }
    const Share<kC> one = {share.channel, query, true};
    write_out<1, kC>(call, tile, kv_head, one, 0, total, sum);
  }
}

template <KvMode kMode, int kQueries, int kQ, bool kSplit>
TL_GLOBAL_OF(kAttentionThreads)
void attention_kernel(AttentionCall call) {
  constexpr int kC = kValueChannels<kQueries>;
  auto& shared = *reinterpret_cast<Shared<kQueries>*>(shared_memory());
  const auto thread = static_cast<std::int32_t>(thread_index());
  const auto kv_head = static_cast<std::int32_t>(block_y());

  // Which tile, and where split which of its blocks.
  auto number = static_cast<std::int32_t>(block_x());
  if constexpr (kSplit) {
    std::int32_t first = 0, end = call.tile_count;
    while (end - first > 1) {
      const std::int32_t middle = (first + end) / 2;
      if (call.tiles[middle].first_unit <= number) {
        first = middle;
      } else {
        end = middle;
      }
    }
    number = first;
  }
  const AttentionTile tile = call.tiles[number];
  const std::int32_t unit = static_cast<std::int32_t>(block_x());
  const std::int64_t first_block = tile.first_block + (kSplit ? unit - tile.first_unit : 0);
  const std::int64_t end_block = kSplit ? first_block + 1 : first_block + tile.blocks;

  for (std::int32_t i = thread; i < kQueries * call.layout.head_dim;
       i += static_cast<std::int32_t>(kAttentionThreads)) {
    const std::int32_t query = i / call.layout.head_dim, d = i % call.layout.head_dim;
    const std::int32_t of_run = tile.first_query + query;
    float value = 0.0f;
    if (query < tile.queries) {
      value = row_at(
          call.q,
          tile.row +
              of_run /
                  call.group)[(kv_head * call.group + of_run % call.group) * call.layout.head_dim +
                              d];
    }
    (&shared.q[0][0])[d * kQueries + query] = value;
  }
  if (thread < kQueries) {
    shared.greatest[thread] = minus_infinity();
    shared.sum[thread] = 0.0f;
  }

  const Share<kC> share = share_of<kQueries, kQ, kC>(call);
  float total[kQ][kC] = {};
  const KvRow row = call.rows[tile.row];
  for (std::int64_t block = first_block; block < end_block; ++block) {
    if (thread < kQueries) shared.visible[thread] = visible_in(call, tile, thread, block);
    barrier();
    if (thread < kTiles) {
      bool seen = false;
      for (std::int32_t i = 0; i < kQueries; ++i) {
        const Visible visible = shared.visible[i];
        seen = seen || (visible.first < thread * 16 + 16 && visible.end > thread * 16 &&
                        visible.first < visible.end);
      }
      shared.tiles[thread] = seen ? find_tile(call.tables, call.layout, row.sequence, row.plane,
                                              kv_head, block * kTiles + thread)
                                  : nullptr;
    }
    barrier();
    if constexpr (kSplit) {  // V is on its way while K is used
      const auto lines =
          static_cast<std::int32_t>((call.layout.tile_bytes - call.layout.key_bytes + 127) / 128);
      for (std::int32_t i = thread; i < kTiles * lines;
           i += static_cast<std::int32_t>(kAttentionThreads)) {
        const unsigned char* of_line = shared.tiles[i / lines];
        if (of_line != nullptr) prefetch(of_line + call.layout.key_bytes + i % lines * 128);
      }
    }
    score_block<kMode, kQueries>(call, shared);
    barrier();
    softmax_block<kMode, kQueries>(call, shared, kSplit);
    barrier();
    if (share.any) {
      float o[kQ][kC];
      weigh_block<kMode, kQueries, kQ, kC>(call, shared, share, o);
      for (int i = 0; i < kQ; ++i) {
        const std::int32_t query = share.first_query + i;
        const Visible visible = shared.visible[query];
        if (visible.first >= visible.end) continue;
        if constexpr (kSplit) {
          float* partial = partial_of(call, unit, kv_head, query);
          if (share.channel == 0) {
            partial[0] = shared.greatest[query];
            partial[1] = shared.sum[query];
          }
          for (int c = 0; c < kC; ++c) partial[2 + share.channel + c] = o[i][c];
        } else {
          for (int c = 0; c < kC; ++c) {
            total[i][c] = total[i][c] * shared.a[query] + o[i][c] * shared.c[query];
          }
        }
      }
    }
    barrier();
  }

  if constexpr (!kSplit) {
    if (!share.any) return;
    for (int i = 0; i < kQ; ++i) {
      const std::int32_t query = share.first_query + i;
      if (query >= tile.queries) break;
      write_out<kQ, kC>(call, tile, kv_head, share, i, total, shared.sum[query]);
    }
  } else {
    std::int32_t* counter = call.counters + number * call.layout.kv_heads + kv_head;
    // After the barrier that the block above ends with.
    if (thread == 0) shared.is_last = count_up(counter) == tile.blocks - 1;
    barrier();
    if (shared.is_last != 1) return;
    if (thread == 0) *counter = 0;
    if (share.any) fold_partials<kQ, kC>(call, tile, kv_head, share);
  }
}

template <KvMode kMode, int kQueries, int kQ>
void launch_attention(const AttentionCall& call, const AttentionPlan& plan, Stream stream) {
  const std::size_t bytes = Shared<kQueries>::bytes(call.layout.head_dim);
  const auto heads = static_cast<std::uint32_t>(call.layout.kv_heads);
  if (plan.split) {
    launch(attention_kernel<kMode, kQueries, kQ, true>,
           Grid{static_cast<std::uint32_t>(plan.units), heads}, kAttentionThreads, bytes, stream,
           call);
  } else {
    launch(attention_kernel<kMode, kQueries, kQ, false>,
           Grid{static_cast<std::uint32_t>(plan.tiles.size()), heads}, kAttentionThreads, bytes,
           stream, call);
  }
}

// As few queries a thread as 256 threads allow when V is weighted.
template <KvMode kMode, int kQueries>
void launch_for_head_dim(const AttentionCall& call, const AttentionPlan& plan, Stream stream) {
  if (call.layout.panels <= 4) return launch_attention<kMode, kQueries, 1>(call, plan, stream);
  if (call.layout.panels <= 8) return launch_attention<kMode, kQueries, 2>(call, plan, stream);
  launch_attention<kMode, kQueries, 4>(call, plan, stream);
}

void attention(Rows out, Rows q, const KvRow* rows, KvTables tables, const AttentionShape& shape,
               const AttentionPlan& plan, const AttentionTile* tiles, Workspace workspace,
               Stream stream) {
  if (plan.tiles.empty()) return;
  const AttentionCall call = {out,
                              q,
                              rows,
                              tables,
                              layout_of(shape.kv),
                              shape.heads / shape.kv.kv_heads,
                              shape.window,
                              shape.scale,
                              tiles,
                              static_cast<std::int32_t>(plan.tiles.size()),
                              reinterpret_cast<float*>(workspace.data),
                              workspace.counters,
                              plan.most_queries};
  with_kv_mode(shape.kv.mode, [&](auto mode) {
    constexpr KvMode kMode = decltype(mode)::value;
    if (plan.most_queries == 1) {
      launch_attention<kMode, 1, 1>(call, plan, stream);
    } else if (plan.most_queries <= 4) {
      launch_for_head_dim<kMode, 4>(call, plan, stream);
    } else {
      launch_for_head_dim<kMode, 16>(call, plan, stream);
    }
  });
}

}  // namespace

void TL_KERNELS_NAMESPACE::enter_attention(Kernels& table) { table.attention = attention; }

}  // namespace tinyloop::cuda
