// SPDX-License-Identifier: Apache-2.0
// Measurements in turn: who runs when and how often, and what medians are. Nothing here depends on
// how long anything takes.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tinyloop/measure/speed_block.h"
#include "tinyloop/measure/speed_timing.h"

namespace tinyloop {
namespace {

TimedWork note(std::string& log, const char* name) {
  return {[&log, name] { log += name; }, {}};
}

}  // namespace

TEST_CASE("limits and work take turns, warm-up comes first") {
  std::string log;
  const std::vector<TimedWork> work = {note(log, "a"), note(log, "b"), note(log, "c"),
                                       note(log, "d")};
  const std::vector<TimedWork> limits = {note(log, "1"), note(log, "2"), note(log, "3")};
  const Timings cold = time_in_turn(work, limits, {.repeats = 2, .warm_up = 0}, {});
  CHECK(log == "1a2b3c1d2a3b1c2d");
  for (const Timing& timing : cold.work) CHECK(timing.samples.size() == 2);
  CHECK(cold.limits[0].samples.size() == 3);
  CHECK(cold.limits[1].samples.size() == 3);
  CHECK(cold.limits[2].samples.size() == 2);

  log.clear();
  time_in_turn({work.data(), 1}, limits, {.repeats = 2, .warm_up = 0}, {});
  CHECK(log == "123a123a");
  log.clear();
  time_in_turn({}, limits, {.repeats = 2, .warm_up = 0}, {});
  CHECK(log == "123123");
  log.clear();
  time_in_turn(work, {}, {.repeats = 2, .warm_up = 0}, {});
  CHECK(log == "abcdabcd");
}

TEST_CASE("warm-up and repeats are obeyed") {
  for (const std::int64_t warm_up : {0, 1, 3}) {
    for (const std::int64_t repeats : {1, 4}) {
      std::int64_t runs = 0, prepared = 0, shown = 0;
      const TimedWork work{[&] { ++runs; }, [&] { ++prepared; }};
      const Timings timings = time_in_turn({&work, 1}, {}, {.repeats = repeats, .warm_up = warm_up},
                                           [&](std::int64_t done, std::int64_t all) {
                                             CHECK(done == shown++);
                                             CHECK(all == warm_up + repeats);
                                           });
      const Timing& timing = timings.work.front();
      CHECK(static_cast<std::int64_t>(timing.samples.size()) == repeats);
      CHECK(runs == warm_up + repeats * timing.runs);
      CHECK(prepared == warm_up + repeats);
      if (warm_up == 0) CHECK(timing.runs == 1);
      CHECK(shown == warm_up + repeats);
    }
  }
}

TEST_CASE("a budget ends the rounds, but not before the first") {
  std::string log;
  const TimedWork work = note(log, "a"), limit = note(log, "1");
  const Timings timings =
      time_in_turn({&work, 1}, {&limit, 1}, {.repeats = 1000, .warm_up = 0, .seconds = 1e-12}, {});
  CHECK(log == "1a");
  CHECK(timings.work.front().samples.size() == 1);
}

TEST_CASE("medians") {
  const Timing odd{{5.0, 1.0, 9.0}, 1}, even{{4.0, 1.0, 2.0, 100.0}, 1};
  CHECK(odd.median() == 5.0);
  CHECK(even.median() == 3.0);
  CHECK(even.min() == 1.0);
  CHECK(even.max() == 100.0);
}

TEST_CASE("the slower of reading and multiplying binds") {
  // 1000 bytes a second from memory, 10000 from the cache, 2000 f32 and 8000 int8 operations.
  const std::vector<SpeedLimit> limits = {{Limit::memory, 500.0, {{600.0, 500.0, 400.0}, 1}},
                                          {Limit::cache, 1000.0, {{100.0}, 1}},
                                          {Limit::floats, 2000.0, {{1000.0}, 1}},
                                          {Limit::int8, 4000.0, {{500.0}, 1}}};
  SpeedItem item;
  item.timing = {{4000.0}, 1};
  item.work = {.weight_bytes = 900, .kv_bytes = 100, .float_ops = 500, .int8_ops = 1000};
  compare_with_limits(item, limits, 900, 999);
  CHECK(item.limit == Limit::memory);
  CHECK(item.limit_ms == doctest::Approx(1000.0));
  CHECK(item.share() == doctest::Approx(0.25));
  // All of it fits into the cache: 100 ms of reading, 250 + 125 ms of multiplying.
  compare_with_limits(item, limits, 900, 1001);
  CHECK(item.limit == Limit::floats);
  CHECK(item.limit_ms == doctest::Approx(375.0));
  item.work.float_ops = 0;
  compare_with_limits(item, limits, 900, 1001);
  CHECK(item.limit == Limit::int8);
  CHECK(item.limit_ms == doctest::Approx(125.0));
  item.work.int8_ops = 0;
  compare_with_limits(item, limits, 900, 1001);
  CHECK(item.limit == Limit::cache);
  CHECK(item.limit_ms == doctest::Approx(100.0));
}

}  // namespace tinyloop
