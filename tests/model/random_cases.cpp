// SPDX-License-Identifier: Apache-2.0
// Random settings: what a run can be asked for, in shares that make the rare ones meet.
#include "model/random_cases.h"

#include <cmath>

namespace tinyloop {

ExitRule random_exit(Dice& dice, const ModelConfig& config) {
  ExitRule rule;
  if (!dice.one_in(3)) return rule;
  rule.kind = static_cast<ExitRule::Kind>(dice.from(config.exit_gate ? 1 : 2, 3));
  const double gate[] = {0.3, 0.6, 0.9}, latent[] = {0.1, 0.3, 0.8}, kl[] = {0.05, 0.3, 2.0};
  const auto which = dice.below(3);
  rule.threshold = rule.kind == ExitRule::Kind::gate     ? gate[which]
                   : rule.kind == ExitRule::Kind::latent ? latent[which]
                                                         : kl[which];
  rule.select_only = dice.one_in(3);
  return rule;
}

SamplingOptions random_sampling(Dice& dice, const ModelConfig& config) {
  SamplingOptions options;
  options.seed = dice.below(1000);
  options.temperature = dice.one_in(3) ? 0.0 : 0.2 * dice.from(1, 7);
  options.top_k = dice.one_in(3) ? 0 : dice.from(1, 20);
  if (dice.one_in(3)) options.top_p = 0.1 * dice.from(3, 9);
  if (dice.one_in(4)) options.min_p = 0.05;
  if (dice.one_in(4)) options.repetition_penalty = 1.3;
  if (dice.one_in(4)) options.presence_penalty = 0.7;
  if (dice.one_in(4)) options.frequency_penalty = 0.4;
  if (dice.one_in(4)) options.logit_bias[dice.from(0, config.vocab - 1)] = 2.0;
  if (dice.one_in(6)) options.logit_bias[0] = -INFINITY;
  return options;
}

StopRules random_stop(Dice& dice, const ModelConfig& config) {
  StopRules rules;
  const auto id = [&] { return dice.from(0, config.vocab - 1); };
  rules.max_tokens = dice.one_in(10) ? dice.from(0, 2) : dice.from(3, 40);
  while (dice.one_in(3)) rules.end_ids.push_back(id());
  while (dice.one_in(3)) rules.sequences.push_back({id()});
  while (dice.one_in(3)) rules.sequences.push_back({id(), id()});
  return rules;
}

}  // namespace tinyloop
