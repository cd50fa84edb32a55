// SPDX-License-Identifier: Apache-2.0
// The table of foreign model families: how their keys become a ModelConfig and how they call their
// tensors. Knows names and keys only; reading and converting weights is import_hf.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/model/hf_json.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/model/tensor_names.h"

namespace tinyloop {

using HasTensor = std::function<bool(std::string_view)>;

struct Family {
  std::string_view name;        // ModelConfig::family
  std::string_view model_type;  // in config.json
  // Decides between families of one model_type by their tensors; nullptr: no need to.
  bool (*fits)(const HasTensor& has_tensor);
  // Throws Error(data) naming a key whose value changes the math and is not supported. Leaves loops
  // of a plain model, end ids and validation to the caller.
  ModelConfig (*config)(const HfJson& json, const HasTensor& has_tensor);
  const FamilyNames* names;
  bool looped;  // false: a plain decoder, which --loop-layers can loop
};

// The row for a config.json; throws Error(data) for an unknown or unsupported model_type, listing
// the known ones.
const Family& family_of(const HfJson& json, const HasTensor& has_tensor);

// The model types in the table, each once.
std::vector<std::string> known_model_types();

// Foreign tensors that carry no weights of their own: rotary tables, the head of a model whose head
// is tied.
bool is_ignored(const ModelConfig& config, std::string_view name);

}  // namespace tinyloop
