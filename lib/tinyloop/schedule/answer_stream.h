// SPDX-License-Identifier: Apache-2.0
// One answer while it grows: what every schedule does with logits, whatever rows it advances.
// Picks, stops, shows, counts and times; computes nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tinyloop/sampling/sampler.h"
#include "tinyloop/schedule/request.h"

namespace tinyloop {

// Of a prompt; throws Error(usage) if it is empty or longer than the context.
std::int64_t checked_length(std::span<const TokenId> prompt, const ModelConfig& config);

class AnswerStream {
 public:
  // Checks the request; it may have ended at once (max_tokens 0).
  AnswerStream(Forward& forward, const Sampler& sampler, const DecodeRequest& request);
  ~AnswerStream();

  bool ended() const { return answer_.stop.kind != StopKind::none; }
  // Of the next token to pick.
  std::int64_t position() const;
  // How many more tokens may be picked.
  std::int64_t remaining() const;
  DecodeStats& stats() { return answer_.stats; }

  // Reads the prompt and returns the logits of its last position; afterwards `cache` has the planes
  // that the request wants for decoding.
  std::span<const float> read_prompt(KvCache& cache);
  // The two halves of it, for a schedule that moves the prompt's rows itself. begin_prompt() leaves
  // in `cache` what can be kept of it and counts the rest as computed; true: it holds the prompt
  // and request.last is all that the head needs. end_prompt(): the logits are there.
  bool begin_prompt(KvCache& cache);
  void end_prompt();
  // Picks the next token of the answer. `drafts`: what was guessed for it, best guess first.
  TokenId take(std::span<const float> logits, std::span<const TokenId> drafts = {});
  // The same from the latest leave_on_device(), of one row: where the sampler needs only the best
  // logits and the device can choose them, no others travel.
  TokenId take_on_device();
  // Up to `count` guesses at the token after the answer's tokens and `drafts`, best first; none if
  // these logits allow none.
  std::vector<TokenId> guess(std::span<const float> logits, std::span<const TokenId> drafts,
                             std::size_t count = 1);
  // The last call.
  Answer finish();

 private:
  using Clock = std::chrono::steady_clock;
  double milliseconds() const;
  TokenId accept(TokenId id, std::span<const TokenId> drafts);
  bool selects() const { return request_.exit.kind != ExitRule::Kind::none; }
  std::span<const float> select_last(KvCache& cache);

  Forward& forward_;
  const Sampler& sampler_;
  const DecodeRequest& request_;
  std::int64_t limit_ = 0;  // greatest number of tokens
  StopState stop_;
  Answer answer_;
  std::int64_t shown_ = 0;
  std::vector<float> selected_;  // logits of the prompt's last position where a rule selects
  struct Hash;
  std::unique_ptr<Hash> hash_;
  Clock::time_point start_;
};

}  // namespace tinyloop
