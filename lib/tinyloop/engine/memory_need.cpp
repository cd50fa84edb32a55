// SPDX-License-Identifier: Apache-2.0
// Sums over the tensors of a model, the buffers of forward_memory and the segments of a cache.
#include "tinyloop/engine/memory_need.h"

#include <algorithm>
#include <optional>

#include "tinyloop/error.h"
#include "tinyloop/kv/kv_cache.h"

namespace tinyloop {
std::int64_t weight_bytes(const Model& model) {
  std::int64_t sum = model.embedding().bytes() + model.adapter().bytes() +
                     model.exit_gate().bytes() + std::ssize(std::as_bytes(model.final_norm()));
  if (!model.config().tied_head) sum += model.head().bytes();
  for (const LayerWeights& layer : model.layers()) {
    for (const LayerMatrix& matrix : kLayerMatrices) sum += (layer.*matrix.weight).bytes();
    for (const LayerVector& vector : kLayerVectors) {
      sum += std::ssize(std::as_bytes(layer.*vector.weight));
    }
  }
  return sum;
}

std::int64_t working_bytes(const ModelConfig& c, std::int64_t max_rows, std::int64_t slots,
                           std::int64_t logit_rows) {
  const bool injected = c.injection != Injection::none;
  std::int64_t row = 3 * c.hidden;  // x, normed, branch
  if (c.injection == Injection::relaxed) row += c.hidden;
  if (c.injection == Injection::concat) row += 2 * c.hidden;
  row += c.q_width() + 2 * c.kv_width() + c.q_width() + 3 * c.ffn + c.head_dim;
  const std::int64_t floats =
      slots * c.hidden * (injected ? 2 : 1) + max_rows * row + logit_rows * c.vocab;
  return floats * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t kv_bytes(const LoopPlan& plan, std::int64_t positions, std::int64_t max_rows) {
  const KvGeometry geometry = geometry_of(plan);
  const auto up = [](std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit; };
  std::int64_t tiles = up(positions, kBlock) * (kBlock / kTile);
  if (plan.window > 0) {  // tile by tile, and the first and the last are partly used
    tiles = std::min(up(positions, kTile), up(plan.window + max_rows, kTile) + 1);
  }
  return tiles * plan.planes() * plan.kv_heads * static_cast<std::int64_t>(geometry.tile_bytes());
}

MemoryNeed memory_need(const Model& model, const LoopPlan& plan, std::int64_t max_rows,
                       std::int64_t slots, std::int64_t positions) {
  return {weight_bytes(model), working_bytes(model.config(), max_rows, slots, 1),
          kv_bytes(plan, positions, max_rows)};
}

void check_memory(const Ops& ops, const MemoryNeed& need) {
  const std::optional<std::size_t> left = ops.memory_left();
  if (!left || need.total() <= static_cast<std::int64_t>(*left)) return;
  const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  throw Error(ErrorKind::device,
              "{}: the run needs {:.1f} MB (weights {:.1f}, working memory {:.1f}, keys and values "
              "{:.1f}), only {:.1f} MB are free",
              ops.name(), mega(need.total()), mega(need.weights), mega(need.working),
              mega(need.cache), mega(static_cast<std::int64_t>(*left)));
}

}  // namespace tinyloop
