// SPDX-License-Identifier: Apache-2.0
// Random settings for tests of the law, from a seed that is printed and may be given. Not what is
// expected of them.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/model/model.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/random.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/sampling/stop.h"
#include "tinyloop/schedule/exit_rule.h"

namespace tinyloop {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::uint32_t below(std::uint32_t n) { return philox(seed_, {count_++, 77, 0, 0})[0] % n; }
  std::int32_t from(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(below(static_cast<std::uint32_t>(high - low + 1)));
  }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::uint64_t seed_;
  std::uint32_t count_ = 0;
};

ExitRule random_exit(Dice& dice, const ModelConfig& config);
SamplingOptions random_sampling(Dice& dice, const ModelConfig& config);
StopRules random_stop(Dice& dice, const ModelConfig& config);

// Tiny models, each written and opened once.
class Models {
 public:
  const Model& get(TinyModel which, WeightType type) {
    const auto key = std::pair(which, type);
    const auto found = models_.find(key);
    if (found != models_.end()) return found->second;
    return models_.emplace(key, Model::open(write_tiny_model(folder_.path(), which, type)))
        .first->second;
  }

 private:
  TemporaryFolder folder_;
  std::map<std::pair<TinyModel, WeightType>, Model> models_;
};

}  // namespace tinyloop
