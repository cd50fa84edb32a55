// SPDX-License-Identifier: Apache-2.0
// Begin with what is there, compute the rest, check what came from a file.
#include "tinyloop/prompt/prompt.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/prompt/deepen.h"
#include "tinyloop/prompt/elapsed.h"
#include "tinyloop/prompt/prefill.h"

namespace tinyloop {
namespace {

class Reader {
 public:
  Reader(Forward& forward, Prompt& prompt, const ReadOptions& options)
      : forward_(forward),
        prompt_(prompt),
        options_(options),
        hidden_(static_cast<std::size_t>(forward.model().config().hidden)),
        end_(std::ssize(prompt.ids) - (options.run_last ? 0 : 1)) {}

  void begin_with_pool(const PrefixPool& pool, bool crop);
  void begin_with(const PoolMatch& match);
  void begin_with(Prompt& other);
  // Nothing that was found is used.
  void begin_anew();
  void read_rest();

 private:
  void take(const std::shared_ptr<const Snapshot>& snapshot, std::int64_t length);
  void take_and_deepen(const Snapshot& snapshot, std::int64_t length);
  void keep_states(std::span<const float> states, std::span<const float> injected,
                   std::int64_t length);
  void note(const std::string& warning) {
    if (prompt_.pool.warning.empty()) prompt_.pool.warning = warning;
  }

  Forward& forward_;
  Prompt& prompt_;
  const ReadOptions& options_;
  std::size_t hidden_;
  std::int64_t end_;                    // of the positions to read
  std::vector<float> deepened_logits_;  // of the last position, where that came with fewer loops
};

std::int64_t loops_of(const PoolMatch& match) {
  return match.snapshot ? match.length * match.snapshot->identity().loops : 0;
}

void Reader::begin_with_pool(const PrefixPool& pool, bool crop) {
  PoolMatch match = pool.lookup(prompt_.ids, crop);
  note(match.warning);
  if (match.usable && match.kind != MatchKind::whole && !options_.keep_states) {
    const PoolMatch warm = pool.lookup_to_resume(prompt_.ids, crop);
    if (loops_of(warm) > loops_of(match)) match = warm;
  }
  prompt_.pool.usable = match.usable;
  if (!match.snapshot) return;
  try {
    begin_with(match);
    prompt_.pool.kind = match.kind;
    prompt_.pool.key = match.key;
    prompt_.pool.reused = prompt_.cache.length();
    prompt_.pool.loops = match.snapshot->identity().loops;
  } catch (const Error& error) {
    note(error.what());
    begin_anew();
  }
}

void Reader::begin_with(const PoolMatch& match) {
  if (match.snapshot->identity().loops < forward_.plan().loops) {
    take_and_deepen(*match.snapshot, std::min(match.length, end_));
  } else {
    take(match.snapshot, std::min(match.length, std::ssize(prompt_.ids) - 1));
  }
  prompt_.computing_ms = computing_ms(match);
}

void Reader::take(const std::shared_ptr<const Snapshot>& snapshot, std::int64_t length) {
  if (length == 0) return;
  prompt_.cache = cache_from(forward_, snapshot, length);
  if (!options_.keep_states || !snapshot->resumable()) return;
  snapshot->verify_states();
  keep_states(snapshot->states(), snapshot->injected(), length);
}

void Reader::take_and_deepen(const Snapshot& snapshot, std::int64_t length) {
  if (length == 0) return;
  const SnapshotShape& shape = snapshot.shape();
  const std::int32_t loops = snapshot.identity().loops;
  const LoopPlan& plan = forward_.plan();
  const ModelConfig& config = forward_.model().config();
  const std::size_t values = static_cast<std::size_t>(snapshot.length()) * hidden_;
  if (shape.planes != plan.prelude_layers + loops * plan.core_layers + plan.coda_layers ||
      snapshot.states().size() != values ||
      snapshot.injected().size() != (config.injection == Injection::none ? 0 : values)) {
    throw Error(ErrorKind::data, "{}: its shape does not fit the model", snapshot.path());
  }
  snapshot.verify_states();
  prompt_.cache.reserve(snapshot.length());
  const auto bytes = static_cast<std::size_t>(shape.plane_bytes());
  // The coda's planes are written anew after the last loop.
  for (std::int32_t plane = 0; plane < shape.planes - plan.coda_layers; ++plane) {
    snapshot.verify(plane);
    prompt_.cache.write_plane(
        plane, shape, snapshot.kv().subspan(static_cast<std::size_t>(plane) * bytes, bytes));
  }
  const std::size_t used = static_cast<std::size_t>(length) * hidden_;
  const std::span<const float> logits = run_missing_loops(
      forward_, prompt_.cache, std::span(prompt_.ids).first(static_cast<std::size_t>(length)),
      loops, snapshot.states().first(used),
      snapshot.injected().first(snapshot.injected().empty() ? 0 : used));
  prompt_.work.loops_run = length * (plan.loops - loops);
  if (length == std::ssize(prompt_.ids)) deepened_logits_.assign(logits.begin(), logits.end());
}

void Reader::begin_with(Prompt& other) {
  if (other.identity != prompt_.identity) {
    throw Error(ErrorKind::usage,
                "the prefix was computed with another model, device, loop count, window or initial "
                "state");
  }
  const std::int64_t common =
      std::min(std::ranges::mismatch(other.ids, prompt_.ids).in1 - other.ids.begin(),
               std::min(other.cache.length(), std::ssize(prompt_.ids) - 1));
  if (common == 0 || (options_.keep_states && other.states.empty())) return;
  KvCache cache = other.cache.fork();
  try {
    cache.crop(common);
  } catch (const Error&) {  // the window has moved on
    return;
  }
  prompt_.cache = std::move(cache);
  prompt_.computing_ms =
      other.computing_ms * static_cast<double>(common) / static_cast<double>(other.ids.size());
  if (options_.keep_states) keep_states(other.states, other.injected, common);
}

void Reader::keep_states(std::span<const float> states, std::span<const float> injected,
                         std::int64_t length) {
  const std::size_t values = static_cast<std::size_t>(length) * hidden_;
  const auto first = [&](std::span<const float> all) {
    return all.first(all.empty() ? 0 : values);
  };
  prompt_.states.assign(first(states).begin(), first(states).end());
  prompt_.injected.assign(first(injected).begin(), first(injected).end());
}

void Reader::begin_anew() {
  prompt_.cache = KvCache(forward_.ops(), forward_.plan());
  prompt_.states.clear();
  prompt_.injected.clear();
  prompt_.work = {};
  prompt_.computing_ms = 0.0;
  const std::string warning = std::move(prompt_.pool.warning);
  const bool usable = prompt_.pool.usable;
  prompt_.pool = {};
  prompt_.pool.warning = warning;
  prompt_.pool.usable = usable;
  deepened_logits_.clear();
}

void Reader::read_rest() {
  // Without its states, what was found does not help.
  if (options_.keep_states &&
      prompt_.states.size() != static_cast<std::size_t>(prompt_.cache.length()) * hidden_) {
    begin_anew();
  }
  prompt_.work.reused = prompt_.cache.length();
  prompt_.work.prefilled = end_ - prompt_.work.reused;
  prompt_.work.loops_run += prompt_.work.prefilled * forward_.plan().loops;
  std::span<const float> logits = deepened_logits_;
  if (prompt_.work.prefilled > 0) {
    PrefillHooks hooks;
    if (options_.keep_states) hooks = keeping_states(forward_, prompt_.states, prompt_.injected);
    logits = prefill(forward_, prompt_.cache,
                     std::span(prompt_.ids).first(static_cast<std::size_t>(end_)), options_.chunk,
                     hooks);
  }
  if (options_.run_last) prompt_.logits.assign(logits.begin(), logits.end());
  for (std::int32_t plane = 0; plane < prompt_.cache.planes(); ++plane) {
    prompt_.cache.verify(plane);
  }
}

// What a resumed run must have in common with the one that was saved, by name.
void check_same_run(Forward& forward, const Snapshot& snapshot, std::span<const TokenId> ids) {
  const CacheIdentity& saved = snapshot.identity();
  const CacheIdentity own = cache_identity(forward);
  const auto same = [](std::string_view what, const auto& theirs, const auto& ours) {
    if (theirs == ours) return;
    throw Error(ErrorKind::usage, "the saved state has the {} {}, but this run has {}", what,
                theirs, ours);
  };
  same("model", saved.model, own.model);
  same("arithmetic", saved.arithmetic, own.arithmetic);
  same("storage mode", saved.kv, own.kv);
  same("cache window", saved.window, own.window);
  same("initial state", saved.initial_state, own.initial_state);
  if (own.loops < saved.loops) {
    throw Error(ErrorKind::usage, "the saved state has run {} loops, more than the {} of this run",
                saved.loops, own.loops);
  }
  if (own.loops > saved.loops) {
    check_resumable(forward);
    if (!snapshot.resumable()) {
      throw Error(ErrorKind::usage,
                  "{}: it was stored without --resumable, so only runs with {} loops can use it",
                  snapshot.path(), saved.loops);
    }
  }
  const ModelConfig& config = forward.model().config();
  if (!std::ranges::equal(snapshot.ids(), ids) ||
      std::ranges::any_of(ids, [&](TokenId id) { return id < 0 || id >= config.vocab; })) {
    throw Error(ErrorKind::data, "{}: its ids are not the prompt's", snapshot.path());
  }
}

}  // namespace

Prompt Prompt::fork() {
  Prompt copy{.identity = identity, .ids = ids, .cache = cache.fork(), .logits = logits};
  copy.computing_ms = computing_ms;
  copy.pool = pool;
  return copy;
}

std::int64_t checked_length(std::span<const TokenId> prompt, const ModelConfig& config) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length == 0) throw Error(ErrorKind::usage, "empty prompt");
  if (length > config.context) {
    throw Error(ErrorKind::usage, "prompt too long: {} ids exceed the model's context of {}",
                length, config.context);
  }
  return length;
}

Prompt unread_prompt(Forward& forward, std::span<const TokenId> ids) {
  checked_length(ids, forward.model().config());
  return {.identity = cache_identity(forward),
          .ids = {ids.begin(), ids.end()},
          .cache = KvCache(forward.ops(), forward.plan()),
          .logits = {}};
}

Prompt read_prompt(Forward& forward, std::span<const TokenId> ids, const PromptSource& source,
                   const ReadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Prompt prompt = unread_prompt(forward, ids);
  if (options.keep_states) check_resumable(forward);
  Reader reader(forward, prompt, options);
  if (source.snapshot) {
    check_same_run(forward, *source.snapshot, ids);
    PoolMatch match;
    match.snapshot = source.snapshot;
    match.length = source.snapshot->length();
    reader.begin_with(match);
  } else if (source.shared != nullptr) {
    reader.begin_with(*source.shared);
  } else if (source.pool != nullptr) {
    check_identity(forward, *source.pool);
    reader.begin_with_pool(*source.pool, source.crop);
  }
  try {
    reader.read_rest();
  } catch (const DamagedSnapshot& damage) {
    if (source.pool == nullptr) throw;
    if (prompt.pool.warning.empty()) prompt.pool.warning = damage.what();
    reader.begin_anew();
    reader.read_rest();
  }
  prompt.work.ms = milliseconds_since(start);
  prompt.computing_ms += prompt.work.ms;
  return prompt;
}

void check_identity(Forward& forward, const PrefixPool& pool) {
  if (pool.identity() != cache_identity(forward)) {
    throw Error(
        ErrorKind::usage,
        "the pool was opened for another model, device, loop count, window, storage mode or "
        "initial state");
  }
}

KvCache cache_from(Forward& forward, std::shared_ptr<const Snapshot> snapshot,
                   std::int64_t length) {
  KvCache cache(forward.ops(), forward.plan(), std::move(snapshot), length);
  forward.restore(cache);
  return cache;
}

double computing_ms(const PoolMatch& match) {
  if (!match.snapshot) return 0.0;
  return match.snapshot->prefill_ms() * static_cast<double>(match.length) /
         static_cast<double>(match.snapshot->length());
}

}  // namespace tinyloop
