// SPDX-License-Identifier: Apache-2.0
// The jobs of a batch that are in sight: how far ahead they are taken, in which order they are to
// run and which of them begin alike. Compares ids only; what is computed and when is the batch's
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

// The first `length` ids of `jobs` jobs, fewer than any of them has. A node of a tree: `parent` is
// the next shorter one, null if there is none.
struct SharedPrefix {
  std::int64_t length = 0;
  std::int64_t jobs = 0;
  std::shared_ptr<SharedPrefix> parent;
  std::shared_ptr<SharedCache> cache;  // the batch's
};

struct PlannedJob {
  BatchJob job;
  std::int64_t sequence = 0;  // how many were taken before it
  std::chrono::steady_clock::time_point taken;
  std::string fault;                     // why it cannot run; may be empty
  std::shared_ptr<SharedPrefix> prefix;  // the longest one worth sharing; null: none
  bool planned = false;
  std::int64_t place = 0;   // among jobs of its priority
  std::int64_t passed = 0;  // by how many others while there was no room for it
};

// Groups, and jobs in a group: in the order of the first of them, or those with the most tokens to
// generate before others, so that at the end no lane is alone with a long answer.
enum class BatchOrder { first, longest };

// Puts jobs that begin alike next to each other and finds their prefixes. Prefixes that are less
// than a tile longer than the one before are not worth their name.
std::vector<PlannedJob> in_groups(std::vector<PlannedJob> jobs, BatchGrouping grouping,
                                  BatchOrder order = BatchOrder::first);

class BatchPlan {
 public:
  using Source = std::function<std::optional<BatchJob>()>;
  using Check = std::function<void(const BatchJob&)>;
  // In the order to run: greatest priority first, then as planned.
  using Pending = std::map<std::pair<std::int64_t, std::int64_t>, PlannedJob>;

  // `check` throws Error where a job cannot run.
  BatchPlan(BatchGrouping grouping, BatchOrder order, std::int64_t in_sight, Source next,
            Check check);

  // Takes what may be taken. Groups are made among as many jobs as half of those that may be in
  // sight, so that the next ones are there when the last of these run.
  void look();
  Pending& pending() { return pending_; }
  PlannedJob take(Pending::iterator at);
  // A job taken is to run anew.
  void put_back(PlannedJob job);
  // A job taken has ended.
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
  std::int64_t planned_pending_ = 0;  // pending jobs that have
  std::set<std::int64_t> unfinished_;
  Pending pending_;
};

}  // namespace tinyloop
