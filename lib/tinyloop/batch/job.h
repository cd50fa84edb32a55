// SPDX-License-Identifier: Apache-2.0
// The jobs of a batch: requests and outcomes, the options they share, and the counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/sampling/stop.h"
#include "tinyloop/schedule/exit_rule.h"
#include "tinyloop/schedule/request.h"
#include "tinyloop/token.h"

namespace tinyloop {

struct BatchJob {
  std::int64_t number = 0;  // chosen by the caller, returned with the outcome
  std::vector<TokenId> prompt;
  StopRules stop;  // `room` is set here
  std::uint64_t seed = 0;
  // Pending jobs with the highest priority run first, equal ones in input order.
  std::int64_t priority = 0;
  std::string group;  // BatchGrouping::key: jobs with equal groups run next to each other
};

struct BatchOutcome {
  std::int64_t number = 0;
  Answer answer;
  std::string error;      // not empty: this job failed, the others continue; answer is invalid
  double queue_ms = 0.0;  // from when it was read to its first row
  // Prompt positions computed by other jobs; those from the pool are in answer.stats.reused.
  std::int64_t shared = 0;
};

enum class BatchSchedule { lockstep, continuous };
enum class BatchGrouping { none, prefix, key };

struct BatchOptions {
  BatchSchedule schedule = BatchSchedule::continuous;
  BatchGrouping grouping = BatchGrouping::prefix;
  std::int32_t lanes = 16;       // maximum number of jobs at once
  std::size_t memory = 0;        // maximum bytes of all lanes' caches together; 0: no limit
  bool memory_guessed = false;   // the limit is a guess: a job beyond it runs alone
  std::int64_t in_sight = 4096;  // jobs taken from the source ahead of the oldest unfinished one
  // Maximum prompt rows per pass; 0: as many as the forward pass allows.
  std::int64_t prefill_chunk = 0;
  SamplingOptions sampling;  // of all lanes; the seed is the job's
  ExitRule exit;
  bool hash_logits = false;
  PrefixPool* pool = nullptr;  // null: none
  bool pool_crop = true;
  // Prefixes of at least this many pending jobs are registered first; 0: none.
  std::int64_t pool_min_share = 0;
};

struct BatchStats {
  std::int64_t jobs = 0, errors = 0;  // finished
  // Tokens; a job restarted for lack of memory is counted each time.
  std::int64_t prefilled = 0, reused = 0, shared = 0, generated = 0;
  std::int64_t passes = 0, rows = 0;  // rows / passes: rows per pass
  std::int64_t decode_rows = 0;       // of these, rows of tokens being generated
  // Lanes with a row, summed over passes; / (passes * lanes): occupancy.
  std::int64_t lane_passes = 0;
  std::int32_t busy = 0;  // lanes now
  std::int64_t pool_hits = 0, pool_misses = 0;
  std::string warning;  // about the pool; may be empty
};

}  // namespace tinyloop
