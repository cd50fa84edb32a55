// SPDX-License-Identifier: Apache-2.0
// The table of GGUF architectures: how their keys become a ModelConfig and how they call their
// tensors. Knows names and keys only; reading and converting weights is import_gguf.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/gguf_file.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/model/tensor_names.h"

namespace tinyloop {

using FindGgufTensor = std::function<const GgufTensor*(std::string_view name)>;

// The scaling factors of rotary frequencies (rope_type llama3), which stand in a tensor.
inline constexpr std::string_view kRopeFactors = "rope_freqs.weight";

struct GgufFamily {
  std::string_view architecture;  // general.architecture, and ModelConfig::family
  bool looped;
  bool sandwich;  // norms behind attention and MLP
  bool qk_norm;
  // Rows of Q and K of each head stand in pairs: their rotary embedding turns neighbours.
  bool paired;
};

// The row for a file; throws Error(data) for another kind of file than a model and for an
// architecture that is not known, listing the known ones.
const GgufFamily& gguf_family_of(const GgufMetadata& metadata);

// Throws Error(data) naming a key that is missing, contradicts another one or the tensors (with
// both numbers), or changes the math and is not supported.
ModelConfig gguf_config(const GgufFamily& family, const GgufMetadata& metadata,
                        const FindGgufTensor& find);

// How these architectures call their tensors.
const FamilyNames& gguf_names();

std::vector<std::string> known_architectures();

}  // namespace tinyloop
