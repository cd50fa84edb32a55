// SPDX-License-Identifier: Apache-2.0
// The GGUF file that a user named, or all parts of a split one. Knows names and shapes, not which
// model they make.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/gguf_file.h"

namespace tinyloop {

struct GgufPart {
  const GgufFile* file = nullptr;
  const GgufTensor* tensor = nullptr;
};

class GgufCheckpoint {
 public:
  // Opens the file and, where it is the first of several (NAME-00001-of-00003.gguf), the others
  // beside it; the weights are mapped, not read. Throws Error(io) or Error(data) naming the file: a
  // part that is missing or is another one than its name says, a tensor in two parts, a later part
  // given in place of the first, a count of tensors that is not theirs.
  static GgufCheckpoint open(const std::string& path);

  const GgufMetadata& metadata() const { return files_.front().metadata(); }  // the first part's
  const std::string& path() const { return files_.front().path(); }
  const std::vector<GgufFile>& files() const { return files_; }
  const std::map<std::string, GgufPart, std::less<>>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;  // nullptr if absent

 private:
  std::vector<GgufFile> files_;
  std::map<std::string, GgufPart, std::less<>> tensors_;
};

}  // namespace tinyloop
