// SPDX-License-Identifier: Apache-2.0
// The minimum that parts of the forward pass must read and multiply, by formula: the reference for
// measured times. Not a measurement, and not what the kernels actually do.
#pragma once

#include <cstdint>

#include "tinyloop/device/kv_tile.h"
#include "tinyloop/model/loop_plan.h"
#include "tinyloop/model/model.h"

namespace tinyloop {

// A multiply-add is two operations.
struct Work {
  std::int64_t weight_bytes = 0;  // each matrix and norm that is used, once
  std::int64_t kv_bytes = 0;      // K and V read (whole tiles, each once) and written
  std::int64_t float_ops = 0;     // products with f32, f16 and bf16 weights, attention
  std::int64_t int8_ops = 0;      // products with q8 and q4 weights

  std::int64_t bytes() const { return weight_bytes + kv_bytes; }
  Work& operator+=(const Work& other);
};
Work operator*(std::int64_t times, const Work& work);

// Consecutive new positions of one sequence that advance together.
struct PositionRun {
  std::int64_t first = 0, rows = 1;
};

class WorkCount {
 public:
  // model must outlive it.
  WorkCount(const Model& model, const LoopPlan& plan);

  // As the functions of engine/forward. Not counted, since they are small: activations,
  // embedding rows, norms' and rotations' arithmetic.
  Work enter(PositionRun run) const;
  Work pass(PositionRun run) const;
  Work leave(PositionRun run, std::int64_t wanted) const;
  // enter, all passes, and leave with one row wanted: a decode step, or a prefill in one piece.
  Work all(PositionRun run) const;

 private:
  Work product(const WeightView& weight, std::int64_t rows) const;
  Work layers(std::int32_t first, std::int32_t count, PositionRun run) const;

  const Model& model_;
  LoopPlan plan_;
  KvGeometry geometry_;
};

}  // namespace tinyloop
