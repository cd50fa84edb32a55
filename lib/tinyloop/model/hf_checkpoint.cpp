// SPDX-License-Identifier: Apache-2.0
// Finds and opens the weight files of a Hugging Face folder.
// Not the conversion: that is import_hf.
#include "tinyloop/model/hf_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/model/hf_json.h"

namespace tinyloop {

bool is_listed(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

HfCheckpoint HfCheckpoint::open(const std::string& folder) {
  HfCheckpoint checkpoint;
  checkpoint.folder_ = folder;
  const std::string single = folder + "/model.safetensors";
  const std::string index = single + ".index.json";
  std::map<std::string, std::string> shard_of;  // tensor to shard; empty for a single file
  std::map<std::string, std::size_t> shards;    // name to place in files_
  if (is_listed(single)) {
    checkpoint.files_.push_back(TensorFile::open(single));
    checkpoint.also_indexed_ = is_listed(index);
  } else if (is_listed(index)) {
    shard_of = HfJson::read(index).text_map("weight_map");
    for (const auto& [tensor, shard] : shard_of) {
      const auto is_odd = [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' '; };
      if (shard.empty() || std::any_of(shard.begin(), shard.end(), is_odd)) {
        throw Error(ErrorKind::data, "{}: tensor {}: its shard is not a plain file name", index,
                    json_string(tensor.substr(0, 100)));
      }
      if (!shards.emplace(shard, checkpoint.files_.size()).second) continue;
      checkpoint.files_.push_back(TensorFile::open(folder + "/" + shard));
    }
    for (const auto& [tensor, shard] : shard_of) {
      const TensorFile& file = checkpoint.files_[shards.at(shard)];
      if (file.find(tensor) == nullptr) {
        throw Error(ErrorKind::data, "{}: tensor {} is missing, although {} places it here",
                    file.path(), json_string(tensor.substr(0, 100)), index);
      }
    }
  } else {
    throw Error(ErrorKind::io,
                "{}: has neither model.safetensors nor model.safetensors.index.json{}", folder,
                is_listed(folder + "/pytorch_model.bin")
                    ? " (pytorch_model.bin is not read; convert it to safetensors first)"
                    : "");
  }
  for (const TensorFile& file : checkpoint.files_) {
    const std::string name = std::filesystem::path(file.path()).filename().string();
    for (const TensorView& tensor : file.tensors()) {
      const auto place = shard_of.find(tensor.name);
      if (!shard_of.empty() && (place == shard_of.end() || place->second != name)) {
        throw Error(ErrorKind::data, "{}: tensor {}: {} does not place it here", file.path(),
                    tensor.name, index);
      }
      checkpoint.tensors_.emplace(tensor.name, HfTensor{&file, &tensor});
    }
  }
  return checkpoint;
}

}  // namespace tinyloop
