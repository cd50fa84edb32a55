// SPDX-License-Identifier: Apache-2.0
// The pending jobs of a batch: how far ahead they are read, in which order they run and which of
// them share prefixes. Compares ids only; what is computed and when is the batch's
// business.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinyloop/batch/job.h"

namespace tinyloop {

struct SharedCache;

// The first `length` ids of `jobs` jobs, each of which is longer. A node of a tree: `parent` is
// the next shorter prefix, null if there is none.
struct SharedPrefix {
  std::int64_t length = 0;
  std::int64_t jobs = 0;
  std::shared_ptr<SharedPrefix> parent;
  std::shared_ptr<SharedCache> cache;  // the batch's
};

struct PlannedJob {
  BatchJob job;
  std::int64_t sequence = 0;  // number of jobs taken before it
  std::chrono::steady_clock::time_point taken;
  std::string fault;                     // why it cannot run; may be empty
  std::shared_ptr<SharedPrefix> prefix;  // the longest one worth sharing; null: none
  bool planned = false;
  std::int64_t place = 0;   // among jobs of its priority
  std::int64_t passed = 0;  // number of jobs that overtook it while it did not fit
};

// The order of groups and of jobs in a group: that of their first job, or those with the most
// tokens to generate first, so that no lane is left alone with a long answer at the end.
enum class BatchOrder { first, longest };

// Puts jobs with common prefixes next to each other and finds these prefixes. A prefix less than a
// tile longer than its parent is not worth sharing.
std::vector<PlannedJob> in_groups(std::vector<PlannedJob> jobs, BatchGrouping grouping,
                                  BatchOrder order = BatchOrder::first);

class BatchPlan {
 public:
  using Source = std::function<std::optional<BatchJob>()>;
  using Check = std::function<void(const BatchJob&)>;
  // In running order: highest priority first, then as planned.
  using Pending = std::map<std::pair<std::int64_t, std::int64_t>, PlannedJob>;

  // `check` throws Error if a job cannot run.
  BatchPlan(BatchGrouping grouping, BatchOrder order, std::int64_t in_sight, Source next,
            Check check);

  // Reads as many jobs as in_sight allows. Groups are formed among half as many jobs, so that the
  // next ones are available when the last of these run.
  void look();
  Pending& pending() { return pending_; }
  PlannedJob take(Pending::iterator at);
  // Returns a taken job, which will run again.
  void put_back(PlannedJob job);
  // A taken job has ended.
  void finished(const PlannedJob& job) { unfinished_.erase(job.sequence); }

 private:
  void make_groups();
  void add(PlannedJob job);

  BatchGrouping grouping_;
  BatchOrder order_;
  std::int64_t in_sight_;
  Source next_;
  Check check_;
  bool at_end_ = false;
  std::int64_t taken_ = 0;
  std::int64_t grouped_ = 0;          // jobs taken before this one have their place
  std::int64_t planned_pending_ = 0;  // pending jobs that have one
  std::set<std::int64_t> unfinished_;
  Pending pending_;
};

}  // namespace tinyloop
