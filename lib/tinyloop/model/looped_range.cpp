// SPDX-License-Identifier: Apache-2.0
// Splits a plain model's layers into prelude, core and coda.
#include "tinyloop/model/looped_range.h"

#include "tinyloop/error.h"

namespace tinyloop {

void loop_layers(const LoopedRange& range, ModelConfig& config) {
  if (config.max_loops > 1) {
    throw Error(ErrorKind::usage, "`loop_layers` is for plain models; {} is looped already",
                config.family);
  }
  const std::int32_t layers = config.core_layers;
  if (range.first < 0 || range.last < range.first || range.last >= layers) {
    throw Error(ErrorKind::usage, "`loop_layers` {}:{}: the model has layers 0 to {}", range.first,
                range.last, layers - 1);
  }
  constexpr std::int32_t kGreatest = 64;
  if (range.substeps < 1 || range.substeps > kGreatest) {
    throw Error(ErrorKind::usage, "`substeps` {}: must be 1 to {}", range.substeps, kGreatest);
  }
  if (!(range.alpha > 0.0 && range.alpha <= 1000.0)) {
    throw Error(ErrorKind::usage, "`alpha` {}: must be above 0 and at most 1000", range.alpha);
  }
  if (!(range.beta >= -1000.0 && range.beta <= 1000.0)) {
    throw Error(ErrorKind::usage, "`beta` {}: must be -1000 to 1000", range.beta);
  }
  config.prelude_layers = range.first;
  config.core_layers = range.last - range.first + 1;
  config.coda_layers = layers - range.last - 1;
  config.default_loops = config.trained_loops = range.substeps;
  config.max_loops = kGreatest;
  config.injection = Injection::relaxed;
  config.relaxed_alpha = range.alpha;
  config.relaxed_beta = range.beta;
}

}  // namespace tinyloop
