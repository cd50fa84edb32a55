// SPDX-License-Identifier: Apache-2.0
// Imports Hugging Face checkpoints (config.json and safetensors) to a .tinyloop file: one table row
// per family. Knows foreign names and keys; the rest of tinyloop does not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tinyloop/model/model_config.h"
#include "tinyloop/model/packed_matrix.h"

namespace tinyloop {

struct LoopedRange {  // training-free looping of layers first..last (inclusive, 0-based) of a plain
                      // model
  std::int32_t first = 0, last = 0;
  std::int32_t substeps = 2;
  double alpha = 1.0, beta = 0.0;
};

struct ImportOptions {
  std::optional<WeightType> type;  // none: keep the type of each matrix as it is in the checkpoint
  std::optional<LoopedRange> looped;
  std::function<void(std::int64_t done, std::int64_t total)>
      progress;            // bytes of the source; may be empty
  std::string vocabulary;  // Vocabulary::serialize()'s bytes to store; empty: none
  // What an error in a weight of four bits counts, by the name of the matrix (model_tensors): one number
  // above 0 for each input. A matrix that is not there: all alike.
  std::map<std::string, std::vector<float>> input_weights;
};

struct ConversionError {      // what the conversion of one class of tensors cost
  std::string tensor_class;   // "embedding", "head", "attention", "mlp", "adapter"
  std::string type;           // the type it is stored in
  double relative_rms = 0.0;  // rms(stored - source) / rms(source) over all elements of the class
  double largest = 0.0;       // greatest |stored - source| / rms(source)
  std::int64_t elements = 0;
};

struct ImportReport {
  ModelConfig config;
  std::string fingerprint;
  std::int64_t source_bytes = 0, file_bytes = 0;
  std::vector<ConversionError> errors;
  std::vector<std::string> warnings;  // what a person may want to know of the folder
};

// Reads FOLDER/config.json and returns the generic configuration; throws Error(data) naming a key
// whose value changes the math and is not supported, or an unknown model_type (listing the known
// ones).
ModelConfig import_config(const std::string& folder, const std::optional<LoopedRange>& looped);

// Converts FOLDER to the file OUT, which appears complete or not at all. Works a panel of rows at a
// time: memory does not grow with the model. Missing, extra or wrongly shaped tensors, and values
// that are not finite (or overflow the chosen type), throw Error(data) naming the tensor and the
// file. Vectors (norms, biases) and the exit gate are stored in f32. With a type of four bits the embedding and
// the head are stored as q8, since every id passes through them.
ImportReport import_checkpoint(const std::string& folder, const std::string& out,
                               const ImportOptions& options);

// Names of the families in the table, for --help and messages.
std::vector<std::string> known_families();

}  // namespace tinyloop
