// SPDX-License-Identifier: Apache-2.0
// Looks our names up in a table of theirs.
#include "tinyloop/model/tensor_names.h"

#include <algorithm>

#include "tinyloop/error.h"

namespace tinyloop {

std::vector<SourceTensor> sources_of(const FamilyNames& names, const ModelConfig& config,
                                     const ModelTensor& tensor) {
  std::string prefix;
  if (tensor.layer >= 0) {
    const std::int32_t core = tensor.layer - config.prelude_layers;
    const std::int32_t coda = core - config.core_layers;
    const std::string_view section = core < 0 ? names.prelude : coda < 0 ? names.core : names.coda;
    const std::int32_t number = !names.numbered_by_section || core < 0 ? tensor.layer
                                : coda < 0                             ? core
                                                                       : coda;
    prefix = fmt::format("{}{}.", section, number);
  }
  const std::string_view ours =
      std::string_view(tensor.name).substr(tensor.name.rfind('.') + 1);  // npos + 1 is 0
  std::vector<SourceTensor> sources;
  for (const NameRow& row : tensor.layer >= 0 ? names.layer : names.other) {
    if (row.ours != ours) continue;
    std::string_view rest = row.theirs;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      sources.push_back({fmt::format("{}{}", prefix, rest.substr(0, end)), {tensor.n}});
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  if (sources.empty()) {
    throw Error(ErrorKind::data, "family {} has no tensor for {}", config.family, tensor.name);
  }
  if (ours == "qkv" && sources.size() == 3) {
    sources[0].shape = {config.q_width()};
    sources[1].shape = sources[2].shape = {config.kv_width()};
  } else if (ours == "gate_up" && sources.size() == 2) {
    sources[0].shape = sources[1].shape = {config.ffn};
  } else if (ours == "qk_bias") {
    sources[0].shape = {2, 1, config.heads, config.head_dim};
  }
  for (SourceTensor& source : sources) {
    if (tensor.matrix) source.shape.push_back(tensor.k);
  }
  return sources;
}

}  // namespace tinyloop
