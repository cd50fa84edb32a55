// SPDX-License-Identifier: Apache-2.0
// Plain decoding: prefill, then pick, enter, pass, leave for one row at a time.
#include "schedule/decode.h"

#include <xxhash.h>

#include <chrono>
#include <memory>

#include "error.h"
#include "schedule/prefill.h"

namespace tinyloop {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class LogitsHash {
 public:
  explicit LogitsHash(bool wanted) : state_(wanted ? XXH3_createState() : nullptr, XXH3_freeState) {
    if (state_) XXH3_64bits_reset(state_.get());
  }
  void add(std::span<const float> logits) {
    if (state_) XXH3_64bits_update(state_.get(), logits.data(), logits.size_bytes());
  }
  std::uint64_t value() const { return state_ ? XXH3_64bits_digest(state_.get()) : 0; }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

}  // namespace

Answer decode(Forward& forward, KvCache& cache, const Sampler& sampler,
              const DecodeRequest& request) {
  const ModelConfig& config = forward.model().config();
  const auto prompt_length = static_cast<std::int64_t>(request.prompt.size());
  if (prompt_length == 0) throw Error(ErrorKind::usage, "empty prompt");
  if (prompt_length > config.context) {
    throw Error(ErrorKind::usage, "prompt too long: {} ids, the model's context holds {}",
                prompt_length, config.context);
  }
  StopRules rules = request.stop;
  // The last token needs no position: it is picked, not read.
  rules.room = config.context - prompt_length + 1;
  StopState stop(rules);
  Answer answer;
  answer.stop = stop.at_start();
  if (answer.stop.kind != StopKind::none) return answer;

  const Clock::time_point start = Clock::now();
  LogitsHash hash(request.hash_logits);
  const bool whole = cache.length() == prompt_length && !request.last.empty();
  if (cache.length() >= prompt_length && !whole) cache.crop(prompt_length - 1);
  answer.stats.reused = cache.length();
  answer.stats.prefilled = prompt_length - cache.length();
  answer.stats.loops_run = answer.stats.prefilled * forward.plan().loops;
  std::span<const float> logits =
      whole ? forward.head(request.last)
            : prefill(forward, cache, request.prompt, request.prefill_chunk);
  answer.stats.prefill_ms = milliseconds_since(start);
  if (request.prompt_read) {
    const std::span<const float> inputs = forward.head_inputs();
    request.prompt_read(inputs.last(static_cast<std::size_t>(config.hidden)));
  }

  std::int64_t shown = 0;
  for (;;) {
    hash.add(logits);
    const std::int64_t position = prompt_length + static_cast<std::int64_t>(answer.tokens.size());
    TokenId id = 0;
    try {
      id = sampler.pick(logits, {request.prompt, answer.tokens}, position);
    } catch (const Error& error) {
      throw Error(error.kind(), "step {}: {}", answer.tokens.size() + 1, error.what());
    }
    if (answer.tokens.empty()) answer.stats.first_token_ms = milliseconds_since(start);
    answer.tokens.push_back(id);
    answer.stop = stop.push(id);
    if (request.released && stop.released() > shown) {
      request.released(std::span(answer.tokens)
                           .subspan(static_cast<std::size_t>(shown),
                                    static_cast<std::size_t>(stop.released() - shown)));
    }
    shown = stop.released();
    if (answer.stop.kind != StopKind::none) break;

    cache.reserve(position + 1);
    Row row{&cache, position, id, 0, 0};
    forward.enter({&row, 1});
    while (row.loop < forward.plan().loops) forward.pass({&row, 1});
    const std::int32_t first = 0;
    logits = forward.leave({&row, 1}, {&first, 1});
    cache.commit(position + 1);
    answer.stats.loops_run += row.loop;
  }
  answer.stats.generated = static_cast<std::int64_t>(answer.tokens.size());
  answer.stats.decode_ms = milliseconds_since(start) - answer.stats.first_token_ms;
  answer.stats.logits_hash = hash.value();
  answer.tokens.resize(static_cast<std::size_t>(stop.released()));
  return answer;
}

}  // namespace tinyloop
