// SPDX-License-Identifier: Apache-2.0
// How work is split. Choices that affect sums depend only on the matrix or on positions; choices
// that depend on the number of rows affect only speed and memory.
#include "kernel_plans.h"

#include <algorithm>
#include <cassert>

#include "tinyloop/device/query_tiles.h"
#include "tinyloop/error.h"

namespace tinyloop::cuda {
namespace {

// Warps that keep a large device busy: about 32 for each of 132 multiprocessors.
constexpr std::int64_t kWantedWarps = 4096;
constexpr std::int64_t kMostSplits = 16;
// Rows whose products share what the second-level cache holds of the weights.
constexpr std::int64_t kRowsOfLaunch = 512;
// Blocks of attention below which a call is split: a few for each multiprocessor.
constexpr std::int64_t kWantedBlocks = 264;

}  // namespace

MatmulPlan plan_matmul(std::int64_t rows, WeightType type, std::int64_t n, std::int64_t k) {
  const std::int64_t panels = panels_of(n), turn = unit_of(type) * kWarpsAlongK;
  const std::int64_t turns = std::max<std::int64_t>((k + turn - 1) / turn, 1);
  const std::int64_t wanted = kWantedWarps / std::max<std::int64_t>(panels * kWarpsAlongK, 1);
  const std::int64_t most = std::clamp<std::int64_t>(wanted, 1, std::min(turns, kMostSplits));
  const std::int64_t turns_of_split = (turns + most - 1) / most;
  MatmulPlan plan;
  plan.splits = (turns + turns_of_split - 1) / turns_of_split;
  plan.k_of_split = turns_of_split * turn;
  plan.rows_of_launch = std::min(rows, kRowsOfLaunch);
  if (plan.splits > 1) {
    plan.partial_bytes = aligned_bytes(plan.splits * plan.rows_of_launch * panels * kPanel * 4);
    assert((panels + 1) / kBlockPanels * ((plan.rows_of_launch + kMatmulRows - 1) / kMatmulRows) <=
           kCounters);
  }
  if (is_quantised(type)) {
    const auto group_bytes = static_cast<std::int64_t>(kGroup + sizeof(QuantisedGroup));
    plan.quantised_bytes = aligned_bytes(plan.rows_of_launch * groups_of(k) * group_bytes);
  }
  return plan;
}

std::size_t matmul_workspace_bytes(std::int64_t rows, WeightType type, std::int64_t n,
                                   std::int64_t k) {
  return plan_matmul(rows, type, n, k).workspace_bytes();
}

std::size_t top_k_workspace_bytes(std::int64_t rows, std::int64_t vocab, int k) {
  const std::int64_t first = top_k_blocks(vocab) * k, second = top_k_blocks(first) * k;
  return aligned_bytes(rows * first * 8) + aligned_bytes(rows * second * 8);
}

AttentionPlan plan_attention(std::span<const KvRow> rows, const AttentionShape& shape) {
  if (shape.kv.head_dim < 1 || shape.kv.head_dim > kMostHeadDim) {
    throw Error(ErrorKind::usage, "cuda: heads of {} values; attention is made for 1 to {}",
                shape.kv.head_dim, kMostHeadDim);
  }
  std::vector<QueryTile> cut;
  list_query_tiles(cut, rows, shape.heads / shape.kv.kv_heads, shape.window, kAttentionQueries);
  AttentionPlan plan;
  for (const QueryTile& tile : cut) {
    plan.tiles.push_back(
        {static_cast<std::int32_t>(tile.row), static_cast<std::int32_t>(tile.first), tile.count,
         static_cast<std::int32_t>(tile.first_block), static_cast<std::int32_t>(tile.blocks),
         static_cast<std::int32_t>(tile.first_unit)});
    plan.most_queries = std::max(plan.most_queries, tile.count);
    plan.units = tile.first_unit + tile.blocks;
  }
  const auto tiles = static_cast<std::int64_t>(plan.tiles.size());
  const std::int64_t blocks = tiles * shape.kv.kv_heads;
  const std::size_t partial_bytes = aligned_bytes(
      plan.units * shape.kv.kv_heads * plan.most_queries * (shape.kv.padded_head_dim() + 2) * 4);
  plan.split = plan.units > tiles && blocks < kWantedBlocks && partial_bytes <= kMostPartialBytes;
  if (plan.split) plan.workspace_bytes = partial_bytes;
  return plan;
}

}  // namespace tinyloop::cuda
