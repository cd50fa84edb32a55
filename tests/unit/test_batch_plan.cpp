// SPDX-License-Identifier: Apache-2.0
// The planning of batches: how many jobs are in sight, their order, their shared prefixes.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tinyloop/batch/plan.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

std::vector<TokenId> ids(TokenId value, std::size_t count) {
  return std::vector<TokenId>(count, value);
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

PlannedJob planned(std::int64_t sequence, std::vector<TokenId> prompt, std::string group = "",
                   std::int64_t priority = 0) {
  PlannedJob job;
  job.sequence = job.job.number = sequence;
  job.job.prompt = std::move(prompt);
  job.job.group = std::move(group);
  job.job.priority = priority;
  return job;
}

std::vector<std::int64_t> order(const std::vector<PlannedJob>& jobs) {
  std::vector<std::int64_t> sequences;
  for (const PlannedJob& job : jobs) sequences.push_back(job.sequence);
  return sequences;
}

using Order = std::vector<std::int64_t>;

TEST_CASE("jobs that begin alike run next to each other, in the order of their first") {
  const auto a = ids(1, 20), b = ids(2, 20);
  std::vector<PlannedJob> jobs;
  jobs.push_back(planned(0, b + ids(5, 3)));
  jobs.push_back(planned(1, a + ids(9, 3)));
  jobs.push_back(planned(2, ids(7, 40)));
  jobs.push_back(planned(3, a + ids(4, 3)));
  jobs.push_back(planned(4, b + ids(6, 1)));
  jobs.push_back(planned(5, a + ids(4, 1)));
  CHECK(order(in_groups(jobs, BatchGrouping::none)) == Order{0, 1, 2, 3, 4, 5});
  const std::vector<PlannedJob> groups = in_groups(jobs, BatchGrouping::prefix);
  CHECK(order(groups) == Order{0, 4, 1, 3, 5, 2});
  CHECK(groups[0].prefix->length == 20);
  CHECK(groups[0].prefix->jobs == 2);
  CHECK(groups[0].prefix == groups[1].prefix);
  CHECK(groups[2].prefix->length == 20);
  CHECK(groups[2].prefix->jobs == 3);
  CHECK(groups[2].prefix == groups[4].prefix);
  CHECK(groups[5].prefix == nullptr);
}

TEST_CASE("a prefix is shorter than each prompt that has it and worth at least a tile") {
  const auto lengths = [](std::vector<TokenId> one, std::vector<TokenId> two) {
    std::vector<PlannedJob> jobs;
    jobs.push_back(planned(0, std::move(one)));
    jobs.push_back(planned(1, std::move(two)));
    const std::vector<PlannedJob> groups = in_groups(std::move(jobs), BatchGrouping::prefix);
    CHECK(groups[0].prefix == groups[1].prefix);
    return groups[0].prefix ? groups[0].prefix->length : 0;
  };
  CHECK(lengths(ids(1, 40), ids(1, 40)) == 39);
  CHECK(lengths(ids(1, 40), ids(1, 41)) == 39);
  CHECK(lengths(ids(1, 16) + ids(2, 1), ids(1, 16) + ids(3, 1)) == 16);
  CHECK(lengths(ids(1, 15) + ids(2, 9), ids(1, 15) + ids(3, 9)) == 0);
  CHECK(lengths(ids(1, 16), ids(1, 16)) == 0);
  CHECK(lengths({}, {}) == 0);
  CHECK(lengths({}, ids(1, 30)) == 0);
}

TEST_CASE("prefixes nest: system prompt, examples, question") {
  const auto system = ids(1, 30), shots = system + ids(2, 30);
  std::vector<PlannedJob> jobs;
  jobs.push_back(planned(0, shots + ids(3, 5)));
  jobs.push_back(planned(1, system + ids(4, 5)));
  jobs.push_back(planned(2, shots + ids(5, 5)));
  jobs.push_back(planned(3, system + ids(2, 10) + ids(6, 5)));  // 10 more ids are not worth it
  const std::vector<PlannedJob> groups = in_groups(std::move(jobs), BatchGrouping::prefix);
  CHECK(order(groups) == Order{0, 2, 1, 3});
  CHECK(groups[0].prefix == groups[1].prefix);
  CHECK(groups[0].prefix->length == 60);
  CHECK(groups[0].prefix->jobs == 2);
  CHECK(groups[0].prefix->parent == groups[2].prefix);
  CHECK(groups[2].prefix->length == 30);
  CHECK(groups[2].prefix->jobs == 4);
  CHECK(groups[2].prefix == groups[3].prefix);
  CHECK(groups[2].prefix->parent == nullptr);
}

TEST_CASE("the longest first: groups by their longest, jobs in a group by their own") {
  const auto a = ids(1, 20), b = ids(2, 20);
  std::vector<PlannedJob> jobs;
  const auto add = [&](std::vector<TokenId> prompt, std::int64_t tokens, std::string group) {
    jobs.push_back(planned(std::ssize(jobs), std::move(prompt), std::move(group)));
    jobs.back().job.stop.max_tokens = tokens;
  };
  add(b + ids(5, 3), 10, "x");
  add(ids(7, 40), 50, "y");
  add(a + ids(9, 3), 5, "x");
  add(b + ids(6, 1), 40, "y");
  add(a + ids(4, 3), 70, "y");
  add(ids(8, 3), 50, "x");
  add(ids(9, 3), -9, "x");  // as 0: whoever checks jobs has not seen it yet
  CHECK(order(in_groups(jobs, BatchGrouping::none, BatchOrder::longest)) ==
        Order{0, 1, 2, 3, 4, 5, 6});
  CHECK(order(in_groups(jobs, BatchGrouping::prefix, BatchOrder::longest)) ==
        Order{4, 2, 1, 5, 3, 0, 6});
  CHECK(order(in_groups(jobs, BatchGrouping::key, BatchOrder::longest)) ==
        Order{4, 1, 3, 5, 0, 2, 6});
  jobs[0].job.priority = 1;  // goes before all others
  CHECK(order(in_groups(jobs, BatchGrouping::prefix, BatchOrder::longest)) ==
        Order{0, 4, 2, 1, 5, 3, 6});
}

TEST_CASE("every prompt extends the one before it") {
  std::vector<PlannedJob> jobs;
  for (std::int64_t i = 0; i < 200; ++i) {
    jobs.push_back(planned(i, ids(1, static_cast<std::size_t>(16 * (i + 1) + 1))));
  }
  const std::vector<PlannedJob> groups = in_groups(std::move(jobs), BatchGrouping::prefix);
  Order expected(200);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(order(groups) == expected);
  std::int64_t depth = 0;
  for (auto prefix = groups.back().prefix; prefix; prefix = prefix->parent) {
    CHECK(prefix->length == 16 * (199 - depth));
    CHECK(prefix->jobs == depth + 2);
    ++depth;
  }
  CHECK(depth == 199);
}

TEST_CASE("by key: equal groups run next to each other and share what they have in common") {
  const auto a = ids(1, 20);
  std::vector<PlannedJob> jobs;
  jobs.push_back(planned(0, a + ids(2, 2), "x"));
  jobs.push_back(planned(1, a + ids(3, 2), "y"));
  jobs.push_back(planned(2, a + ids(4, 2), "x"));
  jobs.push_back(planned(3, ids(5, 30), "y"));
  const std::vector<PlannedJob> groups = in_groups(std::move(jobs), BatchGrouping::key);
  CHECK(order(groups) == Order{0, 2, 1, 3});
  CHECK(groups[0].prefix->length == 20);
  CHECK(groups[0].prefix->jobs == 2);
  CHECK(groups[2].prefix == nullptr);
  CHECK(groups[3].prefix == nullptr);
}

TEST_CASE("greater priority goes first and is grouped among its equals") {
  const auto a = ids(1, 20);
  std::vector<PlannedJob> jobs;
  jobs.push_back(planned(0, a + ids(2, 2), "", 0));
  jobs.push_back(planned(1, ids(9, 3), "", 5));
  jobs.push_back(planned(2, a + ids(4, 2), "", 5));
  jobs.push_back(planned(3, a + ids(5, 2), "", 0));
  jobs.push_back(planned(4, ids(8, 2), "", -1));
  const std::vector<PlannedJob> groups = in_groups(std::move(jobs), BatchGrouping::prefix);
  CHECK(order(groups) == Order{1, 2, 0, 3, 4});
  CHECK(groups[1].prefix == nullptr);
  CHECK(groups[2].prefix->jobs == 2);
}

// Jobs 0, 1, ... as a source gives them.
struct Jobs {
  std::vector<BatchJob> all;
  std::size_t given = 0;
  BatchPlan::Source source() {
    return [this]() -> std::optional<BatchJob> {
      if (given == all.size()) return std::nullopt;
      return all[given++];
    };
  }
};

Jobs numbered(std::int64_t count) {
  Jobs jobs;
  for (std::int64_t i = 0; i < count; ++i) {
    jobs.all.emplace_back();
    jobs.all.back().number = i;
    jobs.all.back().prompt = ids(1, 1);
  }
  return jobs;
}

TEST_CASE("no more are taken than may be in sight of the oldest unfinished one") {
  for (const std::int64_t in_sight : {1, 2, 5, 8}) {
    Jobs jobs = numbered(30);
    BatchPlan plan(BatchGrouping::prefix, BatchOrder::first, in_sight, jobs.source(),
                   [](const BatchJob&) {});
    plan.look();
    CHECK(std::ssize(plan.pending()) == in_sight);
    CHECK(static_cast<std::int64_t>(jobs.given) == in_sight);
    // The oldest runs on while all others end.
    const PlannedJob oldest = plan.take(plan.pending().begin());
    CHECK(oldest.sequence == 0);
    while (!plan.pending().empty()) {
      plan.finished(plan.take(plan.pending().begin()));
      plan.look();
    }
    CHECK(static_cast<std::int64_t>(jobs.given) == in_sight);
    plan.finished(oldest);
    plan.look();
    CHECK(static_cast<std::int64_t>(jobs.given) == 2 * in_sight);
    std::int64_t last = in_sight - 1;
    while (!plan.pending().empty()) {
      const PlannedJob job = plan.take(plan.pending().begin());
      CHECK(job.sequence == ++last);
      plan.finished(job);
      plan.look();
    }
    CHECK(last == 29);
  }
}

TEST_CASE("groups are made among half of the jobs in sight; priority knows all of them") {
  const auto a = ids(1, 20);
  Jobs jobs = numbered(8);
  jobs.all[1].prompt = a + ids(2, 1);
  jobs.all[3].prompt = a + ids(3, 1);
  jobs.all[4].prompt = a + ids(4, 1);
  jobs.all[6].priority = 1;
  BatchPlan plan(BatchGrouping::prefix, BatchOrder::first, 8, jobs.source(),
                 [](const BatchJob&) {});
  plan.look();
  Order sequences;
  std::vector<std::int64_t> shared;
  for (const auto& [place, job] : plan.pending()) {
    sequences.push_back(job.sequence);
    shared.push_back(job.prefix ? job.prefix->jobs : 0);
  }
  CHECK(sequences == Order{6, 0, 1, 3, 2, 4, 5, 7});
  CHECK(shared == Order{0, 0, 2, 2, 0, 0, 0, 0});
}

TEST_CASE("without groups jobs go by priority and number, whatever else they ask for") {
  Jobs jobs = numbered(8);
  for (const std::size_t job : {2, 5}) jobs.all[job].priority = 1;
  for (const std::size_t job : {1, 3, 6}) jobs.all[job].prompt = ids(1, 20 + job);
  jobs.all[7].stop.max_tokens = 1000;
  BatchPlan plan(BatchGrouping::none, BatchOrder::longest, 6, jobs.source(),
                 [](const BatchJob&) {});
  plan.look();
  CHECK(jobs.given == 6);
  Order sequences;
  const PlannedJob first = plan.take(plan.pending().begin());
  plan.finished(first);
  CHECK(first.sequence == 2);
  PlannedJob again = plan.take(plan.pending().begin());
  CHECK(again.sequence == 5);
  plan.put_back(std::move(again));
  while (!plan.pending().empty()) {
    const PlannedJob job = plan.take(plan.pending().begin());
    sequences.push_back(job.sequence);
    CHECK(job.prefix == nullptr);
    plan.finished(job);
    plan.look();
  }
  CHECK(sequences == Order{5, 0, 1, 3, 4, 6, 7});
}

TEST_CASE("jobs that cannot run keep their place and their reason") {
  Jobs jobs = numbered(4);
  jobs.all[2].prompt = ids(1, 30);
  jobs.all[3].prompt = ids(1, 31);
  BatchPlan plan(BatchGrouping::prefix, BatchOrder::first, 10, jobs.source(),
                 [](const BatchJob& job) {
                   if (job.prompt.size() == 30) throw Error(ErrorKind::usage, "thirty");
                 });
  plan.look();
  std::vector<std::string> faults;
  for (const auto& [place, job] : plan.pending()) {
    faults.push_back(job.fault);
    CHECK(job.prefix == nullptr);
  }
  CHECK(faults == std::vector<std::string>{"", "", "thirty", ""});
}

}  // namespace
}  // namespace tinyloop
