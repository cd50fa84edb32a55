// SPDX-License-Identifier: Apache-2.0
// What a token is. Nothing here knows text: that is lib/text's business.
#pragma once

#include <cstdint>

namespace tinyloop {

using TokenId = std::int32_t;  // 0 .. vocab-1

struct TokenLogit {  // one of the best ids of a position
  TokenId id = 0;
  float logit = 0.0f;
};

}  // namespace tinyloop
