// SPDX-License-Identifier: Apache-2.0
// Warm starts: a prompt read with few loops and gone on with to more, against runs from nothing.
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "model/engine_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/error.h"
#include "tinyloop/prompt/registration.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop {
namespace {

struct Run {
  const Model& model;
  Ops& ops;
  StorageMode kv = StorageMode::f16;
  std::int64_t window = 0;
  std::int32_t rows = 7;

  Answer answer(std::int32_t loops, const std::vector<TokenId>& prompt,
                const std::string& state = "", const ExitRule& exit = {},
                const Speculation& speculation = {}) const {
    const LoopPlan plan = make_loop_plan(model.config(), loops, window, kv);
    Forward forward(model, ops, plan, InitialStates::parse("", model.config()),
                    std::max(rows, speculation.rows(loops)),
                    std::max(rows, speculation.slots(loops, exit)));
    DecodeRequest request;
    request.stop.max_tokens = 12;
    request.hash_logits = true;
    request.exit = exit;
    PromptSource source;
    if (!state.empty()) source.snapshot = Snapshot::open(state);
    SamplingOptions sampling;
    sampling.seed = 5;
    return generate(forward, read_prompt(forward, prompt, source, options_for(exit)),
                    Sampler(sampling, model.config().vocab), request, speculation);
  }
  // Reads the prompt and saves where its rows stand.
  void save(const std::string& path, std::int32_t loops, const std::vector<TokenId>& prompt,
            bool resumable = true) const {
    const LoopPlan plan = make_loop_plan(model.config(), loops, window, kv);
    Forward forward(model, ops, plan, InitialStates::parse("", model.config()), rows, rows);
    Prompt read = read_prompt(forward, prompt, {}, {.keep_states = resumable});
    save_prompt(path, read);
  }
};

void check_same(const Answer& cold, const Answer& warm) {
  CHECK(warm.tokens == cold.tokens);
  CHECK(warm.stats.logits_hash == cold.stats.logits_hash);
  CHECK(warm.stats.exits == cold.stats.exits);
}

TEST_CASE("U-11: deepen 4 to 16, 4 to 5, 15 to 16, 4 to 4") {
  const TemporaryFolder folder;
  const auto ops = cpu();
  const std::string state = folder.file("state");
  for (const TinyModel which : {TinyModel::m, TinyModel::ouro, TinyModel::nanbeige,
                                TinyModel::huginn, TinyModel::huginn_llama}) {
    const Model model = Model::open(write_tiny_model(folder.path(), which, WeightType::q8));
    const std::vector<TokenId> prompt = random_ids(40, 21, model.config().vocab);
    const std::pair<int, int> pairs[] = {{4, 16}, {4, 5}, {15, 16}, {4, 4}};
    for (const auto& [from, to] : pairs) {
      for (const std::int64_t window : {0, 6, 16}) {
        for (const StorageMode kv : {StorageMode::f16, StorageMode::int4}) {
          INFO(name_of(which) << " " << from << " to " << to << " window " << window);
          const Run run{model, *ops, kv, window, 7};
          run.save(state, from, prompt);
          const Answer cold = run.answer(to, prompt);
          const Answer warm = run.answer(to, prompt, state);
          check_same(cold, warm);
          CHECK(cold.stats.prompt_loops == 21 * to);
          // With as many loops the last position alone is run, for its logits.
          CHECK(warm.stats.prompt_loops == (from == to ? to : 21 * (to - from)));
          CHECK(warm.stats.loops_run == warm.stats.prompt_loops + 11 * to);
        }
      }
    }
    // What was resumed is unchanged and serves again, at its own loops too.
    const Run run{model, *ops};
    run.save(state, 4, prompt);
    run.answer(16, prompt, state);
    check_same(run.answer(4, prompt), run.answer(4, prompt, state));
  }
}

TEST_CASE("a resumed prompt goes on by every schedule and exit rule") {
  const TemporaryFolder folder;
  const auto ops = cpu();
  const Model model = Model::open(write_tiny_model(folder.path(), TinyModel::m, WeightType::f32));
  const std::vector<TokenId> prompt = random_ids(41, 19, 64);
  const Run run{model, *ops};
  const std::string state = folder.file("state");
  run.save(state, 2, prompt);
  for (const char* exit : {"", "gate:0.6", "kl:0.2"}) {
    const ExitRule rule = ExitRule::parse(exit, false);
    const Answer cold = run.answer(6, prompt, "", rule);
    for (const char* name : {"off", "block", "tree", "wavefront:d=1"}) {
      check_same(cold, run.answer(6, prompt, state, rule, Speculation::parse(name)));
    }
  }
}

TEST_CASE("a saved state is the same after a way through a file") {
  const TemporaryFolder folder;
  const auto ops = cpu();
  const Model model =
      Model::open(write_tiny_model(folder.path(), TinyModel::huginn, WeightType::f32));
  const std::vector<TokenId> prompt = random_ids(42, 33, model.config().vocab);
  const Run run{model, *ops};
  const std::string path = folder.file("state");
  run.save(path, 3, prompt);
  CHECK(Snapshot::open(path)->identity().loops == 3);
  CHECK(std::ranges::equal(Snapshot::open(path)->ids(), prompt));
  check_same(run.answer(8, prompt), run.answer(8, prompt, path));

  const Run other_mode{model, *ops, StorageMode::int8};
  CHECK_THROWS_AS(other_mode.answer(8, prompt, path), Error);
  const Run other_window{model, *ops, StorageMode::f16, 8};
  CHECK_THROWS_AS(other_window.answer(8, prompt, path), Error);
  CHECK_THROWS_AS(run.answer(2, prompt, path), Error);
  const Model other =
      Model::open(write_tiny_model(folder.path(), TinyModel::huginn, WeightType::f16));
  const Run other_model{other, *ops};
  CHECK_THROWS_AS(other_model.answer(8, prompt, path), Error);

  // Every byte counts.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::int64_t>(file.tellg());
  for (const std::int64_t at : {size - 1, size / 2, size - 40'000}) {
    file.seekg(at);
    const auto byte = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
    file.flush();
    CHECK_THROWS_AS(run.answer(8, prompt, path), Error);
    file.seekp(at);
    file.put(byte);
    file.flush();
  }
  check_same(run.answer(8, prompt), run.answer(8, prompt, path));

  // Of another prompt, or without what more loops go on from.
  CHECK_THROWS_AS(run.answer(8, random_ids(43, 33, model.config().vocab), path), Error);
  run.save(path, 3, prompt, false);
  CHECK_THROWS_WITH_AS(run.answer(8, prompt, path), doctest::Contains("--resumable"), Error);
  check_same(run.answer(3, prompt), run.answer(3, prompt, path));
}

TEST_CASE("a model whose steps depend on the number of loops cannot be resumed") {
  const TemporaryFolder folder;
  const auto ops = cpu();
  const Model model =
      Model::open(write_tiny_model(folder.path(), TinyModel::relaxed, WeightType::f32));
  const Run run{model, *ops};
  CHECK_THROWS_WITH_AS(run.save(folder.file("state"), 2, {1, 2, 3}),
                       doctest::Contains("alpha / loops"), Error);
}

}  // namespace
}  // namespace tinyloop
