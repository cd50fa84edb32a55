// SPDX-License-Identifier: Apache-2.0
// Early exits and shared K/V slots against the golden vectors and the reference model. That
// schedules agree with each other about them is tested in test_schedules.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "model/checkpoint_folder.h"
#include "model/engine_runs.h"
#include "model/golden_files.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/error.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/schedule/decode.h"
#include "tinyloop/schedule/live_rows.h"

namespace tinyloop {
namespace {

double bound(double float_error) { return std::min(2e-3, 2e-5 + 10.0 * float_error); }

template <typename T>
double greatest_difference(std::span<const T> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double greatest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    greatest = std::max(greatest, std::fabs(static_cast<double>(a[i]) - b[i]));
  }
  return greatest;
}

InitialStates initial_states(const GoldenCase& golden, const ModelConfig& config) {
  std::string text = golden.initial_states_file;
  if (text.empty() && config.initial_state == InitialState::free) text = "zero";
  return InitialStates::parse(text, config);
}

Model import(const GoldenCase& golden, const TemporaryFolder& folder) {
  ImportOptions options;
  options.looped = golden.looped;
  const std::string path = folder.file("model.tinyloop");
  import_checkpoint(golden.folder, path, options);
  return Model::open(path);
}

struct Seen {
  int runs = 0, logits = 0, criteria = 0;
};

void check_generation(const GoldenCase& golden, const GoldenRun& run, const Model& model, Ops& ops,
                      Seen& seen) {
  const LoopPlan plan = make_loop_plan(model.config(), golden.loops, 0, StorageMode::f32);
  Forward forward(model, ops, plan, initial_states(golden, model.config()), 64, 64);
  std::vector<float> logits;
  DecodeRequest request;
  request.stop.max_tokens = std::ssize(run.greedy);
  request.shared_planes = golden.shared_planes;
  if (golden.exit_threshold) {
    request.exit.kind = ExitRule::Kind::gate;
    request.exit.threshold = *golden.exit_threshold;
    request.exit.select_only = !golden.skip_compute;
  }
  request.picked_from = [&](std::span<const float> now) {
    logits.insert(logits.end(), now.begin(), now.end());
  };
  SamplingOptions greedy;
  greedy.temperature = 0.0;
  const Answer answer =
      decode(forward, read_prompt(forward, run.prompt, {}, options_for(request.exit)),
             Sampler(greedy, model.config().vocab), request);
  CHECK(answer.tokens == run.greedy);
  std::int64_t saved = 0;
  if (!run.exit_greedy.empty()) {
    std::vector<std::int64_t> exits(static_cast<std::size_t>(plan.loops));
    for (const std::int32_t loop : run.exit_greedy) ++exits[static_cast<std::size_t>(loop)];
    CHECK(answer.stats.exits == exits);
    for (std::size_t i = 1; i < run.exit_greedy.size(); ++i) {
      saved += plan.loops - 1 - run.exit_greedy[i];
    }
  }
  CHECK(answer.stats.loops_saved == (golden.skip_compute ? saved : 0));
  if (!run.decode_logits.empty()) {
    ++seen.logits;
    CHECK(greatest_difference<float>(logits, run.decode_logits) <
          bound(std::max(run.float_error_decode, run.float_error_prompt)));
  }
}

// All positions of the prompt in one chunk, each leaving where the rule says.
void check_prompt(const GoldenCase& golden, const GoldenRun& run, const Model& model, Ops& ops,
                  Seen& seen) {
  const ModelConfig& config = model.config();
  const LoopPlan plan = make_loop_plan(config, golden.loops, 0, StorageMode::f32);
  const auto count = static_cast<std::int32_t>(run.prompt.size());
  Forward forward(model, ops, plan, initial_states(golden, config), count, 2 * count);
  KvCache cache(ops, plan);
  cache.reserve(count);
  ExitRule rule{ExitRule::Kind::gate, golden.exit_threshold.value_or(2.0), true};
  if (!config.exit_gate) rule = ExitRule{ExitRule::Kind::latent, 0.0, true};
  DecodeStats stats;
  LiveRows live(forward, rule, stats, count);
  ExitWatch latent(forward, {ExitRule::Kind::latent, 0.0, true});
  ExitWatch kl(forward, {ExitRule::Kind::kl, 0.0, true});
  std::vector<LiveRow> rows;
  for (std::int32_t i = 0; i < count; ++i) {
    rows.push_back(live.at({&cache, i, run.prompt[static_cast<std::size_t>(i)], i, 0}));
  }
  live.enter(rows);
  std::vector<Row> plain;
  for (const LiveRow& row : rows) plain.push_back(row.row);
  latent.entered(plain);
  kl.entered(plain);
  Doubles changes, divergences, gates;
  while (!rows.back().done) {
    live.pass(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) plain[i] = rows[i].row;
    if (config.exit_gate) {
      const std::vector<float> now = forward.gates(plain);
      gates.insert(gates.end(), now.begin(), now.end());
    }
    latent.passed(plain);
    kl.passed(plain);
    changes.push_back(latent.value(count - 1));
    divergences.push_back(kl.value(count - 1));
  }
  if (!run.latent_changes.empty()) {
    ++seen.criteria;
    CHECK(greatest_difference<double>(changes, run.latent_changes) < 1e-4);
  }
  if (!run.divergences.empty()) {
    ++seen.criteria;
    CHECK(greatest_difference<double>(divergences, run.divergences) < 5e-4);
  }
  if (!run.gates.empty()) CHECK(greatest_difference<double>(gates, run.gates) < 1e-4);
  if (!golden.exit_threshold) return;
  for (std::size_t i = 0; i < run.exit_prompt.size(); ++i) {
    CHECK(rows[i].exit_loops == run.exit_prompt[i] + 1);
  }
  if (run.prompt_logits.empty()) return;
  ++seen.logits;
  CHECK(greatest_difference<float>(live.leave(rows), run.prompt_logits) <
        bound(run.float_error_prompt));
}

TEST_CASE("golden vectors with exit thresholds, skipped loops and shared slots") {
  for (const std::string& root : golden_roots()) {
    INFO(root);
    Seen seen;
    const TemporaryFolder folder;
    const auto ops = cpu();
    for (const GoldenCase& golden : read_golden_cases(root)) {
      if (golden.plain() || golden.skip_loop_norm) continue;
      const Model model = import(golden, folder);
      for (const GoldenRun& run : golden.runs) {
        INFO(run.name);
        ++seen.runs;
        check_generation(golden, run, model, *ops, seen);
        if (golden.exit_threshold) check_prompt(golden, run, model, *ops, seen);
      }
    }
    CHECK(seen.runs >= 10);
    CHECK(seen.logits >= 2);
  }
}

TEST_CASE("golden values of the exit rules") {
  for (const std::string& root : golden_roots()) {
    INFO(root);
    Seen seen;
    const TemporaryFolder folder;
    const auto ops = cpu();
    for (const GoldenCase& golden : read_golden_cases(root)) {
      if (!golden.plain() || golden.skip_loop_norm) continue;
      if (golden.runs.front().latent_changes.empty() && golden.runs.front().gates.empty()) continue;
      const Model model = import(golden, folder);
      for (const GoldenRun& run : golden.runs) {
        INFO(run.name);
        check_prompt(golden, run, model, *ops, seen);
      }
    }
    CHECK(seen.criteria >= 8);
  }
}

// Greedy ids of `decode` with f32 planes.
Answer engine_greedy(const Model& model, Ops& ops, std::int32_t loops, const ExitRule& exit,
                     std::int32_t shared_planes, const std::vector<TokenId>& prompt,
                     std::int64_t count) {
  const LoopPlan plan = make_loop_plan(model.config(), loops, 0, StorageMode::f32);
  Forward forward(model, ops, plan, InitialStates::parse("", model.config()), 7, 7);
  DecodeRequest request;
  request.stop.max_tokens = count;
  request.exit = exit;
  request.shared_planes = shared_planes;
  SamplingOptions greedy;
  greedy.temperature = 0.0;
  return decode(forward, read_prompt(forward, prompt, {}, options_for(request.exit)),
                Sampler(greedy, model.config().vocab), request);
}

TEST_CASE("skipped loops and shared slots as the reference computes them") {
  const TemporaryFolder folder;
  const auto ops = cpu();
  for (const TinyModel which : {TinyModel::m, TinyModel::ouro, TinyModel::nanbeige}) {
    const Model model = Model::open(write_tiny_model(folder.path(), which, WeightType::f32));
    const ReferenceWeights weights = reference_weights(model);
    const std::vector<TokenId> prompt = random_ids(31, 19, model.config().vocab);
    for (const std::int32_t slots : {0, 1, 2, 3, 4}) {
      for (const double threshold : {0.0, 0.45, 0.7, 0.95}) {
        if (!model.config().exit_gate && threshold > 0.0) continue;
        INFO(name_of(which) << " slots " << slots << " threshold " << threshold);
        ReferenceOptions options;
        options.loops = 4;
        options.shared_planes = slots;
        ExitRule exit;
        if (threshold > 0.0) {
          exit = {ExitRule::Kind::gate, threshold, false};
          options.exit_threshold = threshold;
          options.stops_from = std::ssize(prompt);
        }
        const Answer answer = engine_greedy(model, *ops, 4, exit, slots, prompt, 16);
        CHECK(answer.tokens == reference_greedy(model.config(), weights, prompt, 16, options));
        if (threshold == 0.7) CHECK(answer.stats.loops_saved > 0);
        CHECK(answer.stats.loops_run == (19 + 15) * 4 - answer.stats.loops_saved);
      }
    }
  }
}

TEST_CASE("a rule that never lets go changes nothing, one that always does leaves after loop 1") {
  const TemporaryFolder folder;
  const auto ops = cpu();
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn, TinyModel::relaxed}) {
    const Model model = Model::open(write_tiny_model(folder.path(), which, WeightType::f16));
    const std::vector<TokenId> prompt = random_ids(32, 18, model.config().vocab);
    const Answer plain = engine_greedy(model, *ops, 4, {}, 0, prompt, 20);
    for (const bool select : {false, true}) {
      for (const char* never : {"latent:0", "kl:0"}) {
        const Answer same =
            engine_greedy(model, *ops, 4, ExitRule::parse(never, select), 0, prompt, 20);
        CHECK(same.tokens == plain.tokens);
        CHECK(same.stats.exits == std::vector<std::int64_t>{0, 0, 0, 20});
        CHECK(same.stats.loops_saved == 0);
      }
      const Answer first =
          engine_greedy(model, *ops, 4, ExitRule::parse("latent:1e9", select), 0, prompt, 20);
      CHECK(first.stats.exits == std::vector<std::int64_t>{20, 0, 0, 0});
      CHECK(first.stats.loops_saved == (select ? 0 : 19 * 3));
    }
  }
}

TEST_CASE("exit rules as text") {
  CHECK(ExitRule::parse("", false).identity().empty());
  CHECK(ExitRule::parse("gate:0.5", false).identity() == "gate:0.5");
  CHECK(ExitRule::parse("kl:0.001", true).identity() == "kl:0.001 select");
  for (const char* wrong :
       {"gate", "gate:", "gate:x", "gate:1.5", "latent:-1", "kl:nan", "kl:1 ", "entropy:1", ":1"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(ExitRule::parse(wrong, false), Error);
  }
}

}  // namespace
}  // namespace tinyloop
