// SPDX-License-Identifier: Apache-2.0
// Training-free looping of a plain model's layers (arXiv 2605.23872): what may be asked for, and
// the configuration that it makes.
#pragma once

#include <cstdint>

#include "tinyloop/model/model_config.h"

namespace tinyloop {

struct LoopedRange {  // training-free looping of layers first..last (inclusive, 0-based) of a plain
                      // model
  std::int32_t first = 0, last = 0;
  std::int32_t substeps = 2;
  double alpha = 1.0, beta = 0.0;
};

// Makes a plain model's configuration that of the looped one; throws Error(usage) for a model that
// is looped already and for a range, sub-steps or factors that cannot be.
void loop_layers(const LoopedRange& range, ModelConfig& config);

}  // namespace tinyloop
