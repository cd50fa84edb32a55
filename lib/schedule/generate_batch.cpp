// SPDX-License-Identifier: Apache-2.0
// A sequential stand-in: one job after the other by plain decoding.
#include "schedule/generate_batch.h"

#include <algorithm>
#include <chrono>

#include "error.h"
#include "schedule/pooled_prompt.h"

namespace tinyloop {

BatchStats generate_batch(Forward& forward, const BatchOptions& options,
                          const std::function<std::optional<BatchJob>()>& next,
                          const std::function<void(BatchOutcome)>& done,
                          const std::function<void(const BatchStats&)>& progress) {
  BatchStats stats;
  std::vector<BatchJob> jobs;
  for (bool more = true; more || !jobs.empty();) {
    while (more && static_cast<std::int32_t>(jobs.size()) < options.lanes) {
      if (std::optional<BatchJob> job = next()) {
        jobs.push_back(std::move(*job));
      } else {
        more = false;
      }
    }
    if (jobs.empty()) break;
    BatchJob job = std::move(jobs.back());  // out of order on purpose
    jobs.pop_back();
    stats.busy = 1;
    if (progress) progress(stats);
    BatchOutcome outcome;
    outcome.number = job.number;
    try {
      DecodeRequest request;
      request.prompt = job.prompt;
      request.stop = job.stop;
      request.exit = options.exit;
      request.hash_logits = options.hash_logits;
      request.prefill_chunk = options.prefill_chunk;
      SamplingOptions sampling = options.sampling;
      sampling.seed = job.seed;
      const Sampler sampler(sampling, forward.model().config().vocab);
      PooledAnswer answer = generate_with_pool(forward, options.kv, sampler, request,
                                               {options.pool, options.pool_crop, false});
      outcome.answer = std::move(answer.answer);
      outcome.pool_reused = answer.pool.reused;
      if (options.pool != nullptr) ++(answer.pool.reused > 0 ? stats.pool_hits : stats.pool_misses);
      if (stats.warning.empty()) stats.warning = answer.pool.warning;
    } catch (const Error& error) {
      outcome.error = error.what();
      ++stats.errors;
    }
    const DecodeStats& own = outcome.answer.stats;
    ++stats.jobs;
    stats.prefilled += own.prefilled;
    stats.reused += own.reused;
    stats.generated += own.generated;
    stats.passes += own.passes;
    stats.rows += own.rows;
    stats.decode_rows += own.rows;
    stats.lane_passes += own.passes;
    done(std::move(outcome));
  }
  stats.busy = 0;
  return stats;
}

}  // namespace tinyloop
