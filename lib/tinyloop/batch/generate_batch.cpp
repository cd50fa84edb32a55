// SPDX-License-Identifier: Apache-2.0
// Which job gets the next free lane, and which shared prefix is computed before it. What happens
// to jobs in their lanes is lanes.cpp's business.
#include "tinyloop/batch/generate_batch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tinyloop/batch/caches.h"
#include "tinyloop/batch/lanes.h"
#include "tinyloop/batch/plan.h"
#include "tinyloop/error.h"
#include "tinyloop/prompt/prompt.h"

namespace tinyloop {
namespace {

// Rows of prompts in a pass.
std::int64_t checked_chunk(const Forward& forward, const BatchOptions& options) {
  const std::int64_t lanes = options.lanes;
  const std::int64_t slots = options.exit.kind == ExitRule::Kind::none ? lanes : 2 * lanes;
  const std::int64_t max_chunk = std::min(forward.max_rows() - lanes, forward.slots() - slots);
  const std::int64_t chunk = options.prefill_chunk > 0 ? options.prefill_chunk : max_chunk;
  if (chunk < 1 || chunk > max_chunk) {
    throw Error(
        ErrorKind::usage,
        "`lanes` {} and `prefill_chunk` {} do not fit a forward pass of {} rows and {} slots",
        lanes, options.prefill_chunk, forward.max_rows(), forward.slots());
  }
  return chunk;
}

void check(Forward& forward, const BatchOptions& options) {
  const auto require_positive = [](std::string_view option, std::int64_t value) {
    if (value < 1) throw Error(ErrorKind::usage, "{}: {} is not at least 1", option, value);
  };
  require_positive("`lanes`", options.lanes);
  require_positive("jobs in sight", options.in_sight);
  if (options.prefill_chunk < 0) {
    throw Error(ErrorKind::usage, "`prefill_chunk`: {} is negative", options.prefill_chunk);
  }
  if (options.pool_min_share < 0) {
    throw Error(ErrorKind::usage, "`pool_min_share`: {} is negative", options.pool_min_share);
  }
  if (options.pool_min_share > 0 && options.pool == nullptr) {
    throw Error(ErrorKind::usage, "`pool_min_share` needs `pool`");
  }
  if (options.pool_min_share > 0 && options.grouping == BatchGrouping::none) {
    throw Error(
        ErrorKind::usage,
        "`pool_min_share` and `group` none exclude each other: shared prefixes are found by "
        "grouping");
  }
  const ModelConfig& config = forward.model().config();
  options.exit.check(config);
  validate(options.sampling, config.vocab);
  if (forward.plan().shared_planes > 0) {
    throw Error(ErrorKind::usage,
                "a batch and `kv_slots` exclude each other: prompts are read with separate planes "
                "for each loop");
  }
  if (options.pool != nullptr) check_identity(forward, *options.pool);
  checked_chunk(forward, options);
}

class Batch {
 public:
  Batch(Forward& forward, const BatchOptions& options, const BatchPlan::Source& next,
        const std::function<void(BatchOutcome)>& done)
      : forward_(forward),
        options_(options),
        chunk_(checked_chunk(forward, options)),
        caches_(forward, options, chunk_, stats_.warning),
        // Lockstep keeps its lanes together as the caller put them.
        plan_(
            options.grouping,
            options.schedule == BatchSchedule::continuous ? BatchOrder::longest : BatchOrder::first,
            options.in_sight, next, [this](const BatchJob& job) { check_job(job); }),
        lanes_(forward, options, chunk_, caches_, stats_,
               {[&](const PlannedJob& job, BatchOutcome outcome) {
                  waits_ = false;
                  plan_.finished(job);
                  done(std::move(outcome));
                },
                [this](PlannedJob& job) { return try_again(job); }}) {}

  BatchStats run(const std::function<void(const BatchStats&)>& progress) {
    for (;;) {
      fill();
      if (!lanes_.idle()) {
        lanes_.turn(gathers_);
        if (progress) progress(stats_);
      } else if (!plan_.pending().empty()) {
        // Nothing runs and yet there is no room for the next job: it is taken by shared prefixes.
        give_up_sharing();
      } else {
        return stats_;
      }
    }
  }

 private:
  // Throws Error if the job cannot run whatever happens.
  void check_job(const BatchJob& job) const {
    const ModelConfig& config = forward_.model().config();
    checked_length(job.prompt, config);
    for (const TokenId id : job.prompt) {
      if (id < 0 || id >= config.vocab) {
        throw Error(ErrorKind::usage, "id {} is not below {}", id, config.vocab);
      }
    }
    forward_.check_position(std::ssize(job.prompt) - 1);
    validate(job.stop, config.vocab);
    if (options_.grouping == BatchGrouping::key && job.group.empty()) {
      throw Error(ErrorKind::usage, "it has no group, which grouping by key requires");
    }
    caches_.check(job);
  }

  bool try_again(PlannedJob& job);
  void give_up_sharing() {
    for (auto& [place, job] : plan_.pending()) job.prefix = nullptr;
  }

  void fill();
  BatchPlan::Pending::iterator choose();
  static SharedPrefix* usable(const PlannedJob& job);
  void prepare(const PlannedJob& job);
  void begin(const std::shared_ptr<SharedPrefix>& prefix, SharedCache* base, const PlannedJob& job);

  Forward& forward_;
  const BatchOptions& options_;
  std::int64_t chunk_;
  BatchStats stats_;
  BatchCaches caches_;  // outlives whatever counts as taken there
  BatchPlan plan_;
  BatchLanes lanes_;
  bool gathers_ = true;  // lockstep: lanes still join
  bool waits_ = false;   // for a lane to end: memory was refused
};

// A job whose cache got no memory beside others waits until one of them has ended.
bool Batch::try_again(PlannedJob& job) {
  const bool alone = stats_.busy == 1 && !lanes_.reads_prefix();
  if (alone) {
    const auto& pending = plan_.pending();
    const bool shares = job.prefix || std::any_of(pending.begin(), pending.end(),
                                                  [](const auto& at) { return at.second.prefix; });
    if (!shares) return false;
    give_up_sharing();
    job.prefix = nullptr;
  }
  waits_ = true;
  plan_.put_back(std::move(job));
  return true;
}

// Gives free places to jobs; in lockstep only while all lanes are gathered.
void Batch::fill() {
  const bool lockstep = options_.schedule == BatchSchedule::lockstep;
  if (stats_.busy == 0) gathers_ = lockstep;
  if (lanes_.idle()) waits_ = false;
  while (!waits_) {
    plan_.look();
    // Prefixes are begun before a place is free for the jobs that wait for them.
    std::int32_t ahead = 0;
    for (auto& [place, job] : plan_.pending()) {
      if (ahead++ == options_.lanes) break;
      prepare(job);
    }
    if (lanes_.full() || (lockstep && !gathers_)) break;
    const auto at = choose();
    if (at == plan_.pending().end()) break;
    const PlannedJob& job = at->second;
    const SharedPrefix* prefix = usable(job);
    SharedCache* base = prefix != nullptr ? prefix->cache.get() : nullptr;
    const std::size_t bytes = caches_.bytes_of(job.job, prefix != nullptr ? prefix->length : 0);
    lanes_.start(plan_.take(at), base, bytes);
  }
  if (lanes_.full() || (stats_.busy > 0 && !(lanes_.reads_prefix() && !waits_))) gathers_ = false;
}

// The first job that can run now: what it shares with others is there, and there is room for the
// rest. Others may pass a job that waits for room, but not for ever.
BatchPlan::Pending::iterator Batch::choose() {
  BatchPlan::Pending& pending = plan_.pending();
  std::vector<PlannedJob*> passed;
  std::int32_t seen = 0;
  for (auto at = pending.begin(); at != pending.end() && seen < 2 * options_.lanes; ++at, ++seen) {
    PlannedJob& job = at->second;
    if (job.fault.empty()) {
      prepare(job);
      const SharedPrefix* prefix = usable(job);
      const bool begun = prefix == nullptr || prefix->cache != nullptr;
      if (begun && prefix != nullptr && prefix->cache->state == SharedCache::State::reading)
        continue;
      const std::int64_t shared = prefix != nullptr ? prefix->length : 0;
      if (!begun || !caches_.has_room_for_job(caches_.bytes_of(job.job, shared))) {
        if (job.passed >= options_.lanes) break;
        passed.push_back(&job);
        continue;
      }
    }
    for (PlannedJob* other : passed) ++other->passed;
    return at;
  }
  return pending.end();
}

// The longest prefix that the job is to begin with; not necessarily there yet.
SharedPrefix* Batch::usable(const PlannedJob& job) {
  SharedPrefix* prefix = job.prefix.get();
  while (prefix != nullptr && prefix->cache != nullptr &&
         prefix->cache->state == SharedCache::State::failed) {
    prefix = prefix->parent.get();
  }
  return prefix;
}

// The next prefix on the way to the job's begins to be computed, if there is room.
void Batch::prepare(const PlannedJob& job) {
  std::shared_ptr<SharedPrefix> missing;
  SharedCache* base = nullptr;
  for (std::shared_ptr<SharedPrefix> prefix = job.prefix; prefix; prefix = prefix->parent) {
    if (!prefix->cache) {
      missing = prefix;
    } else if (prefix->cache->state == SharedCache::State::reading) {
      return;
    } else if (prefix->cache->state == SharedCache::State::ready) {
      base = prefix->cache.get();
      break;
    }
  }
  if (missing) begin(missing, base, job);
}

void Batch::begin(const std::shared_ptr<SharedPrefix>& prefix, SharedCache* base,
                  const PlannedJob& job) {
  const std::int64_t shared = base != nullptr ? base->start->cache.length() : 0;
  const std::size_t bytes = caches_.bytes_to(shared, prefix->length);
  if (!caches_.has_room(bytes + caches_.bytes_of(job.job, prefix->length))) return;
  const auto ids = std::span(job.job.prompt).first(static_cast<std::size_t>(prefix->length));
  auto cache = std::make_shared<SharedCache>();
  cache->ids.assign(ids.begin(), ids.end());
  prefix->cache = cache;
  try {
    cache->start.emplace(caches_.start(ids, prefix->length, base, bytes));
  } catch (const Error&) {
    cache->give_up();
    return;
  }
  lanes_.read(prefix);
}

}  // namespace

BatchStats generate_batch(Forward& forward, const BatchOptions& options,
                          const std::function<std::optional<BatchJob>()>& next,
                          const std::function<void(BatchOutcome)>& done,
                          const std::function<void(const BatchStats&)>& progress) {
  check(forward, options);
  forward.reserve_logits(std::min(options.lanes, forward.max_rows()));
  return Batch(forward, options, next, done).run(progress);
}

}  // namespace tinyloop
