// SPDX-License-Identifier: Apache-2.0
// How large the inputs of a model's matrices are while it reads: what an error in a weight counts
// when weights are rounded (Lin et al., "AWQ", arXiv 2306.00978, shows that a few inputs decide).
// Reads, never generates, and rounds nothing.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/device/ops.h"
#include "tinyloop/model/model.h"
#include "tinyloop/token.h"

namespace tinyloop {

// For each matrix of the model that is multiplied while it reads `sequences` with its default
// number of loops, by its name (model_tensors): the mean square of each of its k inputs, over all
// rows and loops, plus a hundredth of the mean of those, so that none is 0. A matrix whose inputs
// are all 0, or not finite, is left out. Throws Error(usage) for a sequence that is empty, too long
// or has ids outside the vocabulary, Error(device) if memory is refused.
std::map<std::string, std::vector<float>> input_weights(
    const Model& model, Ops& ops, std::span<const std::vector<TokenId>> sequences);

// `count` ids at random, as many as the context holds at most: a text for models of which nothing
// is known. Always the same ones for one vocabulary.
std::vector<TokenId> random_text(const ModelConfig& config, std::int64_t count);

}  // namespace tinyloop
