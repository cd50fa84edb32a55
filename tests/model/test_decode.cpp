// SPDX-License-Identifier: Apache-2.0
// Plain decoding as a schedule: limits, stops, released tokens, statistics, reuse of what the cache
// holds.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/engine_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/error.h"
#include "tinyloop/measure/score.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop {
namespace {

struct Engine {
  explicit Engine(TinyModel which, std::int32_t loops = 4)
      : model(Model::open(write_tiny_model(folder.path(), which, WeightType::f32))),
        ops(cpu()),
        plan(make_loop_plan(model.config(), loops, 0)),
        forward(model, *ops, plan, InitialStates::parse("", model.config()), 64, 64) {}

  Answer run(const std::vector<TokenId>& prompt, StopRules stop, SamplingOptions sampling = {},
             std::vector<TokenId>* shown = nullptr) {
    return run_on(read_prompt(forward, prompt), std::move(stop), sampling, shown);
  }
  Answer run_on(Prompt&& prompt, StopRules stop, SamplingOptions sampling = {},
                std::vector<TokenId>* shown = nullptr) {
    DecodeRequest request;
    request.stop = std::move(stop);
    request.hash_logits = true;
    if (shown != nullptr) {
      request.released = [shown](std::span<const TokenId> ids) {
        shown->insert(shown->end(), ids.begin(), ids.end());
      };
    }
    return decode(forward, std::move(prompt), Sampler(sampling, model.config().vocab), request);
  }

  TemporaryFolder folder;
  Model model;
  std::unique_ptr<Ops> ops;
  LoopPlan plan;
  Forward forward;
};

SamplingOptions greedy_options() {
  SamplingOptions options;
  options.temperature = 0.0;
  return options;
}

StopRules at_most(std::int64_t tokens) {
  StopRules rules;
  rules.max_tokens = tokens;
  return rules;
}

const std::vector<TokenId> kPrompt = {5, 17, 3, 40};

TEST_CASE("lengths: zero tokens, the limit, the context") {
  Engine engine(TinyModel::m);
  const Answer none = engine.run(kPrompt, at_most(0), greedy_options());
  CHECK(none.tokens.empty());
  CHECK(none.stop.kind == StopKind::length);
  CHECK(none.stats.generated == 0);
  const Answer seven = engine.run(kPrompt, at_most(7), greedy_options());
  CHECK(seven.tokens.size() == 7);
  CHECK(seven.stop.kind == StopKind::length);
  CHECK(seven.stats.generated == 7);
  CHECK(seven.stats.prefilled == 4);
  CHECK(seven.stats.loops_run == (4 + 6) * 4);
  // Context 64: 4 prompt ids leave 60 positions, and the token picked at the last of them needs
  // none.
  const Answer full = engine.run(kPrompt, at_most(1000), greedy_options());
  CHECK(full.stop.kind == StopKind::context);
  CHECK(full.tokens.size() == 61);
  CHECK(std::equal(seven.tokens.begin(), seven.tokens.end(), full.tokens.begin()));
  const Answer one = engine.run(random_ids(1, 64, 64), at_most(1000), greedy_options());
  CHECK(one.tokens.size() == 1);
  CHECK_THROWS_AS(engine.run(random_ids(1, 65, 64), at_most(1), greedy_options()), Error);
  CHECK_THROWS_AS(engine.run({}, at_most(1), greedy_options()), Error);
}

TEST_CASE("an id outside the vocabulary is refused by name and leaves the engine usable") {
  Engine engine(TinyModel::m);
  const std::vector<TokenId> good = {5, 6, 7};
  const Answer before = engine.run(good, at_most(4));
  for (const TokenId id : {-1, 64, 2000000000}) {
    CAPTURE(id);
    const std::string message = fmt::format("position 1: id {} is not in 0 .. 63", id);
    const std::vector<TokenId> bad = {5, id, 7};
    CHECK_THROWS_WITH_AS(engine.run(bad, at_most(4)), message.c_str(), Error);
    KvCache cache(*engine.ops, engine.plan);
    CHECK_THROWS_WITH_AS(score(engine.forward, cache, bad, 16), message.c_str(), Error);
  }
  const Answer after = engine.run(good, at_most(4));
  CHECK(after.tokens == before.tokens);
  CHECK(after.stats.logits_hash == before.stats.logits_hash);
}

TEST_CASE("an end id and a stop sequence cut the same stream") {
  Engine engine(TinyModel::m);
  const std::vector<TokenId> stream = engine.run(kPrompt, at_most(30), greedy_options()).tokens;
  StopRules end = at_most(30);
  end.end_ids = {stream[9]};
  const auto first = std::find(stream.begin(), stream.end(), stream[9]) - stream.begin();
  const Answer ended = engine.run(kPrompt, end, greedy_options());
  CHECK(ended.stop.kind == StopKind::end_id);
  CHECK(ended.stop.matched == std::vector<TokenId>{stream[9]});
  CHECK(ended.tokens == std::vector<TokenId>(stream.begin(), stream.begin() + first));
  CHECK(ended.stats.generated == first + 1);

  StopRules sequence = at_most(30);
  sequence.sequences = {{stream[11], stream[12], stream[13]}};
  const auto at = std::search(stream.begin(), stream.end(), sequence.sequences[0].begin(),
                              sequence.sequences[0].end()) -
                  stream.begin();
  std::vector<TokenId> shown;
  const Answer stopped = engine.run(kPrompt, sequence, greedy_options(), &shown);
  CHECK(stopped.stop.kind == StopKind::sequence);
  CHECK(stopped.stop.matched == sequence.sequences[0]);
  CHECK(stopped.tokens == std::vector<TokenId>(stream.begin(), stream.begin() + at));
  CHECK(shown == stopped.tokens);
}

TEST_CASE("what another prompt shares is reused and changes nothing") {
  Engine engine(TinyModel::huginn);
  SamplingOptions sampling;
  sampling.seed = 3;
  const std::vector<TokenId> prompt = random_ids(4, 33, engine.model.config().vocab);
  const Answer cold = engine.run(prompt, at_most(12), sampling);
  for (const std::size_t kept : {1u, 16u, 32u, 33u}) {
    Prompt shared = read_prompt(engine.forward, std::span(prompt).first(kept), {}, {.chunk = 5});
    const Answer warm = engine.run_on(read_prompt(engine.forward, prompt, {.shared = &shared}),
                                      at_most(12), sampling);
    CHECK(warm.tokens == cold.tokens);
    CHECK(warm.stats.logits_hash == cold.stats.logits_hash);
    CHECK(warm.stats.reused == std::min<std::int64_t>(static_cast<std::int64_t>(kept), 32));
    CHECK(warm.stats.reused + warm.stats.prefilled == 33);
  }
}

TEST_CASE("a NaN stops the run and names step and position") {
  Engine engine(TinyModel::nan);
  CHECK(engine.run(kPrompt, at_most(1), greedy_options()).tokens.size() == 1);
  try {
    engine.run({5, kNanId, 3}, at_most(4), greedy_options());
    FAIL("no exception");
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(error.kind() == ErrorKind::device);
    CHECK(message.find("step 1") != std::string::npos);
    CHECK(message.find("position 3") != std::string::npos);
  }
}

TEST_CASE("ties go to the lowest id, greedy and with top-k 1 at any seed") {
  Engine engine(TinyModel::tie);
  CHECK(engine.run({kTiePrompt}, at_most(1), greedy_options()).tokens ==
        std::vector<TokenId>{kTieLow});
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SamplingOptions one;
    one.top_k = 1;
    one.seed = seed;
    CHECK(engine.run({kTiePrompt}, at_most(1), one).tokens == std::vector<TokenId>{kTieLow});
  }
}

TEST_CASE("scores are the log-probabilities of the logits, and greedy ids score best") {
  Engine engine(TinyModel::m);
  const Answer answer = engine.run(kPrompt, at_most(20), greedy_options());
  std::vector<TokenId> ids = kPrompt;
  ids.insert(ids.end(), answer.tokens.begin(), answer.tokens.end());
  KvCache cache(*engine.ops, engine.plan);
  std::vector<std::vector<float>> logits;
  ScoreHooks hooks;
  hooks.logits = [&](std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
  std::size_t state_rows = 0;
  hooks.states = [&](std::span<const float> states) {
    CHECK(states.size() == 4 * 32);
    ++state_rows;
  };
  const Score result = score(engine.forward, cache, ids, 7, hooks);
  REQUIRE(logits.size() == ids.size());
  CHECK(state_rows == ids.size());
  REQUIRE(result.log_probabilities.size() == ids.size() - 1);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    long double sum = 0.0L;
    for (const float logit : logits[i]) sum += std::exp(static_cast<long double>(logit));
    const auto expected = static_cast<double>(std::log(
        std::exp(static_cast<long double>(logits[i][static_cast<std::size_t>(ids[i + 1])])) / sum));
    CHECK(result.log_probabilities[i] == doctest::Approx(expected).epsilon(1e-9));
    if (i + 1 < kPrompt.size()) continue;
    CHECK(*std::max_element(logits[i].begin(), logits[i].end()) ==
          logits[i][static_cast<std::size_t>(ids[i + 1])]);
  }
}

TEST_CASE("a trace shows what runs of fewer loops would answer") {
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn}) {
    Engine engine(which, 5);
    const std::vector<TokenId> prompt = random_ids(6, 21, engine.model.config().vocab);
    KvCache cache(*engine.ops, engine.plan);
    const std::vector<LoopTrace> trace = trace_loops(engine.forward, cache, prompt);
    REQUIRE(trace.size() == 5);
    for (const LoopTrace& step : trace) {
      EngineSetting setting;
      setting.loops = step.loop;
      const std::vector<TokenId> best = greedy(engine.model, *engine.ops, setting, prompt, 1);
      CHECK(step.best == best.front());
      CHECK(step.probability > 0.0);
      CHECK(step.entropy > 0.0);
      if (step.loop > 1) CHECK(step.update_ratio > 0.0);
    }
  }
}

}  // namespace
}  // namespace tinyloop
