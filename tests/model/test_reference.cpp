// SPDX-License-Identifier: Apache-2.0
// The reference model against the golden vectors: what the engine is measured against must itself
// be right. Nothing of the engine or of lib's readers takes part.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/checkpoint_folder.h"
#include "model/golden_files.h"
#include "model/reference_model.h"

namespace tinyloop {
namespace {

// The goldens are float64 results with RoPE angles in float32, rounded to float32. The reference
// has exact angles; what that changes is of the size of the float32 error that each golden states.
double bound(double float_error) { return 2e-5 + 2.0 * float_error; }

double greatest_difference(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double greatest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) greatest = std::max(greatest, std::fabs(a[i] - b[i]));
  return greatest;
}

ModelConfig case_config(const GoldenCase& golden) {
  ModelConfig config = read_checkpoint_config(golden.folder);
  if (golden.skip_loop_norm) {
    config.loop_norm = false;
    config.final_norm = true;
  }
  if (golden.looped) {
    config.prelude_layers = golden.looped->first;
    config.coda_layers = config.core_layers - golden.looped->last - 1;
    config.core_layers = golden.looped->last - golden.looped->first + 1;
    config.injection = Injection::relaxed;
    config.relaxed_alpha = golden.looped->alpha;
    config.relaxed_beta = golden.looped->beta;
  }
  return config;
}

struct Seen {  // how much was really compared
  int runs = 0, arrays = 0;
};

void check_run(const GoldenCase& golden, const GoldenRun& run, const ModelConfig& config,
               const ReferenceWeights& weights, Seen& seen) {
  INFO(run.name);
  ++seen.runs;
  const auto prompt = static_cast<std::int64_t>(run.prompt.size());
  ReferenceOptions options;
  options.loops = golden.loops;
  options.initial_states = golden.initial_states;
  options.shared_planes = golden.shared_planes;
  options.exit_threshold = golden.exit_threshold;
  if (golden.skip_compute) options.stops_from = prompt;
  // Attention is causal: one run over prompt and answer holds every greedy step.
  std::vector<TokenId> ids = run.prompt;
  ids.insert(ids.end(), run.greedy.begin(), run.greedy.end() - 1);
  options.chunks.assign(run.greedy.size(), 1);
  options.chunks.front() = prompt;
  const ReferenceResult result = run_reference(config, weights, ids, options);

  for (std::size_t step = 0; step < run.greedy.size(); ++step) {
    const auto position = prompt - 1 + static_cast<std::int64_t>(step);
    const std::span<const double> logits = result.logits_at(position);
    std::vector<double> sorted(logits.begin(), logits.end());
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    CHECK(greatest_id(logits) == run.greedy[step]);
    CHECK(std::fabs(sorted[0] - sorted[1] - run.margins[step]) <
          1e-5 + bound(std::max(run.float_error_decode, run.float_error_prompt)));
    if (!run.exit_greedy.empty()) {
      CHECK(result.exit_loops[static_cast<std::size_t>(position)] == run.exit_greedy[step]);
    }
  }
  for (const auto& [id, logit] : run.top_logits) {
    const double ours = result.logits_at(prompt - 1)[static_cast<std::size_t>(id)];
    CHECK(std::fabs(ours - logit) < 1e-5 + bound(run.float_error_prompt));
  }
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const std::span<const double> logits = result.logits;
  if (!run.prompt_logits.empty()) {
    ++seen.arrays;
    CHECK(greatest_difference(logits.first(run.prompt.size() * vocab), run.prompt_logits) <
          bound(run.float_error_prompt));
  }
  if (!run.decode_logits.empty()) {
    ++seen.arrays;
    CHECK(greatest_difference(logits.subspan((run.prompt.size() - 1) * vocab), run.decode_logits) <
          bound(run.float_error_decode));
  }
  if (!run.loop_states.empty()) {
    ++seen.arrays;
    for (std::int32_t loop = 0; loop < golden.loops; ++loop) {
      // Without a norm between loops the stored state of the last loop is the normed one.
      if (golden.skip_loop_norm && loop + 1 == golden.loops) continue;
      const auto hidden = static_cast<std::size_t>(config.hidden);
      const auto stored =
          std::span(run.loop_states).subspan(static_cast<std::size_t>(loop) * hidden, hidden);
      CHECK(greatest_difference(result.state_at(loop, prompt - 1), stored) <
            bound(run.float_error_prompt));
    }
  }
  for (std::size_t i = 0; i < run.exit_prompt.size(); ++i)
    CHECK(result.exit_loops[i] == run.exit_prompt[i]);
  for (std::size_t i = 0; i < run.gates.size(); ++i) {
    const auto loop = static_cast<std::int32_t>(i / run.prompt.size());
    const auto position = static_cast<std::int64_t>(i % run.prompt.size());
    CHECK(std::fabs(result.gate_at(loop, position) - run.gates[i]) < 2e-6);
  }
}

// The criteria that Huginn leaves by, which need states and logits after each loop.
void check_exit_criteria(const GoldenCase& golden, const GoldenRun& run, const ModelConfig& config,
                         const ReferenceWeights& weights) {
  INFO(run.name);
  const auto last = static_cast<std::int64_t>(run.prompt.size()) - 1;
  std::vector<double> state(static_cast<std::size_t>(config.hidden), 0.0);
  if (!golden.initial_states.empty()) {
    std::copy_n(golden.initial_states.begin() + last * config.hidden, config.hidden, state.begin());
  }
  std::vector<double> before(static_cast<std::size_t>(config.vocab), 1.0 / config.vocab);
  for (std::int32_t loop = 0; loop < golden.loops; ++loop) {
    ReferenceOptions options;
    options.loops = loop + 1;
    options.initial_states = golden.initial_states;
    const ReferenceResult result = run_reference(config, weights, run.prompt, options);
    const std::span<const double> now = result.state_at(loop, last);
    double change = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      change += (now[i] - state[i]) * (now[i] - state[i]);
      norm += now[i] * now[i];
    }
    state.assign(now.begin(), now.end());
    CHECK(std::fabs(std::sqrt(change / norm) - run.latent_changes[static_cast<std::size_t>(loop)]) <
          1e-5);

    std::vector<double> p(result.logits_at(last).begin(), result.logits_at(last).end());
    const double greatest = *std::max_element(p.begin(), p.end());
    double sum = 0.0, divergence = 0.0;
    for (double& x : p) sum += x = std::exp(x - greatest);
    for (std::size_t i = 0; i < p.size(); ++i) {
      p[i] /= sum;
      divergence += before[i] * std::log(before[i] / p[i]);
    }
    before = p;
    CHECK(divergence ==
          doctest::Approx(run.divergences[static_cast<std::size_t>(loop)]).epsilon(1e-5));
  }
}

TEST_CASE("the reference model computes the golden vectors") {
  for (const std::string& root : golden_roots()) {
    Seen seen;
    for (const GoldenCase& golden : read_golden_cases(root)) {
      const ModelConfig config = case_config(golden);
      const ReferenceWeights weights = read_checkpoint(golden.folder, config);
      for (const GoldenRun& run : golden.runs) {
        check_run(golden, run, config, weights, seen);
        if (!run.latent_changes.empty()) check_exit_criteria(golden, run, config, weights);
      }
    }
    INFO(root);
    CHECK(seen.runs >= 38);
    CHECK(seen.arrays >= 30);
  }
}

}  // namespace
}  // namespace tinyloop
