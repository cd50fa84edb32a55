// SPDX-License-Identifier: Apache-2.0
// Each row is at its own loop. Between two passes rows enter and leave; all that leave share
// one reading of coda and head.
#include "tinyloop/batch/lanes.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/prompt/elapsed.h"

namespace tinyloop {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

BatchLanes::BatchLanes(Forward& forward, const BatchOptions& options, std::int64_t chunk,
                       BatchCaches& caches, BatchStats& stats, Events events)
    : forward_(forward),
      options_(options),
      caches_(caches),
      stats_(stats),
      events_(std::move(events)),
      rows_(forward, options.exit, uncounted_, options.lanes),
      lanes_(static_cast<std::size_t>(options.lanes)),
      free_slots_(static_cast<std::size_t>(chunk)) {
  std::iota(free_slots_.begin(), free_slots_.end(), options.lanes * (selects() ? 2 : 1));
}

bool BatchLanes::reads_prefix() const {
  return std::any_of(readings_.begin(), readings_.end(),
                     [](const Reading& reading) { return reading.prefix != nullptr; });
}

// --- beginnings ----------------------------------------------------------------------------------

void BatchLanes::start(PlannedJob job, SharedCache* base, std::size_t bytes) {
  const auto place =
      std::find_if(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane; });
  *place = std::make_unique<Lane>();
  ++stats_.busy;
  Lane& lane = **place;
  lane.planned = std::move(job);
  lane.row.row.slot = static_cast<std::int32_t>(place - lanes_.begin());
  if (!lane.planned.fault.empty()) return end(lane, lane.planned.fault);
  const BatchJob& own = lane.planned.job;
  SamplingOptions sampling = options_.sampling;
  sampling.seed = own.seed;
  lane.sampler.emplace(sampling, forward_.model().config().vocab);
  lane.request.stop = own.stop;
  lane.request.hash_logits = options_.hash_logits;
  lane.request.exit = options_.exit;
  lane.stream.emplace(forward_, *lane.sampler, lane.request, own.prompt);
  if (lane.stream->ended()) return end(lane, "");
  try {
    lane.start.emplace(caches_.start(own.prompt, caches_.end_of(own), base, bytes));
  } catch (const Error& error) {
    return refuse(lane, error.what());
  }
  KvCache& cache = lane.start->cache;
  // The last position runs in any case: the first token comes from it.
  const std::int64_t ids = std::ssize(own.prompt);
  if (cache.length() == ids) cache.crop(ids - 1);
  lane.start->pool_reused = std::min(lane.start->pool_reused, cache.length());
  stats_.reused += lane.start->pool_reused;
  stats_.shared += cache.length() - lane.start->pool_reused;
  PromptWork work;
  work.reused = cache.length();
  work.prefilled = ids - work.reused;
  work.loops_run = work.prefilled * forward_.plan().loops;
  lane.stream->count(work);
  // Under an exit rule the last position goes alone, see read_last().
  const std::size_t length = own.prompt.size() - (selects() ? 1 : 0);
  if (cache.length() == static_cast<std::int64_t>(length)) return read_last(lane);
  Reading reading;
  reading.lane = &lane;
  reading.ids = std::span(own.prompt).first(length);
  reading.cache = &cache;
  reading.wants_last = !selects();
  readings_.push_back(std::move(reading));
}

void BatchLanes::read(const std::shared_ptr<SharedPrefix>& prefix) {
  SharedCache& shared = *prefix->cache;
  if (shared.start->cache.length() == prefix->length) return prefix_read(*prefix, false, 0.0);
  Reading reading;
  reading.prefix = prefix;
  reading.ids = shared.ids;
  reading.cache = &shared.start->cache;
  readings_.push_back(std::move(reading));
}

// The rule selects the state that the first token is picked from, but what the cache keeps is what
// all loops leave; the coda's rows before this one are there already.
void BatchLanes::read_last(Lane& lane) {
  const std::vector<TokenId>& prompt = lane.planned.job.prompt;
  const auto slot = lane.row.row.slot;
  lane.row = rows_.at({&lane.start->cache, std::ssize(prompt) - 1, prompt.back(), slot, 0});
  lane.row.select_only = true;
  lane.state = Lane::State::waiting;
}

// --- turns ---------------------------------------------------------------------------------------

void BatchLanes::turn(bool gather) {
  std::vector<LiveRow*> entering;
  if (!gather) enter_lanes(entering);
  enter_prompts(entering);
  if (!entering.empty()) rows_.enter(entering);
  pass();
  leave();
}

void BatchLanes::leaves_queue(Lane& lane) {
  if (lane.queue_ms < 0.0) lane.queue_ms = milliseconds_since(lane.planned.taken);
}

void BatchLanes::enter_lanes(std::vector<LiveRow*>& entering) {
  const bool reading = std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
    return lane && lane->state == Lane::State::reading;
  });
  if (lockstep() && reading) return;
  for (const auto& lane : lanes_) {
    if (!lane || lane->state != Lane::State::waiting) continue;
    try {
      forward_.check_position(lane->row.row.position);
    } catch (const Error& error) {
      end(*lane, error.what());
      continue;
    }
    try {
      lane->start->cache.reserve(lane->row.row.position + 1);
    } catch (const Error& error) {
      refuse(*lane, error.what());
      continue;
    }
    leaves_queue(*lane);
    lane->state = Lane::State::moving;
    entering.push_back(&lane->row);
  }
}

// Short prompts share the chunk; one that needs several goes behind the others after each.
void BatchLanes::enter_prompts(std::vector<LiveRow*>& entering) {
  Readings unfinished;
  for (auto next = readings_.begin(); next != readings_.end() && !free_slots_.empty();) {
    const auto at = next++;
    if (!at->rows.empty()) continue;
    const std::int64_t length = std::ssize(at->ids);
    const std::int64_t end = std::min(at->cache->length() + std::ssize(free_slots_), length);
    try {
      at->cache->reserve(end);
    } catch (const Error& error) {
      const Reading refused = std::move(*at);
      readings_.erase(at);
      if (refused.prefix) refused.prefix->cache->give_up();
      if (refused.lane != nullptr) refuse(*refused.lane, error.what());
      continue;
    }
    begin_chunk(*at, end);
    for (LiveRow& row : at->rows) entering.push_back(&row);
    if (end < length) unfinished.splice(unfinished.end(), readings_, at);
  }
  readings_.splice(readings_.end(), unfinished);
}

void BatchLanes::begin_chunk(Reading& reading, std::int64_t end) {
  for (std::int64_t position = reading.cache->length(); position < end; ++position) {
    const TokenId id = reading.ids[static_cast<std::size_t>(position)];
    LiveRow row = rows_.at({reading.cache, position, id, free_slots_.back(), 0});
    row.ruled = row.select_only = false;
    free_slots_.pop_back();
    reading.rows.push_back(row);
  }
  if (reading.lane != nullptr) leaves_queue(*reading.lane);
}

void BatchLanes::pass() {
  std::vector<LiveRow*> moving;
  std::int64_t lanes = 0, decoding = 0;
  for (const auto& lane : lanes_) {
    if (!lane || lane->state != Lane::State::moving || lane->row.done) continue;
    moving.push_back(&lane->row);
    ++lanes;
    if (!lane->first) ++decoding;
  }
  for (Reading& reading : readings_) {
    for (LiveRow& row : reading.rows) moving.push_back(&row);
    if (reading.lane != nullptr && !reading.rows.empty()) ++lanes;
  }
  if (moving.empty()) return;
  const Clock::time_point start = Clock::now();
  stats_.rows += rows_.pass(moving);
  ++stats_.passes;
  stats_.lane_passes += lanes;
  stats_.decode_rows += decoding;
  const double row_ms = milliseconds_since(start) / static_cast<double>(moving.size());
  for (Reading& reading : readings_) {
    reading.ms += row_ms * static_cast<double>(reading.rows.size());
  }
}

// In lockstep nobody leaves before all others can.
std::vector<BatchLanes::Lane*> BatchLanes::lanes_done() const {
  std::vector<Lane*> done;
  for (const auto& lane : lanes_) {
    if (!lane || lane->state != Lane::State::moving) continue;
    if (lane->row.done) {
      done.push_back(lane.get());
    } else if (lockstep()) {
      return {};
    }
  }
  return done;
}

void BatchLanes::leave() {
  const std::vector<Lane*> lanes = lanes_done();
  std::vector<LiveRow*> leaving;
  std::vector<std::int32_t> wanted;  // of lanes, then of prompts
  for (Lane* lane : lanes) {
    wanted.push_back(static_cast<std::int32_t>(leaving.size()));
    leaving.push_back(&lane->row);
  }
  std::vector<Readings::iterator> chunks;
  for (auto at = readings_.begin(); at != readings_.end(); ++at) {
    if (at->rows.empty() || !at->rows.front().done) continue;
    chunks.push_back(at);
    for (LiveRow& row : at->rows) leaving.push_back(&row);
    if (!at->wants_logits()) continue;
    wanted.push_back(static_cast<std::int32_t>(leaving.size()) - 1);
  }
  if (leaving.empty()) return;
  // The host's memory, valid until the forward pass runs coda or head again.
  std::span<const float> logits = rows_.leave(leaving, wanted);
  const std::vector<float> kept = commit(lanes, logits);
  if (!kept.empty()) logits = kept;

  const auto vocab = static_cast<std::size_t>(forward_.model().config().vocab);
  std::size_t row = 0;
  for (Lane* lane : lanes) settle(*lane, logits.subspan(vocab * row++, vocab));
  for (const Readings::iterator chunk : chunks) {
    if (!chunk->wants_logits()) {
      finish_chunk(chunk, {});
      continue;
    }
    finish_chunk(chunk, logits.subspan(vocab * row++, vocab));
  }
}

// The lanes' rows are in their caches. Where the first of an answer is the state that a rule chose,
// the coda runs on the real one too; what it would overwrite of `logits` is returned.
std::vector<float> BatchLanes::commit(std::span<Lane* const> lanes, std::span<const float> logits) {
  std::vector<Row> real;
  for (Lane* lane : lanes) {
    if (lane->first) {
      ++stats_.prefilled;
      real.push_back(lane->row.row);
      lane->row.stats = &lane->stream->stats();
    }
    rows_.confirm(lane->row);
    lane->start->cache.commit(lane->row.row.position + 1);
  }
  if (real.empty() || forward_.plan().coda_layers == 0) return {};
  std::vector<float> kept(logits.begin(), logits.end());
  forward_.leave(real, {});
  return kept;
}

void BatchLanes::finish_chunk(Readings::iterator at, std::span<const float> logits) {
  at->cache->commit(at->rows.back().row.position + 1);
  stats_.prefilled += std::ssize(at->rows);
  for (const LiveRow& row : at->rows) free_slots_.push_back(row.row.slot);
  at->rows.clear();
  if (at->cache->length() < std::ssize(at->ids)) return;
  const Reading reading = std::move(*at);
  readings_.erase(at);
  if (reading.prefix) return prefix_read(*reading.prefix, true, reading.ms);
  if (selects()) return read_last(*reading.lane);
  settle(*reading.lane, logits);
}

// --- ends ----------------------------------------------------------------------------------------

void BatchLanes::prefix_read(const SharedPrefix& prefix, bool computed, double ms) {
  prefix.cache->state = SharedCache::State::ready;
  if (options_.pool_min_share > 0 && prefix.jobs >= options_.pool_min_share) {
    caches_.publish(*prefix.cache, computed, ms);
  }
}

void BatchLanes::settle(Lane& lane, std::span<const float> logits) {
  AnswerStream& stream = *lane.stream;
  if (lane.first) stream.end_prompt();
  lane.first = false;
  const std::int64_t position = stream.position();
  TokenId id = 0;
  try {
    id = stream.pick(logits);
  } catch (const Error& error) {
    return end(lane, error.what());
  }
  ++stats_.generated;
  if (stream.ended()) return end(lane, "");
  lane.row = rows_.at({&lane.start->cache, position, id, lane.row.row.slot, 0});
  lane.row.stats = &stream.stats();
  lane.state = Lane::State::waiting;
}

// The job's answer does not depend on when it is computed, so it can begin again.
void BatchLanes::refuse(Lane& lane, std::string error) {
  PlannedJob planned = std::move(lane.planned);
  std::unique_ptr<Lane>& place = lanes_[static_cast<std::size_t>(lane.row.row.slot)];
  if (!events_.refused(planned)) {
    lane.planned = std::move(planned);
    return end(lane, std::move(error));
  }
  --stats_.busy;
  place.reset();
}

void BatchLanes::end(Lane& lane, std::string error) {
  BatchOutcome outcome;
  outcome.number = lane.planned.job.number;
  leaves_queue(lane);
  outcome.queue_ms = lane.queue_ms;
  if (error.empty()) outcome.answer = lane.stream->finish();
  if (error.empty() && outcome.answer.stats.generated > 0) {
    std::int64_t& reused = outcome.answer.stats.reused;
    outcome.shared = reused - std::min(reused, lane.start->pool_reused);
    reused -= outcome.shared;
    if (caches_.count(*lane.start)) {
      ++(lane.start->key.length > 0 ? stats_.pool_hits : stats_.pool_misses);
    }
  }
  ++stats_.jobs;
  if (!error.empty()) ++stats_.errors;
  outcome.error = std::move(error);
  // The place is free before anybody is told.
  const PlannedJob planned = std::move(lane.planned);
  --stats_.busy;
  lanes_[static_cast<std::size_t>(lane.row.row.slot)].reset();
  events_.ended(planned, std::move(outcome));
}

}  // namespace tinyloop
