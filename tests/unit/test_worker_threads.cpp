// SPDX-License-Identifier: Apache-2.0
// Tests of the fork-join team: each share is done once a round, the caller sees all of it, shares
// are fixed and complete.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "tinyloop/cpu/worker_threads.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

TEST_CASE("shares run at the same time, each on a thread of its own, while the caller is busy") {
  for (const int count : {1, 2, 3, 5}) {
    WorkerThreads workers(count);
    CHECK(workers.count() == count);
    std::vector<std::thread::id> first;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::thread::id> ids(static_cast<std::size_t>(count));
      std::atomic<int> begun = 0;
      workers.run([&](int share) {
        ids[static_cast<std::size_t>(share)] = std::this_thread::get_id();
        ++begun;
        while (share == 0 && begun < count) std::this_thread::yield();
      });
      CHECK(ids[0] == std::this_thread::get_id());
      CHECK(std::set(ids.begin(), ids.end()).size() == ids.size());
      if (round == 0) first = ids;
      CHECK(ids == first);
    }
  }
}

TEST_CASE(
    "each share is done once a round, by its own thread or the caller, however late threads are") {
  const int count = 4 * WorkerThreads::usable_cpus() + 3;  // some always come late
  WorkerThreads workers(count);
  std::vector<int> done(static_cast<std::size_t>(count), 0);
  std::vector<std::set<std::thread::id>> by(static_cast<std::size_t>(count));
  for (int round = 1; round <= 1000; ++round) {
    workers.run([&](int share) {
      ++done[static_cast<std::size_t>(share)];
      by[static_cast<std::size_t>(share)].insert(std::this_thread::get_id());
    });
    REQUIRE(done == std::vector<int>(static_cast<std::size_t>(count), round));
  }
  const std::thread::id caller = std::this_thread::get_id();
  for (int share = 0; share < count; ++share) {
    std::set<std::thread::id> others = by[static_cast<std::size_t>(share)];
    others.erase(caller);
    CHECK(others.size() <= (share == 0 ? 0 : 1));
  }
}

TEST_CASE("a round sees what the one before has written, without locks") {
  WorkerThreads workers(3);
  std::vector<std::int64_t> values(300, 0);
  for (int round = 0; round < 500; ++round) {
    // Every worker reads what another one wrote in the round before.
    std::vector<std::int64_t> next(values.size());
    workers.run([&](int worker) {
      const Range range = WorkerThreads::share(300, 3, worker);
      for (std::int64_t i = range.first; i < range.end; ++i) {
        next[static_cast<std::size_t>(i)] =
            values[static_cast<std::size_t>((i + 101) % 300)] + i % 7;
      }
    });
    values = next;
  }
  std::vector<std::int64_t> expected(300, 0);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> next(expected.size());
    for (std::size_t i = 0; i < 300; ++i)
      next[i] = expected[(i + 101) % 300] + static_cast<std::int64_t>(i % 7);
    expected = next;
  }
  CHECK(values == expected);
}

TEST_CASE("a team may rest between rounds and end at any time") {
  for (int i = 0; i < 20; ++i) {
    WorkerThreads workers(4);
    std::vector<int> ran(4, 0);
    if (i % 2 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than anybody spins
    if (i % 3 == 0) workers.run([&](int worker) { ran[static_cast<std::size_t>(worker)] += 1; });
    CHECK(ran == std::vector<int>(4, i % 3 == 0));
  }
}

TEST_CASE("shares are contiguous, complete and even") {
  for (std::int64_t items = 0; items < 40; ++items) {
    for (int workers = 1; workers < 9; ++workers) {
      std::int64_t next = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const Range range = WorkerThreads::share(items, workers, worker);
        CHECK(range.first == next);
        CHECK(range.end - range.first >= items / workers);
        CHECK(range.end - range.first <= (items + workers - 1) / workers);
        next = range.end;
      }
      CHECK(next == items);
    }
  }
}

TEST_CASE("the number of threads") {
  CHECK(WorkerThreads::usable_cpus() >= 1);
  CHECK(WorkerThreads(0).count() == WorkerThreads::usable_cpus());
  for (const int count : {-1, 1000000}) {
    try {
      WorkerThreads workers(count);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
    }
  }
}

}  // namespace
}  // namespace tinyloop
