// SPDX-License-Identifier: Apache-2.0
// The exit rules' sums, in double and in one order, so that a row's exit does not depend on the
// rows beside it.
#include "tinyloop/schedule/exit_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/parse_number.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

constexpr std::pair<ExitRule::Kind, std::string_view> kNames[] = {
    {ExitRule::Kind::gate, "gate"},
    {ExitRule::Kind::latent, "latent"},
    {ExitRule::Kind::kl, "kl"},
};

double relative_change(std::span<const float> now, std::span<const float> before) {
  double change = 0.0, size = 0.0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const double difference = static_cast<double>(now[i]) - static_cast<double>(before[i]);
    change += difference * difference;
    size += static_cast<double>(now[i]) * static_cast<double>(now[i]);
  }
  return std::sqrt(change) / std::sqrt(size);
}

std::vector<double> log_softmax(std::span<const float> logits) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += exact_exp(static_cast<double>(logit) - greatest);
  const double shift = greatest + exact_log(sum);
  std::vector<double> values;
  for (const float logit : logits) values.push_back(static_cast<double>(logit) - shift);
  return values;
}

double divergence(std::span<const double> before, std::span<const double> now) {
  double sum = 0.0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const double p = exact_exp(before[i]);
    if (p > 0.0) sum += p * (before[i] - now[i]);
  }
  return sum;
}

}  // namespace

ExitRule ExitRule::parse(std::string_view text, bool select_only) {
  ExitRule rule;
  rule.select_only = select_only;
  if (text.empty()) return rule;
  const std::string_view name = text.substr(0, text.find(':'));
  for (const auto& [kind, known] : kNames) {
    if (name == known) rule.kind = kind;
  }
  const std::string_view number = text.substr(std::min(name.size() + 1, text.size()));
  const auto threshold = parse_number<double>(number);
  rule.threshold = threshold.value_or(-1.0);
  if (rule.kind == Kind::none || !std::isfinite(rule.threshold) || rule.threshold < 0.0) {
    throw Error(ErrorKind::usage, "`exit`: '{}' is not gate:Q, latent:EPS or kl:EPS", text);
  }
  if (rule.kind == Kind::gate && rule.threshold > 1.0) {
    throw Error(ErrorKind::usage, "`exit`: the gate's threshold {} is a probability, at most 1",
                number);
  }
  return rule;
}

std::string ExitRule::identity() const {
  for (const auto& [known, name] : kNames) {
    if (known == kind) {
      return fmt::format("{}:{}{}", name, threshold, select_only ? " select" : "");
    }
  }
  return "";
}

void ExitRule::check(const ModelConfig& config) const {
  if (kind == Kind::gate && !config.exit_gate) {
    throw Error(ErrorKind::usage,
                "`exit` gate: this {} model has no exit gate; latent and kl need none",
                config.family);
  }
  if (kind == Kind::none && select_only) {
    throw Error(ErrorKind::usage, "`exit_select` needs `exit`: it says how to follow the rule");
  }
}

ExitWatch::Followed& ExitWatch::at(std::int32_t slot) {
  const auto index = static_cast<std::size_t>(slot);
  if (index >= rows_.size()) rows_.resize(index + 1);
  return rows_[index];
}

void ExitWatch::entered(std::span<const Row> rows) {
  for (const Row& row : rows) at(row.slot) = Followed();
  if (rule_.kind != ExitRule::Kind::latent || rows.empty()) return;
  const std::span<const float> states = forward_.states(rows);
  const std::size_t hidden = states.size() / rows.size();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::span<const float> state = states.subspan(r * hidden, hidden);
    at(rows[r].slot).state.assign(state.begin(), state.end());
  }
}

std::vector<bool> ExitWatch::passed(std::span<const Row> rows) {
  std::vector<bool> leaves(rows.size());
  if (rule_.kind == ExitRule::Kind::none || rows.empty()) return leaves;
  if (rule_.kind == ExitRule::Kind::gate) {
    const std::vector<float> gates = forward_.gates(rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      Followed& row = at(rows[r].slot);
      row.value += static_cast<double>(gates[r]) * row.survival;
      row.survival *= 1.0 - static_cast<double>(gates[r]);
      leaves[r] = row.value >= rule_.threshold;
    }
    return leaves;
  }
  std::vector<std::int32_t> all(rows.size());
  std::iota(all.begin(), all.end(), 0);
  const bool latent = rule_.kind == ExitRule::Kind::latent;
  const std::span<const float> values = latent ? forward_.states(rows) : forward_.leave(rows, all);
  const std::size_t width = values.size() / rows.size();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Followed& row = at(rows[r].slot);
    const std::span<const float> now = values.subspan(r * width, width);
    if (latent) {
      row.value = relative_change(now, row.state);
      row.state.assign(now.begin(), now.end());
    } else {
      std::vector<double> next = log_softmax(now);
      if (row.log_probability.empty()) {
        row.log_probability.assign(width, -exact_log(static_cast<double>(width)));
      }
      row.value = divergence(row.log_probability, next);
      row.log_probability = std::move(next);
    }
    leaves[r] = row.value < rule_.threshold;
  }
  return leaves;
}

}  // namespace tinyloop
