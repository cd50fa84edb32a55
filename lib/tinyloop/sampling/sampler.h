// SPDX-License-Identifier: Apache-2.0
// Picks the next token from logits. A pure function of (logits, history, options, seed, position):
// there is no generator whose state could depend on the work done, so a draft and its verification,
// a stream and its replay pick alike.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tinyloop/token.h"

namespace tinyloop {

struct SamplingOptions {
  double temperature = 1.0;  // 0 = greedy; otherwise >= 0 and finite
  std::int64_t top_k = 50;   // 0 = off; the k best, ties to the lowest id
  double top_p =
      1.0;  // in (0, 1]; 1 = off: the smallest set of best candidates that holds this probability
  double min_p =
      0.0;  // in [0, 1]; 0 = off: candidates with at least this share of the best probability
  double repetition_penalty =
      1.0;  // > 0; 1 = off: logits of ids seen in prompt or continuation are divided (positive) or
            // multiplied (negative) by it (CTRL, arXiv 1909.05858)
  double presence_penalty = 0.0;   // subtracted once from ids that the continuation holds
  double frequency_penalty = 0.0;  // subtracted per occurrence in the continuation
  std::map<TokenId, double>
      logit_bias;          // added before everything else; finite or -infinity (never picked)
  std::uint64_t seed = 0;  // an ordinary seed, 0 included
};

// Throws Error(usage) naming the option and its value; ids of logit_bias must be below vocab.
void validate(const SamplingOptions& options, std::int64_t vocab);

struct History {  // what the stream holds before the token to pick
  std::span<const TokenId> prompt, continuation;
};

class Sampler {
 public:
  Sampler(SamplingOptions options, std::int64_t vocab);  // validates

  // logits: [vocab]; position: index of the token to pick in the whole stream (prompt length +
  // tokens so far). Order: bias, penalties, temperature, top-k, top-p (of what top-k left), min-p;
  // then the candidate with the greatest (logit - best logit) / temperature + Gumbel(seed,
  // position, id) (arXiv 1611.01144), ties to the lowest id. At temperature 0 the greatest logit
  // after bias and penalties. Throws Error(device) "logits are not finite at position ..." on NaN
  // or infinity in the model's logits, and if the bias left no candidate.
  TokenId pick(std::span<const float> logits, const History& history, std::int64_t position) const;

  // How many of the best logits are enough for pick() and ranked(): those below need no others. 0:
  // all are needed, since options change their order or the choice is among all.
  std::int64_t candidates_needed() const;
  // pick() from that many of the best finite logits, best first, of equals the lowest id first.
  TokenId pick(std::span<const TokenLogit> best, std::int64_t position) const;

  // The `count` (at least 1) first choices, fewer if there are no more candidates: the first is
  // what pick() gives, the second what it would give if the first were impossible, and so on.
  std::vector<TokenId> ranked(std::span<const float> logits, const History& history,
                              std::int64_t position, std::size_t count) const;

  const SamplingOptions& options() const { return options_; }

 private:
  struct Choice;  // an id and its value in double
  std::vector<TokenId> drawn(std::vector<Choice> choices, double best_value, std::int64_t position,
                             std::size_t count) const;
  bool can_scan(std::size_t count) const;
  std::optional<std::vector<TokenId>> scanned(std::span<const double> values, TokenId best,
                                              std::int64_t position, std::size_t count) const;
  std::optional<Choice> top_p_cut(std::span<const double> values, double best_value) const;

  SamplingOptions options_;
  std::int64_t vocab_;
};

// Natural logarithm of the softmax of `logits` [vocab] at `id`, summed in double in id order.
// Throws Error(device) if a logit is not finite.
double log_probability(std::span<const float> logits, TokenId id);

}  // namespace tinyloop
