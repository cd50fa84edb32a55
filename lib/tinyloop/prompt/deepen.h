// SPDX-License-Identifier: Apache-2.0
// A prompt that was read with some loops goes on to more of them: its rows stand where they were
// left, so that only the missing loops are computed. Where they are kept in between is snapshot's
// business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/prompt/prefill.h"
#include "tinyloop/token.h"

namespace tinyloop {

// Throws Error(usage) if the model's loops depend on their number, so that more of them cannot go
// on from fewer, or if the plan stores inputs in place of keys and values.
void check_resumable(Forward& forward);

// Keeps what a run with more loops needs to go on, of the rows that have done all loops: appended
// to `states` and `injected`, which must outlive it (see Forward::states() and injected()).
PrefillHooks keeping_states(Forward& forward, std::vector<float>& states,
                            std::vector<float>& injected);

// Takes the first prompt positions, whose K and V of `loops` loops are in the cache's planes, to
// the forward pass's last loop. states, injected: [ids][hidden] after those loops, as
// Forward::states() and injected() give them. There is room for ids.size() positions, none of them
// committed; afterwards they are. Returns the last position's logits, valid until the forward
// pass's next call.
std::span<const float> run_missing_loops(Forward& forward, KvCache& cache,
                                         std::span<const TokenId> ids, std::int32_t loops,
                                         std::span<const float> states,
                                         std::span<const float> injected);

}  // namespace tinyloop
