// SPDX-License-Identifier: Apache-2.0
// Follows engine/forward.cpp matrix by matrix.
#include "tinyloop/engine/work_count.h"

#include <algorithm>

#include "tinyloop/kv/kv_cache.h"

namespace tinyloop {

Work& Work::operator+=(const Work& other) {
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  float_ops += other.float_ops;
  int8_ops += other.int8_ops;
  return *this;
}

Work operator*(std::int64_t times, const Work& work) {
  return {times * work.weight_bytes, times * work.kv_bytes, times * work.float_ops,
          times * work.int8_ops};
}

namespace {

Work vector(VectorView weight) {
  return {.weight_bytes = static_cast<std::int64_t>(weight.size_bytes())};
}

}  // namespace

WorkCount::WorkCount(const Model& model, const LoopPlan& plan)
    : model_(model), plan_(plan), geometry_(geometry_of(plan)) {}

Work WorkCount::product(const WeightView& weight, std::int64_t rows) const {
  Work work{.weight_bytes = weight.bytes()};
  (is_quantised(weight.type) ? work.int8_ops : work.float_ops) = 2 * rows * weight.n * weight.k;
  return work;
}

// Each layer on its plane: its matrices, and attention of the run over all it sees.
Work WorkCount::layers(std::int32_t first, std::int32_t count, PositionRun run) const {
  const ModelConfig& config = model_.config();
  std::int64_t seen = 0;  // positions, summed over the rows
  for (std::int64_t p = run.first; p < run.first + run.rows; ++p) {
    seen += plan_.window > 0 ? std::min(p + 1, plan_.window) : p + 1;
  }
  const std::int64_t last_tile = (run.first + run.rows - 1) / kTile;
  const std::int64_t first_seen =
      plan_.window > 0 ? std::max<std::int64_t>(0, run.first + 1 - plan_.window) : 0;
  const std::int64_t tiles = last_tile - first_seen / kTile + 1;
  const auto tile_bytes = static_cast<std::int64_t>(geometry_.tile_bytes());
  Work attention;
  attention.kv_bytes = geometry_.kv_heads * (tiles * tile_bytes + run.rows * tile_bytes / kTile);
  attention.float_ops = 2 * 2 * seen * config.heads * config.head_dim;  // with K and with V

  Work work = count * attention;
  for (std::int32_t i = first; i < first + count; ++i) {
    const LayerWeights& layer = model_.layers()[static_cast<std::size_t>(i)];
    for (const LayerMatrix& matrix : kLayerMatrices) {
      work += product(layer.*matrix.weight, run.rows);
    }
    for (const LayerVector& part : kLayerVectors) work += vector(layer.*part.weight);
  }
  return work;
}

Work WorkCount::enter(PositionRun run) const { return layers(0, plan_.prelude_layers, run); }

Work WorkCount::pass(PositionRun run) const {
  const ModelConfig& config = model_.config();
  Work work = layers(plan_.prelude_layers, plan_.core_layers, run);
  if (config.injection == Injection::concat) work += product(model_.adapter(), run.rows);
  if (config.loop_norm) work += vector(model_.final_norm());
  return work;
}

Work WorkCount::leave(PositionRun run, std::int64_t wanted) const {
  const ModelConfig& config = model_.config();
  Work work = layers(plan_.prelude_layers + plan_.core_layers, plan_.coda_layers, run);
  if (config.post_loop_norm) work += vector(model_.final_norm());
  if (wanted == 0) return work;
  if (config.final_norm) work += vector(model_.final_norm());
  work += product(model_.head(), wanted);
  return work;
}

Work WorkCount::all(PositionRun run) const {
  Work work = enter(run);
  work += plan_.loops * pass(run);
  work += leave(run, 1);
  return work;
}

}  // namespace tinyloop
