// SPDX-License-Identifier: Apache-2.0
// The engine against the golden vectors: import, cached decoding and chunked prefill of every
// family, K/V in f32. Cases with shared K/V slots or exit rules belong to the schedules that run
// them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint_folder.h"
#include "model/golden_files.h"
#include "temporary_folder.h"
#include "tinyloop/backend.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/model/model.h"
#include "tinyloop/prompt/prefill.h"

namespace tinyloop {
namespace {

// 2e-3 is what the goldens' README calls safe; where it states what float32 arithmetic costs, ten
// times that must do.
double bound(double float_error) { return std::min(2e-3, 2e-5 + 10.0 * float_error); }

double greatest_difference(std::span<const float> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double greatest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) greatest = std::max(greatest, std::fabs(a[i] - b[i]));
  return greatest;
}

// Everything that one run of the engine over a prompt and its greedy answer shows.
struct EngineRun {
  std::vector<float> prompt_logits;  // [prompt][vocab]
  std::vector<float> loop_states;    // [loops][hidden] of the last prompt position
  std::vector<float> decode_logits;  // [count][vocab]
  std::vector<TokenId> greedy;
};

EngineRun run_engine(const Model& model, Ops& ops, const GoldenCase& golden,
                     std::span<const TokenId> prompt, std::int64_t chunk, std::size_t count) {
  const LoopPlan plan = make_loop_plan(model.config(), golden.loops, 0, StorageMode::f32);
  std::string initial = golden.initial_states_file;
  if (initial.empty() && model.config().initial_state == InitialState::free) initial = "zero";
  Forward forward(model, ops, plan, InitialStates::parse(initial, model.config()), 64, 64);
  KvCache cache(ops, plan);
  EngineRun run;
  PrefillHooks hooks;
  hooks.after_loop = [&](std::span<const Row> rows) {
    if (rows.back().position + 1 != std::ssize(prompt)) return;
    const std::span<const float> state = forward.states(rows.last(1));
    run.loop_states.insert(run.loop_states.end(), state.begin(), state.end());
  };
  hooks.all_logits = [&](std::int64_t first, std::span<const float> logits) {
    CHECK(first * model.config().vocab == std::ssize(run.prompt_logits));
    run.prompt_logits.insert(run.prompt_logits.end(), logits.begin(), logits.end());
  };
  std::span<const float> logits = prefill(forward, cache, prompt, chunk, hooks);
  for (;;) {
    run.decode_logits.insert(run.decode_logits.end(), logits.begin(), logits.end());
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    run.greedy.push_back(static_cast<TokenId>(best));
    if (run.greedy.size() == count) return run;
    Row row{&cache, cache.length(), run.greedy.back(), 0, 0};
    cache.reserve(row.position + 1);
    forward.enter({&row, 1});
    while (row.loop < plan.loops) forward.pass({&row, 1});
    const std::int32_t wanted = 0;
    logits = forward.leave({&row, 1}, {&wanted, 1});
    cache.commit(row.position + 1);
  }
}

struct Seen {  // how much was really compared
  int runs = 0, arrays = 0;
};

void check_run(const GoldenCase& golden, const GoldenRun& run, const Model& model, Ops& ops,
               std::int64_t chunk, Seen& seen) {
  INFO(run.name);
  ++seen.runs;
  const ModelConfig& config = model.config();
  const EngineRun engine = run_engine(model, ops, golden, run.prompt, chunk, run.greedy.size());
  CHECK(engine.greedy == run.greedy);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const double decode_bound = bound(std::max(run.float_error_decode, run.float_error_prompt));
  for (std::size_t step = 0; step < run.margins.size(); ++step) {
    const auto logits = std::span(engine.decode_logits).subspan(step * vocab, vocab);
    std::vector<float> sorted(logits.begin(), logits.end());
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    CHECK(std::fabs(sorted[0] - sorted[1] - run.margins[step]) < 1e-5 + 2.0 * decode_bound);
  }
  for (const auto& [id, logit] : run.top_logits) {
    CHECK(std::fabs(engine.decode_logits[static_cast<std::size_t>(id)] - logit) <
          1e-5 + bound(run.float_error_prompt));
  }
  if (!run.prompt_logits.empty()) {
    ++seen.arrays;
    CHECK(greatest_difference(engine.prompt_logits, run.prompt_logits) <
          bound(run.float_error_prompt));
  }
  if (!run.decode_logits.empty()) {
    ++seen.arrays;
    CHECK(greatest_difference(engine.decode_logits, run.decode_logits) <
          bound(run.float_error_decode));
  }
  if (!run.loop_states.empty()) {
    ++seen.arrays;
    // Without a norm between loops the stored state of the last loop is the normed one: no state of
    // ours.
    const auto loops = static_cast<std::size_t>(golden.loops - (golden.skip_loop_norm ? 1 : 0));
    const std::size_t size = loops * static_cast<std::size_t>(config.hidden);
    CHECK(greatest_difference(std::span(engine.loop_states).first(size),
                              std::span(run.loop_states).first(size)) <
          bound(run.float_error_prompt));
  }
}

void check_root(const std::string& root, std::optional<WeightType> type, Seen& seen) {
  const TemporaryFolder temporary;
  BackendOptions backend;
  backend.threads = 1;
  const std::unique_ptr<Ops> ops = make_ops("cpu", backend);
  for (const GoldenCase& golden : read_golden_cases(root)) {
    if (!golden.plain()) continue;
    INFO(golden.folder << " " << golden.name);
    std::string folder = golden.folder;
    if (golden.skip_loop_norm) {
      folder = temporary.file("changed");
      copy_checkpoint(golden.folder, folder, "skip_loop_final_norm", true);
    }
    ImportOptions options;
    options.type = type;
    options.looped = golden.looped;
    const std::string path = temporary.file("model.tinyloop");
    import_checkpoint(folder, path, options);
    const Model model = Model::open(path);
    model.verify();
    for (const GoldenRun& run : golden.runs) {
      check_run(golden, run, model, *ops, 16, seen);
    }
  }
}

TEST_CASE("the engine computes the golden vectors from weights as they are") {
  for (const std::string& root : golden_roots()) {
    INFO(root);
    Seen seen;
    check_root(root, std::nullopt, seen);
    CHECK(seen.runs >= 28);
    CHECK(seen.arrays >= 28);
  }
}

TEST_CASE("the engine computes the golden vectors from weights widened to f32") {
  for (const std::string& root : golden_roots()) {
    INFO(root);
    Seen seen;
    check_root(root, WeightType::f32, seen);
    CHECK(seen.runs >= 28);
  }
}

}  // namespace
}  // namespace tinyloop
