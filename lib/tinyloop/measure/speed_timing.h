// SPDX-License-Identifier: Apache-2.0
// Times pieces of work alternating with measurements of the machine's limits, round after round, so
// that other load on the machine affects all alike. Knows no engine: work is a function.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tinyloop {

struct TimedWork {
  std::function<void()> run;
  std::function<void()> prepare;  // before each sample, not timed; may be empty
};

struct Timing {
  std::vector<double> samples;  // milliseconds of one run, in order of measurement
  std::int64_t runs = 1;        // per sample, which is their mean

  double median() const;  // the mean of the two middle ones if even
  double min() const;
  double max() const;
};

struct TimingOptions {
  std::int64_t repeats = 5;  // rounds: samples of each piece of work
  std::int64_t warm_up = 1;  // runs of each before, not timed
  double seconds = 0.0;      // no round but the first starts after this; 0: no limit
};

struct Timings {
  std::vector<Timing> work, limits;  // as given
};

// A round is: a limit, a piece of work, the next limit, the next piece of work, ... Each limit is
// measured at least once a round. Work that took less than 10 ms in its last warm-up run is run
// several times a sample; without warm-up each sample is one run. `progress` (may be empty) is
// called before each piece of work with the numbers done and total.
Timings time_in_turn(std::span<const TimedWork> work, std::span<const TimedWork> limits,
                     const TimingOptions& options,
                     const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace tinyloop
