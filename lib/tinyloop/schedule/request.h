// SPDX-License-Identifier: Apache-2.0
// The request and answer of every schedule of one sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/sampling/stop.h"
#include "tinyloop/schedule/exit_rule.h"
#include "tinyloop/token.h"

namespace tinyloop {

struct DecodeStats {
  std::int64_t prefilled = 0;     // prompt positions computed
  std::int64_t reused = 0;        // prompt positions found computed
  std::int64_t generated = 0;     // tokens sampled, with the end id and a dropped stop sequence
  std::int64_t loops_run = 0;     // loops actually run, summed over all positions computed
  std::int64_t prompt_loops = 0;  // of these, over the prompt
  double prefill_ms = 0.0;        // reading the prompt
  double first_token_ms = 0.0;    // from the start to the first token picked
  double decode_ms = 0.0;         // from the first token to the end
  std::uint64_t logits_hash =
      0;  // XXH3-64 over the bits of all logits a token was picked from; only if asked for

  std::int64_t passes = 0, rows = 0;  // after the prompt: passes, and rows summed over them
  std::int64_t drafted = 0;           // tokens guessed
  std::int64_t verified = 0;          // of these, compared with a token picked in full
  std::int64_t accepted = 0;          // of these, equal to it
  std::int64_t undrafted =
      0;  // tokens picked in full that no draft foresaw; accepted + undrafted = generated
  // [loops]: how many of the positions from which a token was picked exited after loop 1, 2, ...
  std::vector<std::int64_t> exits;
  std::int64_t loops_saved = 0;  // by those that exited early and stopped there
  std::size_t cache_bytes = 0;   // device memory of the cache at the end, what it shares included
};

struct Answer {
  std::vector<TokenId>
      tokens;  // the continuation, without the end id or stop sequence that ended it
  StopReason stop;
  DecodeStats stats;
};

struct DecodeRequest {
  StopRules stop;  // `room` is set by decode from the model's context
  bool hash_logits = false;
  // The prompt runs all loops in any case: its last position only selects the state that the first
  // token is picked from. Later positions follow the rule.
  ExitRule exit;
  // K and V of the loops share this many planes once the prompt is read; 0: each loop has its own.
  std::int32_t shared_planes = 0;
  // Called with the logits [vocab] that each token is picked from. May be empty.
  std::function<void(std::span<const float>)> picked_from;
  // Called with tokens that no later token can take back, in order, as soon as that is known. May
  // be empty.
  std::function<void(std::span<const TokenId>)> released;
};

}  // namespace tinyloop
