// SPDX-License-Identifier: Apache-2.0
// Measures whether speculation pays: plain decoding against other schedules on the same prompts,
// with runs interleaved and compared in pairs. The caller sets the verdict's threshold.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/schedule/speculation.h"

namespace tinyloop {

struct BenchOptions {
  std::vector<Speculation> speculations;  // one per arm, without plain
  double budget_seconds = 60.0;           // no further repeat starts after it
  std::int64_t repeats = 5;               // maximum, at least one
  std::int64_t max_tokens = 32;
  // The cost of a run; may be something other than wall-clock time.
  std::function<double(const DecodeStats&)> cost;
};

struct BenchArm {
  Speculation speculation;
  std::vector<double> costs;   // of each run: by repeat, then by prompt
  std::vector<double> ratios;  // plain's cost over this one's, in the same order
  std::vector<double> rates;   // tokens a second after the first one, in the same order
  DecodeStats totals;          // counts summed over the runs
  // Median of the ratios, and the quartiles as their spread; NaN for a single ratio, which has
  // none.
  double median = 0.0, low = 0.0, high = 0.0;
  double tokens_per_second = 0.0;  // median of the rates
  bool dropped = false;            // after some repeat, to keep within the budget

  // Faster than plain decoding in three of four pairs: a high median alone may be chance, as may a
  // single pair.
  bool steady() const { return low > 1.0; }
  bool pays(double threshold) const { return steady() && median > threshold; }
};

struct BenchReport {
  BenchArm plain;
  std::vector<BenchArm> arms;  // in the given order
  std::int64_t repeats = 0;    // of the arms that were not dropped
  // For each loop from the second: |x_r - x_{r-1}| over that of the previous loop, averaged over
  // the prompts' last positions.
  std::vector<double> update_ratios;

  const BenchArm& best() const;  // of those not dropped: steady arms first, then by median
};

// Throws Error(device) naming schedule and prompt if a stream differs from plain decoding's. Each
// prompt is read once; timing starts with the first token. Needs the rows and slots of every
// schedule and, for the update ratios, rows for the longest prompt (longer ones are cut).
BenchReport bench_speculation(Forward& forward, const SamplingOptions& sampling,
                              const StopRules& stop, std::span<const std::vector<TokenId>> prompts,
                              const BenchOptions& options);

// A sweep over draft loops and numbers of drafts for a number of loops.
std::vector<Speculation> speculation_sweep(std::int32_t loops);

}  // namespace tinyloop
