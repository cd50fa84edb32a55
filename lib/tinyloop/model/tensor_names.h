// SPDX-License-Identifier: Apache-2.0
// How foreign checkpoints call tensors: tables of names, and the shapes that must stand under them.
// Not what configuration a family has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/model/model.h"
#include "tinyloop/model/model_config.h"

namespace tinyloop {

struct NameRow {
  std::string_view ours;  // last part of our name
  // One name, or several that follow each other in our rows, separated by a blank.
  std::string_view theirs;
};

struct FamilyNames {
  std::string_view prelude, core, coda;  // what layer names begin with, before the layer's number
  bool numbered_by_section;              // layer numbers begin again at 0 in core and coda
  std::span<const NameRow> layer, other;
};

// A foreign tensor: its name and the shape it must have.
struct SourceTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// What the rows (or values) of one of our tensors are made of, in order.
std::vector<SourceTensor> sources_of(const FamilyNames& names, const ModelConfig& config,
                                     const ModelTensor& tensor);

}  // namespace tinyloop
