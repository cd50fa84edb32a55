// SPDX-License-Identifier: Apache-2.0
// The weights of a Hugging Face folder: one safetensors file, or shards with their index.
// Knows names and shapes, not which model they make.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/tensor_file.h"

namespace tinyloop {

// Whether the folder lists such a file, even a dangling link: opening it reports the problem,
// whereas skipping it would use another file or none.
bool is_listed(const std::string& path);

struct HfTensor {
  const TensorFile* file = nullptr;
  const TensorView* view = nullptr;
};

class HfCheckpoint {
 public:
  // Opens FOLDER/model.safetensors, or the shards that FOLDER/model.safetensors.index.json names;
  // the weights are mapped, not read. Throws Error(io) or Error(data) naming the file: no such
  // files, a missing shard, a tensor that is not in the shard the index says or in none.
  static HfCheckpoint open(const std::string& folder);

  const std::map<std::string, HfTensor, std::less<>>& tensors() const { return tensors_; }
  bool has(std::string_view name) const { return tensors_.contains(name); }
  // The folder also has an index, which was not read: the single file takes precedence.
  bool also_indexed() const { return also_indexed_; }
  const std::string& folder() const { return folder_; }
  const std::vector<TensorFile>& files() const { return files_; }

 private:
  std::string folder_;
  bool also_indexed_ = false;
  std::vector<TensorFile> files_;
  std::map<std::string, HfTensor, std::less<>> tensors_;
};

}  // namespace tinyloop
