// SPDX-License-Identifier: Apache-2.0
// Tests of the fork-join team: everybody works once a round, the caller sees all of it, shares are
// fixed and complete.
#include <doctest/doctest.h>

#include <set>
#include <thread>
#include <vector>

#include "cpu/worker_threads.h"
#include "error.h"

namespace tinyloop {
namespace {

TEST_CASE("each worker works once a round, on its own thread") {
  for (const int count : {1, 2, 3, 5}) {
    WorkerThreads workers(count);
    CHECK(workers.count() == count);
    std::vector<std::thread::id> ids(static_cast<std::size_t>(count));
    workers.run(
        [&](int worker) { ids[static_cast<std::size_t>(worker)] = std::this_thread::get_id(); });
    CHECK(ids[0] == std::this_thread::get_id());
    CHECK(std::set(ids.begin(), ids.end()).size() == ids.size());
    const std::vector<std::thread::id> first = ids;
    workers.run(
        [&](int worker) { ids[static_cast<std::size_t>(worker)] = std::this_thread::get_id(); });
    CHECK(ids == first);
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
