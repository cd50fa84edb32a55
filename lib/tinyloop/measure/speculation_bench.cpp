// SPDX-License-Identifier: Apache-2.0
// The measuring loop and its figures.
#include "tinyloop/measure/speculation_bench.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>

#include "tinyloop/error.h"
#include "tinyloop/measure/score.h"
#include "tinyloop/prompt/prompt.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop {
namespace {

using Clock = std::chrono::steady_clock;

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto index = static_cast<std::size_t>(at);
  const double above = values[std::min(index + 1, values.size() - 1)];
  return values[index] + (at - static_cast<double>(index)) * (above - values[index]);
}

void add(DecodeStats& sum, const DecodeStats& one) {
  sum.generated += one.generated;
  sum.passes += one.passes;
  sum.rows += one.rows;
  sum.drafted += one.drafted;
  sum.verified += one.verified;
  sum.accepted += one.accepted;
  sum.undrafted += one.undrafted;
  sum.decode_ms += one.decode_ms;
}

// Tokens after the first one, which the prompt gives, a second.
double rate(const DecodeStats& stats) {
  return stats.decode_ms > 0.0 ? 1000.0 * static_cast<double>(stats.generated - 1) / stats.decode_ms
                               : 0.0;
}

class Bench {
 public:
  Bench(Forward& forward, const SamplingOptions& sampling, const StopRules& stop,
        std::span<const std::vector<TokenId>> prompts, const BenchOptions& options)
      : forward_(forward),
        sampler_(sampling, forward.model().config().vocab),
        stop_(stop),
        prompts_(prompts),
        options_(options) {
    stop_.max_tokens = options.max_tokens;
    for (const std::vector<TokenId>& prompt : prompts) {
      measure_updates(prompt);
      read_.push_back(read_prompt(forward, prompt));
    }
    for (double& ratio : report_.update_ratios) ratio /= static_cast<double>(prompts.size());
    for (const Speculation& speculation : options.speculations) {
      report_.arms.emplace_back();
      report_.arms.back().speculation = speculation;
    }
  }

  BenchReport run() {
    const Clock::time_point start = Clock::now();
    run_once(Speculation(), 0);  // warm-up
    const auto seconds = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    while (report_.repeats < options_.repeats &&
           (report_.repeats == 0 || seconds() < options_.budget_seconds)) {
      // A first repeat over all arms that would take all of the budget ends with fewer prompts.
      for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
        if (prompt > 0 && report_.repeats == 0 && seconds() > options_.budget_seconds / 2) break;
        measure(prompt);
      }
      ++report_.repeats;
      drop_slow_arms(options_.budget_seconds - seconds());
    }
    for (BenchArm& arm : report_.arms) {
      arm.median = quantile(arm.ratios, 0.5);
      // One pair has no spread.
      const bool spread = arm.ratios.size() > 1;
      constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
      arm.low = spread ? quantile(arm.ratios, 0.25) : kNone;
      arm.high = spread ? quantile(arm.ratios, 0.75) : kNone;
      arm.tokens_per_second = quantile(arm.rates, 0.5);
    }
    report_.plain.median = report_.plain.low = report_.plain.high = 1.0;
    report_.plain.tokens_per_second = quantile(report_.plain.rates, 0.5);
    return std::move(report_);
  }

 private:
  void measure_updates(std::span<const TokenId> prompt) {
    KvCache cache(forward_.ops(), forward_.plan());
    const auto max_rows = static_cast<std::size_t>(std::min(forward_.max_rows(), forward_.slots()));
    const std::vector<LoopTrace> trace =
        trace_loops(forward_, cache, prompt.first(std::min(prompt.size(), max_rows)));
    report_.update_ratios.resize(trace.size() - 1);
    for (std::size_t i = 1; i < trace.size(); ++i) {
      report_.update_ratios[i - 1] += trace[i].update_ratio;
    }
  }

  Answer run_once(const Speculation& speculation, std::size_t prompt) {
    DecodeRequest request;
    request.stop = stop_;
    request.hash_logits = true;
    return generate(forward_, read_[prompt].fork(), sampler_, request, speculation);
  }

  double cost(const DecodeStats& stats) const {
    return options_.cost ? options_.cost(stats) : stats.decode_ms;
  }

  // Plain decoding and every arm on one prompt, one after another.
  void measure(std::size_t prompt) {
    const Answer plain = run_once(Speculation(), prompt);
    const double plain_cost = cost(plain.stats);
    report_.plain.costs.push_back(plain_cost);
    report_.plain.ratios.push_back(1.0);
    report_.plain.rates.push_back(rate(plain.stats));
    add(report_.plain.totals, plain.stats);
    for (BenchArm& arm : report_.arms) {
      if (arm.dropped) continue;
      const Answer answer = run_once(arm.speculation, prompt);
      if (answer.tokens != plain.tokens || answer.stats.logits_hash != plain.stats.logits_hash) {
        throw Error(ErrorKind::device, "{}: the stream of prompt {} differs from plain decoding",
                    arm.speculation.name(), prompt + 1);
      }
      arm.costs.push_back(cost(answer.stats));
      arm.rates.push_back(rate(answer.stats));
      // A stream that ends with its first token says nothing about speed.
      arm.ratios.push_back(arm.costs.back() > 0.0 ? plain_cost / arm.costs.back() : 1.0);
      add(arm.totals, answer.stats);
    }
  }

  // Where two more repeats of all arms would not fit in the seconds left, the slower half goes; but
  // one repeat does not tell near neighbours apart, so three arms stay.
  void drop_slow_arms(double left) {
    std::vector<BenchArm*> ranked;
    for (BenchArm& arm : report_.arms) {
      if (!arm.dropped) ranked.push_back(&arm);
    }
    const auto median = [](const BenchArm* arm) { return quantile(arm->ratios, 0.5); };
    std::stable_sort(ranked.begin(), ranked.end(), [&](const BenchArm* one, const BenchArm* other) {
      return median(one) > median(other);
    });
    const auto seconds_a_repeat = [&](const BenchArm& arm) {
      return arm.totals.decode_ms / 1000.0 * static_cast<double>(prompts_.size()) /
             static_cast<double>(arm.costs.size());
    };
    double needed = seconds_a_repeat(report_.plain);
    for (const BenchArm* arm : ranked) needed += seconds_a_repeat(*arm);
    if (2.0 * needed <= left) return;
    const std::size_t kept = std::max<std::size_t>(3, (ranked.size() + 1) / 2);
    for (std::size_t i = kept; i < ranked.size(); ++i) ranked[i]->dropped = true;
  }

  Forward& forward_;
  Sampler sampler_;
  StopRules stop_;
  std::span<const std::vector<TokenId>> prompts_;
  BenchOptions options_;
  std::vector<Prompt> read_;
  BenchReport report_;
};

}  // namespace

const BenchArm& BenchReport::best() const {
  const BenchArm* found = nullptr;
  for (const BenchArm& arm : arms) {
    if (arm.dropped) continue;
    const auto rank = [](const BenchArm& one) { return std::pair(one.steady(), one.median); };
    if (found == nullptr || rank(arm) > rank(*found)) found = &arm;
  }
  assert(found != nullptr);
  return *found;
}

BenchReport bench_speculation(Forward& forward, const SamplingOptions& sampling,
                              const StopRules& stop, std::span<const std::vector<TokenId>> prompts,
                              const BenchOptions& options) {
  assert(!prompts.empty() && !options.speculations.empty());
  return Bench(forward, sampling, stop, prompts, options).run();
}

std::vector<Speculation> speculation_sweep(std::int32_t loops) {
  std::vector<Speculation> sweep;
  for (std::int32_t d = 1; d == 1 || d <= loops / 2; d *= 2) {
    Speculation speculation;
    speculation.draft_loops = d;
    speculation.kind = Speculation::Kind::wavefront;
    sweep.push_back(speculation);
    speculation.kind = Speculation::Kind::block;
    for (const std::int32_t k : {2, 4, 8}) {
      speculation.drafts = k;
      sweep.push_back(speculation);
    }
    speculation.kind = Speculation::Kind::tree;
    sweep.push_back(speculation);
  }
  if (loops > 2) sweep.push_back(Speculation::parse("wavefront:d=1+2"));
  return sweep;
}

}  // namespace tinyloop
