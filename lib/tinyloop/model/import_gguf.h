// SPDX-License-Identifier: Apache-2.0
// Imports GGUF files to a .tinyloop file: the counterpart of import_hf. Formats are known in
// files/gguf_file and gguf_blocks, names and keys in gguf_families.
#pragma once

#include <optional>
#include <string>

#include "tinyloop/model/convert_weights.h"
#include "tinyloop/model/looped_range.h"
#include "tinyloop/model/model_config.h"

namespace tinyloop {

// The configuration that the file at PATH (the first part of a split one) makes; throws Error(data)
// as gguf_config() does.
ModelConfig import_gguf_config(const std::string& path, const std::optional<LoopedRange>& looped);

// Converts the file to the file OUT, as import_checkpoint() does a folder: the same weights make
// the same file. Q and K get their halves' order back. Without a type F32, F16, BF16 and Q8_0 stay
// what they are, bit for bit, and all other blocks become q8; where what was rounded to blocks is
// rounded again, a warning says so.
ImportReport import_gguf(const std::string& path, const std::string& out,
                         const ImportOptions& options);

}  // namespace tinyloop
