// SPDX-License-Identifier: Apache-2.0
// Plain decoding of one sequence: the newest position from loop 0 to the last, one token at a time.
// Every other schedule is tested against this one by equality.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/forward.h"
#include "kv/kv_cache.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"
#include "token.h"

namespace tinyloop {

struct DecodeStats {
  std::int64_t prefilled = 0;   // prompt positions computed
  std::int64_t reused = 0;      // prompt positions found in the cache
  std::int64_t generated = 0;   // tokens sampled, the end id and a dropped stop sequence included
  std::int64_t loops_run = 0;   // loops really run, summed over all positions computed
  double prefill_ms = 0.0;      // reading the prompt
  double first_token_ms = 0.0;  // from the start until the first token is picked
  double decode_ms = 0.0;       // from the first token until the end
  std::uint64_t logits_hash =
      0;  // XXH3-64 over the bits of all logits a token was picked from; only if asked for
};

struct Answer {
  std::vector<TokenId>
      tokens;  // the continuation, without the end id or stop sequence that ended it
  StopReason stop;
  DecodeStats stats;
};

struct DecodeRequest {
  std::span<const TokenId> prompt;  // at least one id
  StopRules stop;                   // `room` is set by decode from the model's context
  std::int64_t prefill_chunk = 0;   // 0 = the forward pass's max_rows
  bool hash_logits = false;
  // What the head multiplies at the prompt's last position, if that is known: a cache that holds
  // the whole prompt then needs no position to be run again.
  std::span<const float> last;
  // Called when the cache holds the prompt and before the first token is picked, with that vector.
  // May be empty.
  std::function<void(std::span<const float> last)> prompt_read;
  // Called with tokens that no later token can take back, in order, as soon as that is known. May
  // be empty.
  std::function<void(std::span<const TokenId>)> released;
};

// Continues request.prompt with tokens picked by `sampler`. `cache` holds the K and V of a prefix
// of the prompt (or nothing) and afterwards also those of the continuation, but for its last token.
// If it holds the whole prompt, the last position is run again unless request.last is given. Throws Error(usage) if the prompt
// is empty or longer than the context, Error(device) naming step and position if logits are not
// finite.
Answer decode(Forward& forward, KvCache& cache, const Sampler& sampler,
              const DecodeRequest& request);

}  // namespace tinyloop
