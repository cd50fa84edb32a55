// SPDX-License-Identifier: Apache-2.0
// Scoring and loop traces over the prefill schedule.
#include "tinyloop/measure/score.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "tinyloop/error.h"
#include "tinyloop/prompt/prefill.h"
#include "tinyloop/random.h"
#include "tinyloop/sampling/sampler.h"

namespace tinyloop {

namespace {

void check_length(const Forward& forward, std::span<const TokenId> ids) {
  if (ids.empty()) throw Error(ErrorKind::usage, "empty sequence");
  const std::int64_t context = forward.model().config().context;
  if (static_cast<std::int64_t>(ids.size()) > context) {
    throw Error(ErrorKind::usage, "prompt too long: {} ids exceed the model's context of {}",
                ids.size(), context);
  }
}

// Logits after position - 1, from which the id at `position` comes; named as Sampler does.
void check_finite(std::span<const float> logits, std::int64_t position) {
  for (const float logit : logits) {
    if (!std::isfinite(logit)) {
      throw Error(ErrorKind::device, "logits are not finite at position {}", position);
    }
  }
}

double norm(std::span<const double> x) {
  double sum = 0.0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double distance(std::span<const double> x, std::span<const double> y) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

std::vector<double> widened(std::span<const float> x) { return {x.begin(), x.end()}; }

}  // namespace

double Score::sum() const {
  double total = 0.0;
  for (const double value : log_probabilities) total += value;
  return total;
}

double Score::perplexity() const {
  using Limits = std::numeric_limits<double>;
  if (log_probabilities.empty()) return Limits::quiet_NaN();
  const double entropy = -sum() / static_cast<double>(log_probabilities.size());
  // The greatest double is exp of this.
  return entropy > 709.782712893384 ? Limits::infinity() : exact_exp(entropy);
}

Score score(Forward& forward, KvCache& cache, std::span<const TokenId> ids, std::int64_t chunk,
            const ScoreHooks& hooks) {
  check_length(forward, ids);
  const auto vocab = static_cast<std::size_t>(forward.model().config().vocab);
  const auto hidden = static_cast<std::size_t>(forward.model().config().hidden);
  const auto loops = static_cast<std::size_t>(forward.plan().loops);
  Score result;
  std::vector<float> states;  // [rows][loops][hidden] of the current chunk
  PrefillHooks inner;
  if (hooks.states) {
    inner.after_loop = [&](std::span<const Row> rows) {
      states.resize(rows.size() * loops * hidden);
      const auto loop = static_cast<std::size_t>(rows.front().loop - 1);
      const std::span<const float> now = forward.states(rows);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::copy_n(now.begin() + static_cast<std::ptrdiff_t>(r * hidden), hidden,
                    states.begin() + static_cast<std::ptrdiff_t>((r * loops + loop) * hidden));
      }
      if (loop + 1 < loops) return;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        hooks.states(std::span(states).subspan(r * loops * hidden, loops * hidden));
      }
    };
  }
  inner.all_logits = [&](std::int64_t first, std::span<const float> logits) {
    for (std::size_t r = 0; r * vocab < logits.size(); ++r) {
      const std::span<const float> row = logits.subspan(r * vocab, vocab);
      const auto position = first + static_cast<std::int64_t>(r);
      check_finite(row, position + 1);
      if (hooks.logits) hooks.logits(row);
      const auto next = static_cast<std::size_t>(position) + 1;
      if (next < ids.size()) result.log_probabilities.push_back(log_probability(row, ids[next]));
    }
  };
  prefill(forward, cache, ids, chunk, inner);
  return result;
}

std::vector<LoopTrace> trace_loops(Forward& forward, KvCache& cache, std::span<const TokenId> ids) {
  check_length(forward, ids);
  assert(static_cast<std::int64_t>(ids.size()) <= forward.max_rows());
  cache.reserve(static_cast<std::int64_t>(ids.size()));
  std::vector<Row> rows;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    rows.push_back({&cache, static_cast<std::int64_t>(i), ids[i], static_cast<std::int32_t>(i), 0});
  }
  const auto last = static_cast<std::int32_t>(rows.size()) - 1;
  const std::span<const Row> last_row(&rows[static_cast<std::size_t>(last)], 1);
  forward.enter(rows);
  std::vector<double> before = widened(forward.states(last_row));
  std::vector<LoopTrace> trace;
  double previous_change = 0.0;
  while (rows.front().loop < forward.plan().loops) {
    forward.pass(rows);
    LoopTrace step;
    step.loop = rows.front().loop;
    const std::vector<double> now = widened(forward.states(last_row));
    const double change = distance(now, before);
    step.relative_change = change / norm(now);
    if (previous_change > 0.0) step.update_ratio = change / previous_change;
    previous_change = change;
    before = now;
    if (forward.model().config().exit_gate) step.gate = forward.gates(last_row).front();
    const std::span<const float> logits = forward.leave(rows, {&last, 1});
    check_finite(logits, last + 1);
    step.best =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    step.probability = exact_exp(log_probability(logits, step.best));
    const double max_logit = logits[static_cast<std::size_t>(step.best)];
    double sum = 0.0, weighted = 0.0;
    for (const float logit : logits) {
      const double shifted = static_cast<double>(logit) - max_logit;
      sum += exact_exp(shifted);
      weighted += exact_exp(shifted) * shifted;
    }
    step.entropy = exact_log(sum) - weighted / sum;
    trace.push_back(step);
  }
  cache.commit(static_cast<std::int64_t>(ids.size()));
  return trace;
}

}  // namespace tinyloop
