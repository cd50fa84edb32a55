// SPDX-License-Identifier: Apache-2.0
// The schedule that reads a prompt: all its positions, loop 0 to the last, in chunks.
// Picks rows only; what is computed for them is the forward pass's business.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/token.h"

namespace tinyloop {

// What a caller may look at while a prompt is read. Both may be empty.
struct PrefillHooks {
  // After each loop of each chunk; the rows' `loop` tells which. May call forward.states, gates and
  // leave.
  std::function<void(std::span<const Row> rows)> after_loop;
  // After the last loop of each chunk, once or several times: logits [rows][vocab] of positions
  // first_position, first_position + 1, ... Setting it makes the head run on every position.
  std::function<void(std::int64_t first_position, std::span<const float> logits)> all_logits;
};

// Runs ids[cache.length()..] through every loop and adds them to the cache; returns the logits of
// the last id, host memory [vocab], valid until the forward pass's next call. `chunk` rows advance
// together, 0 = forward.max_rows(); the result does not depend on it. Uses the slots 0 .. chunk-1.
// Needs cache.length() < ids.size().
std::span<const float> prefill(Forward& forward, KvCache& cache, std::span<const TokenId> ids,
                               std::int64_t chunk, const PrefillHooks& hooks = {});

}  // namespace tinyloop
