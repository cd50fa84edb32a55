// SPDX-License-Identifier: Apache-2.0
// Look up, decode, count, publish; and the way back to a plain run when a plane turns out damaged.
#include "tinyloop/schedule/pooled_prompt.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/schedule/answer_stream.h"
#include "tinyloop/schedule/elapsed.h"
#include "tinyloop/schedule/prefill.h"
#include "tinyloop/schedule/prefix_cache.h"
#include "tinyloop/schedule/resume.h"

namespace tinyloop {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

double computing_ms(const PoolMatch& match) {
  if (!match.snapshot) return 0.0;
  return match.snapshot->prefill_ms() * static_cast<double>(match.length) /
         static_cast<double>(match.snapshot->length());
}

void check_identity(Forward& forward, const PrefixPool& pool) {
  if (pool.identity() != cache_identity(forward)) {
    throw Error(
        ErrorKind::usage,
        "the pool was opened for another model, device, loop count, window, storage mode or "
        "initial state");
  }
}

SnapshotContent content_of(KvCache& cache, std::span<const TokenId> ids,
                           std::span<const float> last, double prefill_ms) {
  SnapshotContent content;
  content.shape = cache.snapshot_shape();
  content.ids = ids;
  content.last = last;
  content.prefill_ms = prefill_ms;
  content.read_plane = [&cache](std::int32_t plane, std::span<std::byte> to) {
    cache.read_plane(plane, to);
  };
  return content;
}

std::int64_t entry_bytes(Forward& forward, std::int64_t length, bool resumable) {
  const ModelConfig& config = forward.model().config();
  const KvCache empty(forward.ops(), forward.plan());
  return snapshot_bytes(cache_identity(forward), empty.snapshot_shape(length), length,
                        config.hidden, resumable, resumable && config.injection != Injection::none);
}

PooledPrompt::PooledPrompt(Forward& forward, std::span<const TokenId> ids, std::int64_t chunk,
                           PoolUse use)
    : forward_(forward),
      ids_(ids),
      chunk_(chunk),
      use_(use),
      cache_(forward.ops(), forward.plan()) {
  if (use_.pool == nullptr || ids.empty()) return;
  check_identity(forward, *use_.pool);
  const Clock::time_point start = Clock::now();
  look_up();
  lookup_ms_ = milliseconds_since(start);
}

void PooledPrompt::look_up() {
  match_ = use_.pool->lookup(ids_, use_.crop);
  note(match_.warning);
  if (match_.usable && match_.kind != MatchKind::whole) {
    const PoolMatch warm = use_.pool->lookup_to_resume(ids_, use_.crop);
    const auto loops_of = [](const PoolMatch& match) {
      return match.snapshot ? match.length * match.snapshot->identity().loops : 0;
    };
    if (loops_of(warm) > loops_of(match_)) match_ = warm;
  }
  if (!match_.snapshot) return;
  try {
    take(match_);
  } catch (const Error& error) {
    give_up(error.what());
  }
}

void PooledPrompt::take(const PoolMatch& match) {
  const Snapshot& snapshot = *match.snapshot;
  const auto hidden = static_cast<std::size_t>(forward_.model().config().hidden);
  std::vector<float> last = last_of(forward_, snapshot);
  if (match.kind != MatchKind::warm) {
    cache_ = cache_from(forward_, match.snapshot, match.length);
    if (match.kind == MatchKind::whole) last_ = std::move(last);
    return;
  }
  const SnapshotShape& shape = snapshot.shape();
  const std::int32_t loops = snapshot.identity().loops;
  const LoopPlan& plan = forward_.plan();
  if (shape.planes != plan.prelude_layers + loops * plan.core_layers + plan.coda_layers) {
    throw Error(ErrorKind::data, "{}: its shape does not fit the model", snapshot.path());
  }
  snapshot.verify_states();
  cache_.reserve(snapshot.length());
  const auto bytes = static_cast<std::size_t>(shape.plane_bytes());
  // The coda's planes are written anew after the last loop.
  for (std::int32_t plane = 0; plane < shape.planes - plan.coda_layers; ++plane) {
    snapshot.verify(plane);
    cache_.write_plane(plane, shape,
                       snapshot.kv().subspan(static_cast<std::size_t>(plane) * bytes, bytes));
  }
  const auto length = static_cast<std::size_t>(match.length);
  const std::size_t values = length * hidden;
  run_missing_loops(
      forward_, cache_, ids_.first(length), loops, snapshot.states().first(values),
      snapshot.injected().empty() ? snapshot.injected() : snapshot.injected().first(values));
  missing_loops_ = match.length * (plan.loops - loops);
  if (length == ids_.size()) {
    const std::span<const float> inputs = forward_.head_inputs().last(hidden);
    last_.assign(inputs.begin(), inputs.end());
  }
}

// Nothing of the pool is used any more.
void PooledPrompt::give_up(const std::string& why) {
  note(why);
  match_.kind = MatchKind::miss;
  match_.snapshot = nullptr;
  match_.length = 0;
  last_.clear();
  missing_loops_ = 0;
  prompt_cache_.reset();
  cache_ = KvCache(forward_.ops(), forward_.plan());
}

void PooledPrompt::share() {
  if (ids_.empty()) return;
  checked_length(ids_, forward_.model().config());
  shares_ = true;
  const auto read = [&] {
    if (!last_.empty()) return;
    const auto length = static_cast<std::int64_t>(ids_.size());
    if (cache_.length() == length) cache_.crop(length - 1);
    const Clock::time_point start = Clock::now();
    shared_ = length - cache_.length();
    prefill(forward_, cache_, ids_, chunk_);
    const std::span<const float> inputs = forward_.head_inputs();
    const auto hidden = static_cast<std::size_t>(forward_.model().config().hidden);
    last_.assign(inputs.end() - static_cast<std::ptrdiff_t>(hidden), inputs.end());
    shared_ms_ = milliseconds_since(start);
    prefill_ms_ += shared_ms_;
  };
  try {
    read();
  } catch (const DamagedSnapshot& damage) {
    give_up(damage.what());
    read();
  }
}

Answer PooledPrompt::generate(const Sampler& sampler, DecodeRequest request, bool final_answer,
                              const Speculation& speculation) {
  request.prompt = ids_;
  request.prefill_chunk = chunk_;
  // After damage the run begins anew; the stream is the same, so what is out already is skipped.
  std::size_t shown = 0, seen = 0;
  if (request.released) {
    request.released = [&, show = std::move(request.released)](std::span<const TokenId> ids) {
      const std::size_t known = std::min(shown - std::min(shown, seen), ids.size());
      seen += ids.size();
      if (known < ids.size()) show(ids.subspan(known));
      shown = std::max(shown, seen);
    };
  }
  // An answer of no tokens reads no prompt, but one that is to be added must be read.
  if (use_.add && request.stop.max_tokens == 0 && match_.kind != MatchKind::whole && !used_) {
    share();
    prompt_cache_.emplace(cache_.fork());
    note_use();
  }
  const bool had_cache = cache_.length() > 0;
  try {
    return answer(sampler, request, speculation, final_answer);
  } catch (const DamagedSnapshot& damage) {
    if (!had_cache) throw;
    give_up(damage.what());
  }
  seen = 0;
  return answer(sampler, request, speculation, final_answer);
}

Answer PooledPrompt::answer(const Sampler& sampler, const DecodeRequest& request,
                            const Speculation& speculation, bool final_answer) {
  std::optional<KvCache> fork;
  if (!final_answer) fork.emplace(cache_.fork());
  KvCache& cache = fork ? *fork : cache_;
  DecodeRequest own = request;
  own.last = last_;
  const Clock::time_point start = Clock::now();
  if (use_.add && match_.kind != MatchKind::whole && !prompt_cache_) {
    own.prompt_read = [&](std::span<const float> last) {
      prefill_ms_ += milliseconds_since(start);
      prompt_cache_.emplace(cache.fork());
      last_.assign(last.begin(), last.end());
    };
  }
  Answer result = tinyloop::generate(forward_, cache, sampler, own, speculation);
  // An answer of no tokens needs no prompt.
  if (result.stats.generated > 0) note_use();
  cache_bytes_ = cache.bytes();
  if (shares_) {
    DecodeStats& stats = result.stats;
    const std::int64_t loops = shared_ * forward_.plan().loops;
    stats.reused = std::min(stats.reused, std::exchange(first_, false) ? match_.length : 0);
    stats.prefilled += std::exchange(shared_, 0);
    stats.prompt_loops += loops;
    stats.loops_run += loops;
    stats.prefill_ms += shared_ms_;
    stats.first_token_ms += std::exchange(shared_ms_, 0.0);
  }
  result.stats.prefill_ms += lookup_ms_;
  result.stats.first_token_ms += lookup_ms_;
  result.stats.prompt_loops += missing_loops_;
  result.stats.loops_run += missing_loops_;
  lookup_ms_ = 0.0;  // the first answer's, as the loops
  missing_loops_ = 0;
  return result;
}

void PooledPrompt::note_use() {
  used_ = true;
  report_.kind = match_.kind;
  report_.reused = match_.length;
  if (match_.snapshot) report_.loops = match_.snapshot->identity().loops;
}

PoolReport PooledPrompt::finish() {
  if (use_.pool == nullptr || !used_) return report_;
  if (match_.usable) {
    try {
      if (match_.kind == MatchKind::miss) {
        use_.pool->count_miss();
      } else {
        use_.pool->count_hit(match_.key, match_.length);
      }
    } catch (const Error& error) {
      note(error.what());
    }
  }
  if (prompt_cache_) {
    try {
      publish();
    } catch (const Error& error) {
      note(error.what());
    }
  }
  return report_;
}

void PooledPrompt::publish() {
  use_.pool->publish(content_of(*prompt_cache_, ids_, last_, prefill_ms_ + computing_ms(match_)));
}

PooledAnswer generate_with_pool(Forward& forward, const Sampler& sampler,
                                const DecodeRequest& request, const PoolUse& use) {
  PooledPrompt prompt(forward, request.prompt, request.prefill_chunk, use);
  PooledAnswer result;
  result.answer = prompt.generate(sampler, request);
  result.pool = prompt.finish();
  return result;
}

std::vector<Registration> register_prefixes(Forward& forward, PrefixPool& pool,
                                            std::span<const std::vector<TokenId>> prefixes,
                                            std::int64_t chunk, bool resumable,
                                            const std::function<void(std::size_t done)>& progress) {
  check_identity(forward, pool);
  if (resumable) check_resumable(forward);
  // In order of ids a prefix comes before what extends it, and its neighbour shares the most.
  std::vector<std::size_t> order(prefixes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return prefixes[a] < prefixes[b]; });
  std::vector<Registration> results(prefixes.size());
  std::optional<PrefixCache> working;
  double working_ms = 0.0;  // what it took to compute all of `working`
  std::size_t done = 0;
  for (const std::size_t index : order) {
    const std::span<const TokenId> ids = prefixes[index];
    Registration& result = results[index];
    result.key = key_of(pool.identity(), ids);
    const auto there = pool.verified(ids);
    if (there && (there->resumable() || !resumable)) {
      pool.touch(result.key);
    } else {
      const auto compute = [&](bool from_pool) {
        const Clock::time_point start = Clock::now();
        std::int64_t shared =
            working ? std::ranges::mismatch(working->ids(), ids).in1 - working->ids().begin() : 0;
        const PoolMatch match = from_pool ? pool.lookup(ids) : PoolMatch{};
        double base_ms = 0.0;
        if (match.length > shared && (match.snapshot->resumable() || !resumable)) {
          working = PrefixCache::from(forward, match.snapshot, resumable);
          base_ms = computing_ms(match);
        } else if (working && shared > 0) {
          base_ms =
              working_ms * static_cast<double>(shared) / static_cast<double>(working->ids().size());
        }
        if (!working) {
          working = PrefixCache::build(forward, ids, chunk, resumable);
        } else {
          working->change_to(forward, ids, chunk);
        }
        working_ms = base_ms + milliseconds_since(start);
        SnapshotContent content = content_of(working->cache(), ids, working->last(), working_ms);
        content.states = working->states();
        content.injected = working->injected();
        pool.publish(std::move(content), there != nullptr);
      };
      try {
        compute(true);
      } catch (const DamagedSnapshot&) {
        working.reset();
        compute(false);
      }
      result.computed = true;
    }
    if (progress) progress(++done);
  }
  return results;
}

}  // namespace tinyloop
