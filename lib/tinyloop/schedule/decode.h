// SPDX-License-Identifier: Apache-2.0
// Plain decoding of one sequence: the newest position from loop 0 to the last, one token at a time.
// Every other schedule is tested against this one by equality.
#pragma once

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/schedule/request.h"

namespace tinyloop {

// Continues request.prompt with tokens picked by `sampler`. `cache` holds the K and V of a prefix
// of the prompt (or nothing) and afterwards also those of the continuation, but for its last token.
// If it holds the whole prompt, the last position is run again unless request.last is given. With
// kv_slots the cache afterwards has shared planes and cannot read another prompt. Needs 1 slot of
// `forward`, 2 with an exit rule. Throws Error(usage) if the prompt is empty or longer than the
// context, Error(device) naming step and position if logits are not finite.
Answer decode(Forward& forward, KvCache& cache, const Sampler& sampler,
              const DecodeRequest& request);

}  // namespace tinyloop
