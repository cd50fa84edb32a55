// SPDX-License-Identifier: Apache-2.0
// When a row has looped enough: the rules of Ouro and Huginn for exiting before the last loop.
// Only decides; whether the remaining loops are skipped is the schedule's business.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/model/model_config.h"

namespace tinyloop {

struct ExitRule {
  enum class Kind {
    none,
    gate,    // at the first loop whose cumulative exit probability is at least the threshold (Ouro,
             // arXiv 2510.25741)
    latent,  // when |x_r - x_{r-1}| / |x_r| is below the threshold (Huginn, arXiv 2502.05171)
    kl,      // when KL(p_{r-1} || p_r) in nats is, p_0 being uniform (Huginn)
  };
  Kind kind = Kind::none;
  double threshold = 0.0;
  // All loops are computed and all keys and values are their own; only the state that goes to coda
  // and head is the exit's.
  bool select_only = false;

  // "gate:0.8", "latent:0.03", "kl:0.001" or "" (none); throws Error(usage).
  static ExitRule parse(std::string_view text, bool select_only);
  // The part of it in the identity of a cache: what parse() takes, with " select" behind it.
  std::string identity() const;
  // Throws Error(usage) if the model cannot follow the rule.
  void check(const ModelConfig& config) const;
};

// Follows rows from loop to loop, each by its slot.
class ExitWatch {
 public:
  ExitWatch(Forward& forward, const ExitRule& rule) : forward_(forward), rule_(rule) {}

  // After forward.enter(rows).
  void entered(std::span<const Row> rows);
  // After forward.pass(rows): which of them exit now. For kl it runs coda and head.
  std::vector<bool> passed(std::span<const Row> rows);
  // What passed() last compared with the threshold.
  double value(std::int32_t slot) const { return at(slot).value; }

 private:
  struct Followed {
    double value = 0.0;
    double survival = 1.0;                // gate: probability of not having exited yet
    std::vector<float> state;             // latent: before the last pass
    std::vector<double> log_probability;  // kl: before the last pass
  };
  Followed& at(std::int32_t slot);
  const Followed& at(std::int32_t slot) const { return rows_[static_cast<std::size_t>(slot)]; }

  Forward& forward_;
  ExitRule rule_;
  std::vector<Followed> rows_;  // by slot
};

}  // namespace tinyloop
