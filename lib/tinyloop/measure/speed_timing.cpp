// SPDX-License-Identifier: Apache-2.0
// Rounds of samples; medians.
#include "tinyloop/measure/speed_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tinyloop/prompt/elapsed.h"

namespace tinyloop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleMs = 10.0;
constexpr double kMaxRuns = 1000.0;

double run_once(const TimedWork& work, std::int64_t runs) {
  if (work.prepare) work.prepare();
  const Clock::time_point start = Clock::now();
  for (std::int64_t i = 0; i < runs; ++i) work.run();
  return milliseconds_since(start) / static_cast<double>(runs);
}

}  // namespace

double Timing::median() const {
  std::vector<double> sorted = samples;
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Timing::min() const { return *std::ranges::min_element(samples); }

double Timing::max() const { return *std::ranges::max_element(samples); }

Timings time_in_turn(std::span<const TimedWork> work, std::span<const TimedWork> limits,
                     const TimingOptions& options,
                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const Clock::time_point start = Clock::now();
  const auto count = static_cast<std::int64_t>(work.size() + limits.size());
  const std::int64_t total = count * (options.warm_up + options.repeats);
  std::int64_t done = 0;
  const auto sample = [&](const TimedWork& piece, std::int64_t runs) {
    if (progress) progress(std::min(done++, total), total);
    return run_once(piece, runs);
  };
  Timings timings;
  const auto warm_up = [&](std::span<const TimedWork> pieces, std::vector<Timing>& to) {
    for (const TimedWork& piece : pieces) {
      Timing& timing = to.emplace_back();
      double ms = kSampleMs;
      for (std::int64_t i = 0; i < options.warm_up; ++i) ms = sample(piece, 1);
      timing.runs = static_cast<std::int64_t>(
          std::clamp(std::ceil(kSampleMs / std::max(ms, 1e-6)), 1.0, kMaxRuns));
    }
  };
  warm_up(limits, timings.limits);
  warm_up(work, timings.work);

  const auto measure = [&](const TimedWork& piece, Timing& timing) {
    timing.samples.push_back(sample(piece, timing.runs));
  };
  std::size_t next = 0;
  const auto measure_limits = [&](std::size_t some) {
    for (; some > 0; --some, next = (next + 1) % limits.size()) {
      measure(limits[next], timings.limits[next]);
    }
  };
  const std::size_t before_each =
      limits.empty() || work.empty() ? 0 : (limits.size() + work.size() - 1) / work.size();
  for (std::int64_t round = 0; round < options.repeats; ++round) {
    if (round > 0 && options.seconds > 0.0 && milliseconds_since(start) > 1000 * options.seconds) {
      break;
    }
    if (work.empty()) measure_limits(limits.size());
    for (std::size_t i = 0; i < work.size(); ++i) {
      measure_limits(before_each);
      measure(work[i], timings.work[i]);
    }
  }
  return timings;
}

}  // namespace tinyloop
