// SPDX-License-Identifier: Apache-2.0
// Logits to a token: bias, penalties, then the most probable one or Gumbel-max over the candidates
// that the filters leave. All arithmetic after the logits is double and our own (random.h), so that
// no libm has a say in the answer.
#include "tinyloop/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "tinyloop/error.h"
#include "tinyloop/random.h"
#include "tinyloop/sampling/candidate_scan.h"

namespace tinyloop {
namespace {

constexpr double kHuge = std::numeric_limits<double>::max();
constexpr double kNever = -std::numeric_limits<double>::infinity();

void require(bool holds, std::string_view option, double value, std::string_view expected) {
  if (!holds) throw Error(ErrorKind::usage, "{}: {} is not {}", option, value, expected);
}

// The sign of a NaN is an accident.
std::string name_of_value(float value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

// Keeps a finite logit finite under extreme penalties; only a bias may say "never".
double bounded(double value) { return std::clamp(value, -kHuge, kHuge); }

// Working memory of the thread, so that a token allocates nothing as long as the vocabulary.
struct Workspace {
  std::vector<double> values, weights;
  std::vector<std::int64_t> counts;  // zeros between calls
  std::vector<std::int32_t> buckets;
};

Workspace& workspace() {
  thread_local Workspace own;
  return own;
}

void adjust(std::span<const float> logits, const SamplingOptions& options, const History& history,
            Workspace& work) {
  std::vector<double>& values = work.values;
  values.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options.logit_bias) {
    double& value = values[static_cast<std::size_t>(id)];
    value = bias == kNever ? kNever : bounded(value + bias);
  }
  std::vector<std::int64_t>& counts = work.counts;
  counts.resize(values.size());
  const auto clear = [&](std::span<const TokenId> ids) {
    for (const TokenId id : ids) counts[static_cast<std::size_t>(id)] = 0;
  };
  if (options.repetition_penalty != 1.0) {
    for (const std::span<const TokenId> ids : {history.prompt, history.continuation}) {
      for (const TokenId id : ids) {
        assert(static_cast<std::size_t>(id) < values.size());
        if (counts[static_cast<std::size_t>(id)]++ > 0) continue;
        double& value = values[static_cast<std::size_t>(id)];
        if (value == kNever) continue;
        value = bounded(value > 0.0 ? value / options.repetition_penalty
                                    : value * options.repetition_penalty);
      }
    }
    clear(history.prompt);
    clear(history.continuation);
  }
  if (options.presence_penalty != 0.0 || options.frequency_penalty != 0.0) {
    for (const TokenId id : history.continuation) ++counts[static_cast<std::size_t>(id)];
    for (const TokenId id : history.continuation) {
      std::int64_t& count = counts[static_cast<std::size_t>(id)];
      double& value = values[static_cast<std::size_t>(id)];
      if (count == 0 || value == kNever) continue;
      const double by_count = bounded(static_cast<double>(count) * options.frequency_penalty);
      value = bounded(bounded(value - options.presence_penalty) - by_count);
      count = 0;
    }
    clear(history.continuation);
  }
}

void require_finite(std::span<const float> logits, std::int64_t position) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t bad = 0;
  for (const float logit : logits) {
    bad |=
        static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(logit) & kExponent) == kExponent);
  }
  if (bad == 0) return;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) continue;
    throw Error(ErrorKind::device, "logits are not finite at position {}: {} for id {}", position,
                name_of_value(logits[id]), id);
  }
}

// The first of the largest.
std::size_t best_of(std::span<const double> values) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes;
  lanes.fill(kNever);
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  double best = *std::max_element(lanes.begin(), lanes.end());
  for (; i < values.size(); ++i) best = std::max(best, values[i]);
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), best) - values.begin());
}

}  // namespace

void validate(const SamplingOptions& options, std::int64_t vocab) {
  require(options.temperature >= 0.0 && options.temperature <= kHuge, "`temperature`",
          options.temperature, "0 or a positive number");
  require(options.top_k >= 0, "`top_k`", static_cast<double>(options.top_k),
          "0 or a positive number");
  require(options.top_p > 0.0 && options.top_p <= 1.0, "`top_p`", options.top_p,
          "above 0 and at most 1");
  require(options.min_p >= 0.0 && options.min_p <= 1.0, "`min_p`", options.min_p, "from 0 to 1");
  require(options.repetition_penalty > 0.0 && options.repetition_penalty <= kHuge,
          "`repetition_penalty`", options.repetition_penalty, "a positive number");
  require(std::isfinite(options.presence_penalty), "`presence_penalty`", options.presence_penalty,
          "a finite number");
  require(std::isfinite(options.frequency_penalty), "`frequency_penalty`",
          options.frequency_penalty, "a finite number");
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0) throw Error(ErrorKind::usage, "`logit_bias`: id {} is negative", id);
    if (id >= vocab) {
      throw Error(ErrorKind::usage, "`logit_bias`: id {} is not below {}", id, vocab);
    }
    require(bias <= kHuge, "`logit_bias`", bias, "a finite number or -inf");
  }
}

struct Sampler::Choice {
  TokenId id;
  double value;
  // The order everywhere: greater value first, among equals the lower id.
  bool operator<(const Choice& other) const {
    return value > other.value || (value == other.value && id < other.id);
  }
};

namespace {

// The k best, best first.
template <typename Choice>
std::vector<Choice> best_first(const std::vector<Choice>& choices, std::size_t k) {
  std::vector<Choice> best(std::min(k, choices.size()));
  std::partial_sort_copy(choices.begin(), choices.end(), best.begin(), best.end());
  return best;
}

template <typename Choice>
std::vector<TokenId> ids_of(const std::vector<Choice>& choices) {
  std::vector<TokenId> ids;
  for (const Choice& choice : choices) ids.push_back(choice.id);
  return ids;
}

}  // namespace

Sampler::Sampler(SamplingOptions options, std::int64_t vocab)
    : options_(std::move(options)), vocab_(vocab) {
  validate(options_, vocab_);
}

TokenId Sampler::pick(std::span<const float> logits, const History& history,
                      std::int64_t position) const {
  return ranked(logits, history, position, 1).front();
}

std::vector<TokenId> Sampler::ranked(std::span<const float> logits, const History& history,
                                     std::int64_t position, std::size_t count) const {
  assert(static_cast<std::int64_t>(logits.size()) == vocab_);
  require_finite(logits, position);
  Workspace& work = workspace();
  adjust(logits, options_, history, work);
  const std::vector<double>& values = work.values;
  const auto best = static_cast<TokenId>(best_of(values));
  const double best_value = values[static_cast<std::size_t>(best)];
  if (best_value == kNever) {
    throw Error(ErrorKind::device, "`logit_bias` leaves no token to pick at position {}", position);
  }
  if (options_.temperature == 0.0 && count == 1) return {best};
  if (can_scan(count)) {
    if (auto ids = scanned(values, best, position, count)) return std::move(*ids);
  }

  std::vector<Choice> choices;
  choices.reserve(values.size());
  for (std::size_t id = 0; id < values.size(); ++id) {
    if (values[id] != kNever) choices.push_back({static_cast<TokenId>(id), values[id]});
  }
  if (options_.temperature == 0.0) return ids_of(best_first(choices, count));
  const auto top_k =
      options_.top_k == 0 ? choices.size() : static_cast<std::size_t>(options_.top_k);
  if (top_k < choices.size() || options_.top_p < 1.0) choices = best_first(choices, top_k);
  return drawn(std::move(choices), best_value, position, count);
}

std::int64_t Sampler::candidates_needed() const {
  if (!options_.logit_bias.empty() || options_.repetition_penalty != 1.0 ||
      options_.presence_penalty != 0.0 || options_.frequency_penalty != 0.0) {
    return 0;
  }
  if (options_.temperature == 0.0) return 1;
  return options_.top_k < vocab_ ? options_.top_k : 0;
}

TokenId Sampler::pick(std::span<const TokenLogit> best, std::int64_t position) const {
  assert(!best.empty());
  std::vector<Choice> choices;
  for (const TokenLogit& candidate : best) {
    choices.push_back({candidate.id, static_cast<double>(candidate.logit)});
  }
  if (options_.temperature == 0.0) return choices.front().id;
  const double best_value = choices.front().value;
  return drawn(std::move(choices), best_value, position, 1).front();
}

// What top-p and min-p leave of the choices that top-k left, drawn by Gumbel-max; best first where
// top-p is on.
std::vector<TokenId> Sampler::drawn(std::vector<Choice> choices, double best_value,
                                    std::int64_t position, std::size_t count) const {
  // Relative to the best, so that no temperature can overflow: the best is 0, all others are below,
  // at worst -infinity.
  const auto scaled = [&](const Choice& choice) {
    return (choice.value - best_value) / options_.temperature;
  };
  if (options_.top_p < 1.0) {
    std::vector<double> sums;  // of the probabilities times a common factor, best first
    sums.reserve(choices.size());
    double sum = 0.0;
    for (const Choice& choice : choices) sums.push_back(sum += exact_exp(scaled(choice)));
    const auto enough = std::lower_bound(sums.begin(), sums.end(), options_.top_p * sum);
    choices.resize(std::min(static_cast<std::size_t>(enough - sums.begin()) + 1, choices.size()));
  }
  if (options_.min_p > 0.0) {
    std::erase_if(choices,
                  [&](const Choice& choice) { return exact_exp(scaled(choice)) < options_.min_p; });
  }
  for (Choice& choice : choices) {
    choice.value = scaled(choice) + gumbel(options_.seed, position, choice.id);
  }
  return ids_of(best_first(choices, count));
}

// Where all ids are candidates, most of them cannot win, and bounds say so.
bool Sampler::can_scan(std::size_t count) const {
  constexpr std::size_t kMaxCount = 64;
  return options_.temperature > 1e-100 && options_.temperature < 1e100 && count <= kMaxCount &&
         (options_.top_k == 0 || options_.top_k >= vocab_);
}

// The same as drawn() from all choices; no value where only sorting them can tell.
std::optional<std::vector<TokenId>> Sampler::scanned(std::span<const double> values, TokenId best,
                                                     std::int64_t position,
                                                     std::size_t count) const {
  static const ScanSet set = available_scan_sets().back();
  const double best_value = values[static_cast<std::size_t>(best)];
  const double temperature = options_.temperature;
  ScanLimits limits{best_value, 1.0 / temperature, kNever, kNever, -kHuge};
  std::optional<Choice> cut;
  if (options_.top_p < 1.0) {
    cut = top_p_cut(values, best_value);
    if (!cut) return std::nullopt;
    limits.lowest_value = cut->value;
  }
  // Below the margin exact_exp() is below min_p whatever it rounds to.
  if (options_.min_p > 1e-300) limits.lowest_scaled = exact_log(options_.min_p) - 1e-6;

  std::vector<Choice> winners;  // best first, at most `count`
  const auto consider = [&](TokenId id) {
    const double value = values[static_cast<std::size_t>(id)];
    if (value == kNever || (cut && *cut < Choice{id, value})) return;
    const double scaled = (value - best_value) / temperature;
    if (options_.min_p > 0.0 && exact_exp(scaled) < options_.min_p) return;
    const Choice choice{id, scaled + gumbel(options_.seed, position, id)};
    const auto place = std::lower_bound(winners.begin(), winners.end(), choice);
    if (place == winners.end() && winners.size() == count) return;
    winners.insert(place, choice);
    if (winners.size() > count) winners.pop_back();
    if (winners.size() == count) limits.lowest_total = winners.back().value;
  };
  consider(best);
  std::array<std::uint32_t, kScanBlock> high{};
  for (std::size_t first = 0; first < values.size(); first += kScanBlock) {
    const auto block = values.subspan(first, std::min(kScanBlock, values.size() - first));
    noise_high_words(set, options_.seed, position, static_cast<std::uint32_t>(first), high);
    if (!any_may_count(set, block, high, limits)) continue;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const auto id = static_cast<TokenId>(first + i);
      if (id == best || !any_may_count(ScanSet::plain, block.subspan(i, 1),
                                       std::span(high).subspan(i, 1), limits)) {
        continue;
      }
      consider(id);
    }
  }
  return ids_of(winners);
}

// The last choice that top-p keeps. The sums of drawn() are known within a slack without sorting:
// what lies well above the cut is added up in buckets, and only the bucket of the cut is sorted. No
// value where the slack leaves it open.
std::optional<Sampler::Choice> Sampler::top_p_cut(std::span<const double> values,
                                                  double best_value) const {
  static const ScanSet set = available_scan_sets().back();
  constexpr std::size_t kBuckets = 2048;
  constexpr double kRange = 32.0;  // of scaled values; what is below goes to the last bucket
  const double per_degree = 1.0 / options_.temperature;
  std::vector<double>& weights = workspace().weights;
  weights.resize(values.size());
  approximate_weights(set, values, best_value, per_degree, weights);
  // Ids that can never be picked weigh nothing: their exponential is the least there is.
  std::array<double, 8> low;
  low.fill(best_value);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i] == kNever ? best_value : values[i];
    low[i % 8] = value < low[i % 8] ? value : low[i % 8];
  }
  const double lowest = *std::min_element(low.begin(), low.end());
  const double range = std::min(kRange, (best_value - lowest) * per_degree);
  if (!(range > 0.0)) return std::nullopt;
  const double per_bucket = static_cast<double>(kBuckets) / range * per_degree;
  std::vector<std::int32_t>& buckets = workspace().buckets;
  buckets.resize(values.size());
  for (std::size_t id = 0; id < values.size(); ++id) {
    const double place = (best_value - values[id]) * per_bucket;
    const double last = static_cast<double>(kBuckets - 1);
    buckets[id] = static_cast<std::int32_t>(place < last ? place : last);
  }
  std::array<double, kBuckets> sums{};
  for (std::size_t id = 0; id < values.size(); ++id) {
    sums[static_cast<std::size_t>(buckets[id])] += weights[id];
  }
  double total = 0.0;
  for (const double sum : sums) total += sum;
  const double slack = 2.0 * total * (1e-11 + static_cast<double>(values.size()) * 0x1p-51);
  const double threshold = options_.top_p * total;
  double running = 0.0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    if (running + sums[bucket] < threshold - slack) {
      running += sums[bucket];
      continue;
    }
    std::vector<Choice> members;
    for (std::size_t id = 0; id < values.size(); ++id) {
      if (buckets[id] == static_cast<std::int32_t>(bucket) && values[id] != kNever) {
        members.push_back({static_cast<TokenId>(id), values[id]});
      }
    }
    std::sort(members.begin(), members.end());
    for (const Choice& member : members) {
      running += weights[static_cast<std::size_t>(member.id)];
      if (running >= threshold + slack) return member;
      if (running >= threshold - slack) return std::nullopt;
    }
  }
  return std::nullopt;
}

double log_probability(std::span<const float> logits, TokenId id) {
  double greatest = kNever;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      throw Error(ErrorKind::device, "logits are not finite: {} for id {}",
                  name_of_value(logits[i]), i);
    }
    greatest = std::max(greatest, static_cast<double>(logits[i]));
  }
  double sum = 0.0;
  for (const float logit : logits) sum += exact_exp(static_cast<double>(logit) - greatest);
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - greatest - exact_log(sum);
}

}  // namespace tinyloop
