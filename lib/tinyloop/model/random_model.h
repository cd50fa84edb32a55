// SPDX-License-Identifier: Apache-2.0
// A model of any shape with random weights, in memory: for measurements, which do not depend on
// the weights' values. Not an initialisation for training.
#pragma once

#include <cstdint>

#include "tinyloop/model/model.h"

namespace tinyloop {

// Finite weights of a scale that keeps states and logits finite, a pure function of the arguments;
// norm weights are near 1. A matrix repeats some of its panels, each copy in separate memory.
// Validates the configuration.
Model random_model(const ModelConfig& config, WeightType type, std::uint64_t seed);

}  // namespace tinyloop
