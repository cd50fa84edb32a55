// SPDX-License-Identifier: Apache-2.0
// Resumes a prompt that was read with some loops and runs it with more: its rows continue from
// their states, so only the missing loops are computed. How the states are stored is snapshot's
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

// Throws Error(usage) if the model's loops depend on their number, so that a run with more cannot
// resume from fewer, or if the plan stores inputs instead of keys and values.
void check_resumable(Forward& forward);

// Collects what a run with more loops needs to resume, from rows that have done all loops: appends
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
