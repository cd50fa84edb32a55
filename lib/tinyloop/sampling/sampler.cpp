// SPDX-License-Identifier: Apache-2.0
// Logits to a token: bias, penalties, then the most probable one or Gumbel-max over the candidates
// that the filters leave. All arithmetic after the logits is double and our own (random.h), so that
// no libm has a say in the answer.
#include "tinyloop/sampling/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "tinyloop/error.h"
#include "tinyloop/random.h"

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

std::vector<double> adjusted(std::span<const float> logits, const SamplingOptions& options,
                             const History& history) {
  std::vector<double> values(logits.begin(), logits.end());
  for (const auto& [id, bias] : options.logit_bias) {
    double& value = values[static_cast<std::size_t>(id)];
    value = bias == kNever ? kNever : bounded(value + bias);
  }
  if (options.repetition_penalty != 1.0) {
    std::vector<bool> seen(values.size());
    for (const std::span<const TokenId> ids : {history.prompt, history.continuation}) {
      for (const TokenId id : ids) {
        assert(static_cast<std::size_t>(id) < seen.size());
        if (seen[static_cast<std::size_t>(id)]) continue;
        seen[static_cast<std::size_t>(id)] = true;
        double& value = values[static_cast<std::size_t>(id)];
        if (value == kNever) continue;
        value = bounded(value > 0.0 ? value / options.repetition_penalty
                                    : value * options.repetition_penalty);
      }
    }
  }
  if (options.presence_penalty != 0.0 || options.frequency_penalty != 0.0) {
    std::vector<std::int64_t> counts(values.size());
    for (const TokenId id : history.continuation) ++counts[static_cast<std::size_t>(id)];
    for (std::size_t id = 0; id < values.size(); ++id) {
      if (counts[id] == 0 || values[id] == kNever) continue;
      const double by_count = bounded(static_cast<double>(counts[id]) * options.frequency_penalty);
      values[id] = bounded(bounded(values[id] - options.presence_penalty) - by_count);
    }
  }
  return values;
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
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) {
      throw Error(ErrorKind::device, "logits are not finite at position {}: {} for id {}", position,
                  name_of_value(logits[id]), id);
    }
  }
  const std::vector<double> values = adjusted(logits, options_, history);
  const auto best =
      static_cast<TokenId>(std::max_element(values.begin(), values.end()) - values.begin());
  const double best_value = values[static_cast<std::size_t>(best)];
  if (best_value == kNever) {
    throw Error(ErrorKind::device, "`logit_bias` leaves no token to pick at position {}", position);
  }
  if (options_.temperature == 0.0 && count == 1) return {best};

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
