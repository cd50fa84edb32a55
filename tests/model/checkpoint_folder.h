// SPDX-License-Identifier: Apache-2.0
// Hugging Face checkpoint folders for tests: reads and writes config.json and safetensors with code
// of its own, so that a mistake in lib's readers or import cannot hide. Only what tests need:
// well-formed files, no checks for users.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/reference_model.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/model/packed_matrix.h"

namespace tinyloop {

// One tensor of a checkpoint and where its values live, part after part.
struct CheckpointTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::span<double>> parts;
};

// Zeros of the sizes that the configuration asks for.
ReferenceWeights sized_weights(const ModelConfig& config);

// The tensors of the configuration's family under their foreign names; the parts look into
// `weights`, which must be sized.
std::vector<CheckpointTensor> checkpoint_tensors(const ModelConfig& config,
                                                 ReferenceWeights& weights);

// The configuration of a folder. Fields that do not change the numbers are filled in loosely.
ModelConfig read_checkpoint_config(const std::string& folder);
ReferenceWeights read_checkpoint(const std::string& folder, const ModelConfig& config);

// Writes config.json and the weights as f32, f16 or bf16 (rounded to nearest) in `shards` files,
// with an index if more than one.
void write_checkpoint(const std::string& folder, const ModelConfig& config,
                      ReferenceWeights weights, WeightType type, std::int32_t shards);

// Copies a folder's config.json and weights to another folder and sets a boolean key there.
void copy_checkpoint(const std::string& from, const std::string& to, const std::string& key,
                     bool value);

}  // namespace tinyloop
