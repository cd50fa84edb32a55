// SPDX-License-Identifier: Apache-2.0
// One answer while it grows: what every schedule does with logits, whatever rows it advances.
// Picks, stops, shows, counts and times; computes nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tinyloop/prompt/prompt.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/schedule/request.h"

namespace tinyloop {

class AnswerStream {
 public:
  // It may have ended at once (max_tokens 0). All arguments must outlive it. Throws as
  // checked_length().
  AnswerStream(Forward& forward, const Sampler& sampler, const DecodeRequest& request,
               std::span<const TokenId> prompt);
  // Of a prompt that was read: counts that work.
  AnswerStream(Forward& forward, const Sampler& sampler, const DecodeRequest& request,
               const Prompt& prompt)
      : AnswerStream(forward, sampler, request, std::span(prompt.ids)) {
    count(prompt.work);
  }
  ~AnswerStream();

  bool ended() const { return answer_.stop.kind != StopKind::none; }
  // Of the next token to pick.
  std::int64_t position() const;
  // How many more tokens may be picked.
  std::int64_t remaining() const;
  DecodeStats& stats() { return answer_.stats; }

  // Goes on from the prompt: runs its last position under the exit rule, and leaves in the cache
  // the planes that the request wants for decoding. Returns the logits that the first token is
  // picked from.
  std::span<const float> begin(Prompt& prompt);
  // In place of it, for a schedule that moves the prompt's rows itself: what they take, and that
  // they are done.
  void count(const PromptWork& work);
  void end_prompt();
  // Picks the next token of the answer. `drafts`: what was guessed for it, best guess first.
  TokenId pick(std::span<const float> logits, std::span<const TokenId> drafts = {});
  // The same from the latest leave_on_device(), of one row: where the sampler needs only the best
  // logits and the device can choose them, no others travel.
  TokenId pick_on_device();
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
  std::span<const TokenId> prompt_;
  std::int64_t limit_ = 0;  // greatest number of tokens
  StopState stop_;
  Answer answer_;
  std::int64_t shown_ = 0;
  std::vector<float> selected_;  // logits of the prompt's last position where a rule selects
  struct Hash;
  std::unique_ptr<Hash> hash_;
  Clock::time_point start_;
  double before_ms_ = 0.0;          // of reading the prompt, before the start
  const KvCache* cache_ = nullptr;  // begin()'s
};

}  // namespace tinyloop
