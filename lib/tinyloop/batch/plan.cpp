// SPDX-License-Identifier: Apache-2.0
// Sorted by ids, jobs with common prefixes are adjacent: a run of jobs that share enough is a
// node of the prefix tree.
#include "tinyloop/batch/plan.h"

#include <algorithm>
#include <iterator>

#include "tinyloop/device/kv_tile.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

// Where a job or a group of them comes: less is earlier.
using Turn = std::pair<std::int64_t, std::int64_t>;

Turn turn_of(const PlannedJob& job, BatchOrder order) {
  const std::int64_t tokens = std::max<std::int64_t>(job.job.stop.max_tokens, 0);
  return {order == BatchOrder::longest ? -tokens : 0, job.sequence};
}

// A run of neighbours in the sorted order, begin .. end-1.
struct Run {
  std::size_t begin, end;
  Turn turn;  // the earliest in it
};

class PrefixTree {
 public:
  PrefixTree(std::span<PlannedJob*> jobs, BatchOrder order)
      : order_(order), jobs_(jobs.begin(), jobs.end()) {
    std::sort(jobs_.begin(), jobs_.end(), [](const PlannedJob* a, const PlannedJob* b) {
      const auto compared = a->job.prompt <=> b->job.prompt;
      return compared != 0 ? compared < 0 : a->sequence < b->sequence;
    });
    common_.resize(jobs_.size());
    for (std::size_t i = 1; i < jobs_.size(); ++i) {
      const std::vector<TokenId>&a = jobs_[i - 1]->job.prompt, &b = jobs_[i]->job.prompt;
      const std::int64_t shared = std::ranges::mismatch(a, b).in1 - a.begin();
      // The last position of each is its own: that is where its first token comes from.
      common_[i] = std::min(shared, std::min(std::ssize(a), std::ssize(b)) - 1);
    }
  }

  std::vector<PlannedJob*> arranged() {
    arrange(0, jobs_.size(), nullptr);
    return std::move(result_);
  }

 private:
  // Jobs begin .. end-1 all begin with `prefix`.
  void arrange(std::size_t begin, std::size_t end, const std::shared_ptr<SharedPrefix>& prefix) {
    const std::int64_t worth = (prefix ? prefix->length : 0) + kTile;
    std::vector<Run> runs;
    for (std::size_t i = begin; i < end; ++i) {
      const Turn turn = turn_of(*jobs_[i], order_);
      if (i == begin || common_[i] < worth) runs.push_back({i, i, turn});
      runs.back().end = i + 1;
      runs.back().turn = std::min(runs.back().turn, turn);
    }
    std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.turn < b.turn; });
    for (const Run& run : runs) {
      if (run.end - run.begin == 1) {
        jobs_[run.begin]->prefix = prefix;
        result_.push_back(jobs_[run.begin]);
        continue;
      }
      auto longer = std::make_shared<SharedPrefix>();
      const auto first = common_.begin() + static_cast<std::ptrdiff_t>(run.begin) + 1;
      const auto last = common_.begin() + static_cast<std::ptrdiff_t>(run.end);
      longer->length = *std::min_element(first, last);
      longer->jobs = static_cast<std::int64_t>(run.end - run.begin);
      longer->parent = prefix;
      arrange(run.begin, run.end, longer);
    }
  }

  BatchOrder order_;
  std::vector<PlannedJob*> jobs_;     // sorted by ids
  std::vector<std::int64_t> common_;  // [i]: ids that i shares with i-1
  std::vector<PlannedJob*> result_;
};

}  // namespace

std::vector<PlannedJob> in_groups(std::vector<PlannedJob> jobs, BatchGrouping grouping,
                                  BatchOrder order) {
  // Only equal priorities are grouped, so that groups do not wait half done. ~p: the greatest
  // first, and no p is too great to be turned round.
  std::map<std::int64_t, std::map<std::string, std::vector<PlannedJob*>>> classes;
  for (PlannedJob& job : jobs) {
    const bool by_key = grouping == BatchGrouping::key;
    classes[~job.job.priority][by_key ? job.job.group : std::string()].push_back(&job);
  }
  std::vector<PlannedJob> result;
  for (auto& [priority, groups] : classes) {
    std::map<Turn, std::vector<PlannedJob*>> in_order;
    for (auto& [key, members] : groups) {
      Turn turn = turn_of(*members.front(), order);
      for (const PlannedJob* job : members) turn = std::min(turn, turn_of(*job, order));
      in_order[turn] = std::move(members);
    }
    for (auto& [turn, members] : in_order) {
      if (grouping != BatchGrouping::none) members = PrefixTree(members, order).arranged();
      for (PlannedJob* job : members) result.push_back(std::move(*job));
    }
  }
  return result;
}

BatchPlan::BatchPlan(BatchGrouping grouping, BatchOrder order, std::int64_t in_sight, Source next,
                     Check check)
    : grouping_(grouping),
      order_(order),
      in_sight_(in_sight),
      next_(std::move(next)),
      check_(std::move(check)) {}

void BatchPlan::look() {
  const std::int64_t group_span = std::max<std::int64_t>(1, in_sight_ / 2);
  const bool alone = grouping_ == BatchGrouping::none;
  const auto oldest = [&] { return unfinished_.empty() ? taken_ : *unfinished_.begin(); };
  while (!at_end_ && taken_ - oldest() < in_sight_) {
    std::optional<BatchJob> job = next_();
    if (!job) {
      at_end_ = true;
      break;
    }
    PlannedJob planned;
    planned.taken = std::chrono::steady_clock::now();
    planned.sequence = taken_++;
    try {
      check_(*job);
    } catch (const Error& error) {
      planned.fault = error.what();
      job->prompt.clear();
    }
    planned.job = std::move(*job);
    planned.place = planned.sequence;
    planned.planned = alone;
    unfinished_.insert(planned.sequence);
    add(std::move(planned));
    if (alone) grouped_ = taken_;
    if (taken_ - grouped_ >= group_span) make_groups();
  }
  // What is left is grouped as it is when nothing else is there to be run.
  if (planned_pending_ == 0 || at_end_) make_groups();
}

// Those not grouped yet change places among themselves.
void BatchPlan::make_groups() {
  if (grouped_ == taken_) return;
  std::vector<PlannedJob> fresh;
  for (auto at = pending_.begin(); at != pending_.end();) {
    if (at->second.planned) {
      ++at;
      continue;
    }
    fresh.push_back(std::move(at->second));
    at = pending_.erase(at);
  }
  std::int64_t place = grouped_;
  for (PlannedJob& job : in_groups(std::move(fresh), grouping_, order_)) {
    job.planned = true;
    job.place = place++;
    add(std::move(job));
  }
  grouped_ = taken_;
}

void BatchPlan::add(PlannedJob job) {
  if (job.planned) ++planned_pending_;
  const std::pair key(~job.job.priority, job.place);
  pending_.emplace(key, std::move(job));
}

PlannedJob BatchPlan::take(Pending::iterator at) {
  PlannedJob job = std::move(at->second);
  if (job.planned) --planned_pending_;
  pending_.erase(at);
  return job;
}

// It has its place, even if others were grouped meanwhile.
void BatchPlan::put_back(PlannedJob job) {
  job.planned = true;
  add(std::move(job));
}

}  // namespace tinyloop
