// SPDX-License-Identifier: Apache-2.0
// Bookkeeping of one answer.
#include "tinyloop/schedule/answer_stream.h"

#include <algorithm>
#include <cassert>

#include "tinyloop/error.h"
#include "tinyloop/files/hash_state.h"
#include "tinyloop/prompt/elapsed.h"
#include "tinyloop/schedule/live_rows.h"

namespace tinyloop {

namespace {

StopRules with_room(const DecodeRequest& request, std::span<const TokenId> prompt,
                    const ModelConfig& config) {
  StopRules rules = request.stop;
  // The last token needs no position: it is picked, not read.
  rules.room = config.context - checked_length(prompt, config) + 1;
  return rules;
}

}  // namespace

struct AnswerStream::Hash {
  HashState state = make_hash_state();
  Hash() { XXH3_64bits_reset(state.get()); }
};

AnswerStream::AnswerStream(Forward& forward, const Sampler& sampler, const DecodeRequest& request,
                           std::span<const TokenId> prompt)
    : forward_(forward),
      sampler_(sampler),
      request_(request),
      prompt_(prompt),
      stop_(with_room(request, prompt, forward.model().config())),
      hash_(request.hash_logits ? std::make_unique<Hash>() : nullptr),
      start_(Clock::now()) {
  const StopRules rules = with_room(request, prompt, forward.model().config());
  limit_ = std::min(rules.max_tokens, rules.room);
  answer_.stop = stop_.at_start();
  answer_.stats.exits.resize(static_cast<std::size_t>(forward.plan().loops));
}

AnswerStream::~AnswerStream() = default;

double AnswerStream::milliseconds() const { return before_ms_ + milliseconds_since(start_); }

std::int64_t AnswerStream::position() const {
  return static_cast<std::int64_t>(prompt_.size() + answer_.tokens.size());
}

std::int64_t AnswerStream::remaining() const {
  return limit_ - static_cast<std::int64_t>(answer_.tokens.size());
}

void AnswerStream::count(const PromptWork& work) {
  DecodeStats& stats = answer_.stats;
  stats.reused = work.reused;
  stats.prefilled = work.prefilled;
  stats.prompt_loops = stats.loops_run = work.loops_run;
  before_ms_ = work.ms;
}

void AnswerStream::end_prompt() {
  DecodeStats& stats = answer_.stats;
  if (!selects()) ++stats.exits.back();
  stats.prefill_ms = milliseconds();
  stats.loops_run = stats.prompt_loops;
}

std::span<const float> AnswerStream::begin(Prompt& prompt) {
  cache_ = &prompt.cache;
  const std::span<const float> logits = selects() ? select_last(prompt.cache) : prompt.logits;
  assert(!logits.empty());
  end_prompt();
  if (request_.shared_planes > 0 && request_.shared_planes < forward_.plan().loops) {
    prompt.cache = prompt.cache.share_loops(request_.shared_planes);
  }
  return logits;
}

// The prompt's last position once more, on its own: the state that the rule selects goes to the
// head, but what the cache keeps is what all loops leave, as for every other position of a prompt.
std::span<const float> AnswerStream::select_last(KvCache& cache) {
  const auto last = static_cast<std::int64_t>(prompt_.size()) - 1;
  if (cache.length() > last) cache.crop(last);
  cache.reserve(last + 1);
  ExitRule rule = request_.exit;
  rule.select_only = true;
  DecodeStats counted;  // passes are counted after the prompt only
  counted.exits.resize(answer_.stats.exits.size());
  LiveRows rows(forward_, rule, counted, 1);
  LiveRow row = rows.at({&cache, last, prompt_.back(), 0, 0});
  rows.enter({&row, 1});
  while (!row.done) rows.pass({&row, 1});
  const std::span<const float> logits = rows.leave({&row, 1});
  selected_.assign(logits.begin(), logits.end());
  const std::int32_t wanted = 0;
  forward_.leave({&row.row, 1}, {&wanted, 1});
  cache.commit(last + 1);
  rows.confirm(row);
  answer_.stats.exits = counted.exits;
  ++answer_.stats.prefilled;
  answer_.stats.prompt_loops += counted.loops_run;
  return selected_;
}

TokenId AnswerStream::pick(std::span<const float> logits, std::span<const TokenId> drafts) {
  if (hash_) XXH3_64bits_update(hash_->state.get(), logits.data(), logits.size_bytes());
  if (request_.picked_from) request_.picked_from(logits);
  TokenId id = 0;
  try {
    id = sampler_.pick(logits, {prompt_, answer_.tokens}, position());
  } catch (const Error& error) {
    throw Error(error.kind(), "step {}: {}", answer_.tokens.size() + 1, error.what());
  }
  return accept(id, drafts);
}

TokenId AnswerStream::pick_on_device() {
  const std::int64_t needed = sampler_.candidates_needed();
  if (needed > 0 && !hash_ && !request_.picked_from) {
    const std::vector<TokenLogit> best = forward_.best(0, needed);
    if (!best.empty()) return accept(sampler_.pick(best, position()), {});
  }
  return pick(forward_.logits());
}

TokenId AnswerStream::accept(TokenId id, std::span<const TokenId> drafts) {
  DecodeStats& stats = answer_.stats;
  std::vector<TokenId>& tokens = answer_.tokens;
  if (tokens.empty()) stats.first_token_ms = milliseconds();
  const auto found = std::find(drafts.begin(), drafts.end(), id);
  stats.verified += found - drafts.begin() + (found != drafts.end() ? 1 : 0);
  ++(found != drafts.end() ? stats.accepted : stats.undrafted);
  tokens.push_back(id);
  answer_.stop = stop_.push(id);
  if (request_.released && stop_.released() > shown_) {
    request_.released(std::span(tokens).subspan(
        static_cast<std::size_t>(shown_), static_cast<std::size_t>(stop_.released() - shown_)));
  }
  shown_ = stop_.released();
  return id;
}

std::vector<TokenId> AnswerStream::guess(std::span<const float> logits,
                                         std::span<const TokenId> drafts, std::size_t count) {
  std::vector<TokenId> continuation = answer_.tokens;
  continuation.insert(continuation.end(), drafts.begin(), drafts.end());
  std::vector<TokenId> guesses;
  try {
    guesses = sampler_.ranked(logits, {prompt_, continuation},
                              position() + static_cast<std::int64_t>(drafts.size()), count);
  } catch (const Error&) {
    // After all loops these logits may be in order, and if not, pick() will say so.
  }
  answer_.stats.drafted += static_cast<std::int64_t>(guesses.size());
  return guesses;
}

Answer AnswerStream::finish() {
  DecodeStats& stats = answer_.stats;
  stats.generated = static_cast<std::int64_t>(answer_.tokens.size());
  if (stats.generated > 0) stats.decode_ms = milliseconds() - stats.first_token_ms;
  if (cache_ != nullptr) stats.cache_bytes = cache_->bytes();
  if (hash_) stats.logits_hash = XXH3_64bits_digest(hash_->state.get());
  answer_.tokens.resize(static_cast<std::size_t>(stop_.released()));
  return std::move(answer_);
}

}  // namespace tinyloop
