// SPDX-License-Identifier: Apache-2.0
// Finds the parts of a split file by their names.
#include "tinyloop/model/gguf_checkpoint.h"

#include "tinyloop/error.h"

namespace tinyloop {

namespace {

constexpr std::int64_t kMostParts = 99999;  // what the names have digits for

// "-00001-of-00003.gguf"
std::string part_ending(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

}  // namespace

GgufCheckpoint GgufCheckpoint::open(const std::string& path) {
  GgufCheckpoint checkpoint;
  checkpoint.files_.push_back(GgufFile::open(path));
  const std::int64_t count = checkpoint.metadata().integer_or("split.count", 0);
  if (count < 0 || count > kMostParts) {
    checkpoint.metadata().refuse("split.count", fmt::format("0 to {} are needed", kMostParts));
  }
  if (count > 1) {
    if (const std::int64_t here = checkpoint.metadata().integer("split.no"); here != 0) {
      checkpoint.metadata().refuse(
          "split.no", fmt::format("which makes it part {} of {}; give the first", here + 1, count));
    }
    const std::string ending = part_ending(1, count);
    if (!path.ends_with(ending)) {
      throw Error(ErrorKind::data,
                  "{}: is the first of {} parts, and its name does not end in {}, so that the "
                  "others cannot be found",
                  path, count, ending);
    }
    const std::string start = path.substr(0, path.size() - ending.size());
    for (std::int64_t number = 2; number <= count; ++number) {
      checkpoint.files_.push_back(GgufFile::open(start + part_ending(number, count)));
      const GgufMetadata& metadata = checkpoint.files_.back().metadata();
      if (metadata.integer("split.no") != number - 1) {
        metadata.refuse("split.no", fmt::format("its name asks for {}", number - 1));
      }
      if (metadata.integer("split.count") != count) {
        metadata.refuse("split.count", fmt::format("the first part has {}", count));
      }
    }
  }
  for (const GgufFile& file : checkpoint.files_) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (!checkpoint.tensors_.emplace(tensor.name, GgufPart{&file, &tensor}).second) {
        throw Error(ErrorKind::data, "{}: tensor {} is in another part, too", file.path(),
                    tensor.name);
      }
    }
  }
  if (checkpoint.metadata().has("split.tensors.count") && count > 1) {
    const auto have = static_cast<std::int64_t>(checkpoint.tensors_.size());
    if (checkpoint.metadata().integer("split.tensors.count") != have) {
      checkpoint.metadata().refuse("split.tensors.count", fmt::format("the parts have {}", have));
    }
  }
  return checkpoint;
}

const GgufTensor* GgufCheckpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.tensor;
}

}  // namespace tinyloop
