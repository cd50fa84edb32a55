// SPDX-License-Identifier: Apache-2.0
// A configuration from a few numbers in text, for models that come from no checkpoint.
#pragma once

#include <string_view>

#include "tinyloop/model/model_config.h"

namespace tinyloop {

inline constexpr std::string_view kShapeKeys =
    "dim, ffn, heads, layers, vocab, kv-heads, head-dim, loops, prelude, coda";

// "dim=2048,ffn=5632,heads=16,layers=24,vocab=49152" to plain pre-norm blocks, with the other keys
// as needed: kv-heads (else as heads), head-dim (else dim / heads), loops (else 1), prelude, coda
// (else 0). Any number of loops may be run. Throws Error(usage) naming the key.
ModelConfig parse_model_shape(std::string_view text);

}  // namespace tinyloop
