// SPDX-License-Identifier: Apache-2.0
// From foreign tensors to a .tinyloop file, a panel of rows at a time, and what the storage type
// costs. Not the names, keys and files of foreign formats: import_hf and import_gguf know those.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/gguf_file.h"
#include "tinyloop/files/mapped_file.h"
#include "tinyloop/model/looped_range.h"
#include "tinyloop/model/model.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/model/packed_matrix.h"
#include "tinyloop/model/tensor_names.h"

namespace tinyloop {

struct ImportOptions {
  std::optional<WeightType> type;  // none: keep the type of each matrix as it is in the checkpoint
  std::optional<LoopedRange> looped;
  std::function<void(std::int64_t done, std::int64_t total)>
      progress;            // bytes of the source; may be empty
  std::string vocabulary;  // Vocabulary::serialize()'s bytes to store; empty: none
  // What an error in a weight of four bits counts, by the name of the matrix (model_tensors): one
  // number above 0 for each input. A matrix that is not there: all alike.
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

// A tensor as it lies in a mapped file.
struct ForeignTensor {
  const MappedFile* file = nullptr;
  std::string_view name;
  std::span<const std::int64_t> shape;
  BlockType type = BlockType::f32;
  std::span<const std::byte> bytes;
};

// One of our tensors and the rows that it is made from, part after part.
struct WeightJob {
  struct Part {
    ForeignTensor tensor;
    // Above 0: rows of each head of so many stand as pairs (j, j + half) side by side, as GGUF's
    // converters lay them for rotary embeddings of neighbours; ours have the first halves first.
    std::int64_t paired_head = 0;
  };
  ModelTensor tensor;
  std::vector<Part> parts;
  WeightType stored = WeightType::f32;
  bool exact = true;   // nothing is rounded
  bool twice = false;  // what was rounded to blocks is rounded to groups once more
};

// How to store all tensors of the configuration, and from what. `find` gives the tensor of a
// foreign name, or nothing; type: none to keep what each tensor is. Missing or wrongly shaped
// tensors throw Error(data) naming them; `where` is the checkpoint.
using FindTensor = std::function<std::optional<ForeignTensor>(const std::string& name)>;
std::vector<WeightJob> plan_weights(const ModelConfig& config, const FamilyNames& names,
                                    const std::optional<WeightType>& type, std::string_view where,
                                    const FindTensor& find);

// Throws Error(data) for a tensor that the plan does not use.
[[noreturn]] void refuse_extra(const MappedFile& file, std::string_view name,
                               const ModelConfig& config);

// Throws Error(usage) if the output is one of the files that are read.
void refuse_to_replace(const std::string& out, const std::string& source);

// Whether a tensor of this type is stored without rounding anything.
bool is_same(BlockType type, WeightType stored);

// Converts all tensors of the configuration, in the order of model_tensors(), to the file OUT,
// which appears complete or not at all; fills all of the report but its warnings. Values that are
// not finite or overflow the type throw Error(data) naming the tensor and the file.
ImportReport convert_weights(const ModelConfig& config, const std::vector<WeightJob>& jobs,
                             const std::string& out, const ImportOptions& options);

}  // namespace tinyloop
