// SPDX-License-Identifier: Apache-2.0
// Imports Hugging Face checkpoints (config.json and safetensors) to a .tinyloop file: one table row
// per family. Knows foreign names and keys; the rest of tinyloop does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tinyloop/model/convert_weights.h"
#include "tinyloop/model/looped_range.h"
#include "tinyloop/model/model_config.h"

namespace tinyloop {

// Reads FOLDER/config.json and returns the generic configuration; throws Error(data) naming a key
// whose value changes the math and is not supported, or an unknown model_type (listing the known
// ones).
ModelConfig import_config(const std::string& folder, const std::optional<LoopedRange>& looped);

// Converts FOLDER to the file OUT, which appears complete or not at all. Works a panel of rows at a
// time: memory does not grow with the model. Missing, extra or wrongly shaped tensors, and values
// that are not finite (or overflow the chosen type), throw Error(data) naming the tensor and the
// file. Vectors (norms, biases) and the exit gate are stored in f32. With a type of four bits the
// embedding and the head are stored as q8, since every id passes through them.
ImportReport import_checkpoint(const std::string& folder, const std::string& out,
                               const ImportOptions& options);

// Names of the families in the table, for --help and messages.
std::vector<std::string> known_families();

}  // namespace tinyloop
