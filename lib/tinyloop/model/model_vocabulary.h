// SPDX-License-Identifier: Apache-2.0
// The vocabulary that a model file brings along. Not about the weights beside it.
#pragma once

#include <string>

#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Throws Error(io) or Error(data) naming the file: none that can be opened, no vocabulary in it, a
// damaged one.
Vocabulary load_vocabulary(const std::string& model_path);

}  // namespace tinyloop
