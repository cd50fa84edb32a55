// SPDX-License-Identifier: Apache-2.0
// How likely given sequences are, and what the loops do to a prompt; never generates.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/token.h"

namespace tinyloop {

struct Score {
  // Natural logarithm of the probability of ids[i + 1] after ids[0..i]; one fewer than ids.
  std::vector<double> log_probabilities;
  double sum() const;
  // exp(-sum / count): infinite beyond the range of doubles, NaN for a single id, which is not
  // scored.
  double perplexity() const;
};

// Optional outputs of score() along the way.
struct ScoreHooks {
  // Logits [vocab] of each position in order.
  std::function<void(std::span<const float> logits)> logits;
  // States [loops][hidden] of each position in order: the input of the next loop, the coda or the
  // head.
  std::function<void(std::span<const float> states)> states;
};

// Runs `ids` through an empty cache. Throws Error(usage) if there are no ids, more than the
// context allows or an id outside the vocabulary, Error(device) if logits are not finite, naming
// the position of the id they predict, as Sampler does.
Score score(Forward& forward, KvCache& cache, std::span<const TokenId> ids, std::int64_t chunk,
            const ScoreHooks& hooks = {});

// What one loop did to the last position of a prompt.
struct LoopTrace {
  std::int32_t loop = 0;         // 1 .. loops
  TokenId best = 0;              // the best id if the run exited after this loop
  double probability = 0.0;      // of `best`
  double entropy = 0.0;          // of the next-id distribution, nats
  double relative_change = 0.0;  // |x_r - x_{r-1}| / |x_r|; loop 1 compares with the initial state
  double update_ratio =
      0.0;  // beta: this loop's |x_r - x_{r-1}| over the previous one's; 0 for the first loop
  double gate = 0.0;  // exit gate's value; 0 where the model has none
};

// Needs forward.max_rows() and slots() >= ids.size(): with a coda, the answer after a loop depends
// on the coda's keys of all earlier positions at the same loop, so the prompt must go as one chunk.
// Throws as score() does.
std::vector<LoopTrace> trace_loops(Forward& forward, KvCache& cache, std::span<const TokenId> ids);

}  // namespace tinyloop
