// SPDX-License-Identifier: Apache-2.0
// The vocabulary stored in a model file. Not about the weights beside it.
#pragma once

#include <string>

#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Throws Error(io) or Error(data) naming the file: none that can be opened, no vocabulary in it, a
// damaged one.
Vocabulary load_vocabulary(const std::string& model_path);

}  // namespace tinyloop
