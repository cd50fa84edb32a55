// SPDX-License-Identifier: Apache-2.0
// What a token is. Nothing here knows text: a tokenizer lives outside tinyloop.
#pragma once

#include <cstdint>

namespace tinyloop {

using TokenId = std::int32_t;  // 0 .. vocab-1

}  // namespace tinyloop
