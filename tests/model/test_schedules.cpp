// SPDX-License-Identifier: Apache-2.0
// Every schedule against plain decoding, by equality: ids, stop reason, the bits of all logits that
// a token was picked from, what was shown, and the cache that is left behind.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "guarded_ops.h"
#include "model/engine_runs.h"
#include "model/random_cases.h"
#include "temporary_folder.h"
#include "test_seed.h"
#include "tiny_models.h"
#include "tinyloop/error.h"
#include "tinyloop/measure/speculation_bench.h"
#include "tinyloop/prompt/prefill.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop {
namespace {

struct Case {
  std::int32_t loops = 4;
  std::int64_t window = 0;
  StorageMode storage = StorageMode::f16;
  ExitRule exit;
  std::int32_t shared_planes = 0;
  SamplingOptions sampling;
  StopRules stop;
  std::vector<TokenId> prompt;
};

struct Outcome {
  Answer answer;
  std::vector<TokenId> shown;
  std::int64_t cached = 0;
  std::vector<float> after;  // logits of one more position on the cache that is left behind
};

Outcome run(const Model& model, Ops& ops, const Case& c, const Speculation& speculation) {
  LoopPlan plan = make_loop_plan(model.config(), c.loops, c.window);
  plan.storage = c.storage;
  check(speculation, model.config(), plan, c.exit, c.shared_planes);
  Forward forward(model, ops, plan, InitialStates::parse("", model.config()),
                  std::max(16, speculation.rows(plan.loops)),
                  std::max(16, speculation.slots(plan.loops, c.exit)));
  Outcome outcome;
  DecodeRequest request;
  request.stop = c.stop;
  request.hash_logits = true;
  request.exit = c.exit;
  request.shared_planes = c.shared_planes;
  request.released = [&](std::span<const TokenId> ids) {
    outcome.shown.insert(outcome.shown.end(), ids.begin(), ids.end());
  };
  Prompt prompt = read_prompt(forward, c.prompt, {}, options_for(c.exit));
  KvCache& cache = prompt.cache;
  outcome.answer = generate(forward, std::move(prompt), Sampler(c.sampling, model.config().vocab),
                            request, speculation);
  outcome.cached = cache.length();
  std::vector<TokenId> ids = c.prompt;
  const std::vector<TokenId>& tokens = outcome.answer.tokens;
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  const auto held = static_cast<std::size_t>(cache.length());
  if (cache.plan().shared_planes > 0 || ids.size() < held || held == 0 ||
      cache.length() >= model.config().context) {
    return outcome;
  }
  ids.resize(held);
  ids.push_back(1);
  const std::span<const float> logits = prefill(forward, cache, ids, 0);
  outcome.after.assign(logits.begin(), logits.end());
  return outcome;
}

void check_counts(const DecodeStats& stats) {
  CHECK(stats.drafted >= stats.verified);
  CHECK(stats.verified >= stats.accepted);
  CHECK(stats.accepted + stats.undrafted == stats.generated);
  CHECK(stats.rows >= stats.passes);
  CHECK(stats.loops_run == stats.prompt_loops + stats.rows);
}

// Everything that must not depend on the schedule.
void check_equal(const Outcome& plain, const Outcome& other) {
  CHECK(other.answer.tokens == plain.answer.tokens);
  CHECK(other.answer.stop.kind == plain.answer.stop.kind);
  CHECK(other.answer.stop.matched == plain.answer.stop.matched);
  CHECK(other.answer.stats.logits_hash == plain.answer.stats.logits_hash);
  CHECK(other.answer.stats.generated == plain.answer.stats.generated);
  CHECK(other.answer.stats.exits == plain.answer.stats.exits);
  CHECK(other.answer.stats.loops_saved == plain.answer.stats.loops_saved);
  CHECK(other.shown == plain.shown);
  CHECK(other.cached == plain.cached);
  CHECK(same_bits(other.after, plain.after));
  check_counts(other.answer.stats);
}

Speculation random_schedule(Dice& dice, std::int32_t loops) {
  Speculation speculation;
  speculation.kind = static_cast<Speculation::Kind>(dice.from(1, 3));
  speculation.draft_loops = dice.from(1, loops);
  speculation.drafts = dice.from(1, 8);
  speculation.width = dice.from(1, 3);
  speculation.depth = dice.from(1, 5);
  if (speculation.kind == Speculation::Kind::wavefront) {
    for (std::int32_t d = speculation.draft_loops + 1; d <= loops; ++d) {
      if (dice.one_in(2)) speculation.later_draft_loops.push_back(d);
    }
  }
  return speculation;
}

bool refused(const Speculation& speculation, const ModelConfig& config, const Case& c) {
  return c.exit.kind == ExitRule::Kind::kl && config.coda_layers > 0 &&
         speculation.kind != Speculation::Kind::plain;
}

std::string describe(const Case& c, const Speculation& speculation) {
  return fmt::format(
      "{} loops {} window {} kv {} exit '{}' temperature {} seed {} prompt {} max {}",
      speculation.name(), c.loops, c.window, name_of(c.storage), c.exit.identity(),
      c.sampling.temperature, c.sampling.seed, c.prompt.size(), c.stop.max_tokens);
}

TEST_CASE("a schedule pays if it is faster by the median and in three of four pairs") {
  const auto arm = [](double low, double median, double high) {
    BenchArm one;
    one.low = low;
    one.median = median;
    one.high = high;
    return one;
  };
  CHECK(arm(1.2, 1.4, 1.6).pays(1.3));
  CHECK(!arm(1.2, 1.3, 1.6).pays(1.3));
  CHECK(!arm(0.25, 1.59, 1.6).pays(1.3));
  CHECK(!arm(1.0, 1.59, 1.6).pays(1.3));
  BenchReport report;
  report.arms = {arm(0.9, 3.0, 4.0), arm(1.1, 1.2, 1.3), arm(1.2, 1.4, 1.5), arm(2.0, 2.5, 3.0)};
  report.arms[3].dropped = true;
  CHECK(report.best().median == 1.4);
  report.arms[2].low = report.arms[1].low = 0.8;
  CHECK(report.best().median == 3.0);
}

TEST_CASE("a thousand random combinations: no stream differs from plain decoding") {
  Dice dice(test_seed());
  Models models;
  const std::vector<TinyModel> known = all_tiny_models();
  const auto one = cpu("", 1), three = cpu("", 3);
  GuardedOps guarded(1);
  std::int64_t accepted = 0, rejected = 0, early = 0, exited = 0;
  int combinations = 0;
  while (combinations < 1000) {
    const TinyModel which = known[dice.below(static_cast<std::uint32_t>(known.size()))];
    if (which == TinyModel::nan) continue;
    const Model& model = models.get(which, dice.one_in(3) ? WeightType::q8 : WeightType::f32);
    const ModelConfig& config = model.config();
    Case c;
    c.loops = dice.from(1, std::min(config.max_loops, 6));
    const std::int64_t windows[] = {0, 0, 1, 8, 16, 17};
    c.window = windows[dice.below(6)];
    c.storage = static_cast<StorageMode>(dice.below(4));
    if (dice.one_in(5)) c.storage = static_cast<StorageMode>(dice.from(4, 6));
    c.exit = random_exit(dice, config);
    c.sampling = random_sampling(dice, config);
    c.stop = random_stop(dice, config);
    c.prompt =
        random_ids(dice.below(1u << 20), static_cast<std::size_t>(dice.from(1, 40)), config.vocab);
    const Speculation speculation = random_schedule(dice, c.loops);
    if (refused(speculation, config, c)) continue;
    ++combinations;
    INFO(name_of(which) << ": " << describe(c, speculation));
    Ops& ops = dice.one_in(10) ? static_cast<Ops&>(guarded) : dice.one_in(5) ? *three : *one;
    const Outcome plain = run(model, *one, c, Speculation());
    const Outcome other = run(model, ops, c, speculation);
    check_equal(plain, other);
    const DecodeStats& stats = other.answer.stats;
    if (speculation.draft_loops == c.loops) CHECK(stats.accepted == stats.verified);
    accepted += stats.accepted;
    rejected += stats.verified - stats.accepted;
    early +=
        other.answer.stop.kind == StopKind::end_id || other.answer.stop.kind == StopKind::sequence;
    exited += stats.loops_saved > 0;
  }
  // The combinations were worth their time.
  CHECK(accepted > 1000);
  CHECK(rejected > 1000);
  CHECK(early > 50);
  CHECK(exited > 50);
}

TEST_CASE("U-12: speculation changes nothing") {
  Models models;
  const Model& model = models.get(TinyModel::m, WeightType::f32);
  const auto ops = cpu();
  Dice dice(12);
  for (int i = 0; i < 50; ++i) {
    Case c;
    c.sampling.temperature = 0.0;
    c.stop.max_tokens = 40;
    c.prompt = random_ids(static_cast<std::uint64_t>(100 + i),
                          static_cast<std::size_t>(dice.from(1, 16)), 64);
    c.window = i % 2 == 0 ? 0 : 8;
    c.storage = i % 4 < 2 ? StorageMode::f16 : StorageMode::int8;
    c.sampling.repetition_penalty = i % 3 == 0 ? 1.2 : 1.0;
    const Outcome plain = run(model, *ops, c, Speculation());
    CHECK(plain.answer.tokens.size() == 40);
    for (std::int32_t d = 1; d <= 3; ++d) {
      Speculation speculation;
      speculation.draft_loops = d;
      speculation.kind = Speculation::Kind::wavefront;
      check_equal(plain, run(model, *ops, c, speculation));
      for (std::int32_t k = 1; k <= 8; ++k) {
        speculation.kind = Speculation::Kind::block;
        speculation.drafts = k;
        INFO(describe(c, speculation));
        check_equal(plain, run(model, *ops, c, speculation));
      }
      for (std::int32_t width = 1; width <= 3; ++width) {
        speculation.kind = Speculation::Kind::tree;
        speculation.width = width;
        speculation.depth = dice.from(1, 8);
        INFO(describe(c, speculation));
        check_equal(plain, run(model, *ops, c, speculation));
      }
    }
  }
}

TEST_CASE("U-13: honest acceptance") {
  Models models;
  const Model& model = models.get(TinyModel::m, WeightType::f32);
  const auto ops = cpu();
  Case c;
  c.sampling.temperature = 0.0;
  c.stop.max_tokens = 41;
  c.prompt = {5, 17, 3, 40};
  Speculation full = Speculation::parse("block:d=4,k=4");
  const DecodeStats all = run(model, *ops, c, full).answer.stats;
  check_counts(all);
  CHECK(all.accepted == all.verified);
  CHECK(all.drafted == all.accepted);
  // The prompt gives one token, then 8 rounds of 5 rows give 5 each.
  CHECK(all.generated == 41);
  CHECK(all.accepted == 32);
  CHECK(all.undrafted == 9);
  CHECK(all.passes == 8 * 5 * 4);
  CHECK(all.rows == 8 * 5 * 4);
  const DecodeStats some = run(model, *ops, c, Speculation::parse("block:d=1,k=4")).answer.stats;
  check_counts(some);
  CHECK(some.accepted < some.verified);
  CHECK(some.verified < some.drafted);
  // A wavefront whose drafts are always right needs d passes a token; d = loops drafts nothing.
  CHECK(run(model, *ops, c, Speculation::parse("wavefront:d=4")).answer.stats.drafted == 0);
}

TEST_CASE("a tree verifies a leaf where the chain is wrong") {
  Models models;
  const auto ops = cpu();
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn, TinyModel::relaxed}) {
    const Model& model = models.get(which, WeightType::f32);
    Case c;
    c.sampling.temperature = 0.0;
    c.stop.max_tokens = 40;
    c.prompt = random_ids(3, 14, model.config().vocab);
    const Outcome plain = run(model, *ops, c, Speculation());
    const Outcome chain = run(model, *ops, c, Speculation::parse("tree:d=1,width=1,depth=4"));
    const Outcome block = run(model, *ops, c, Speculation::parse("block:d=1,k=4"));
    const Outcome tree = run(model, *ops, c, Speculation::parse("tree:d=1,width=6,depth=4"));
    check_equal(plain, chain);
    check_equal(plain, tree);
    CHECK(chain.answer.stats.passes == block.answer.stats.passes);
    CHECK(chain.answer.stats.accepted == block.answer.stats.accepted);
    CHECK(tree.answer.stats.accepted > chain.answer.stats.accepted);
    CHECK(tree.answer.stats.passes < chain.answer.stats.passes);
  }
}

TEST_CASE("shared slots and early exits work with stored inputs") {
  Models models;
  const Model& model = models.get(TinyModel::m, WeightType::f32);
  const auto ops = cpu();
  for (const StorageMode storage : {StorageMode::h16, StorageMode::h8, StorageMode::h4}) {
    Case c;
    c.storage = storage;
    c.sampling.temperature = 0.0;
    c.stop.max_tokens = 30;
    c.prompt = random_ids(9, 18, 64);
    const Outcome plain = run(model, *ops, c, Speculation());
    c.shared_planes = 4;
    CHECK(run(model, *ops, c, Speculation()).answer.tokens == plain.answer.tokens);
    c.exit = ExitRule::parse("gate:0.6", false);
    for (c.shared_planes = 1; c.shared_planes < 4; ++c.shared_planes) {
      CHECK(run(model, *ops, c, Speculation()).answer.tokens.size() == 30);
    }
  }
}

TEST_CASE("where loops agree a wavefront costs d passes a token") {
  Models models;
  const Model& model = models.get(TinyModel::flat, WeightType::f32);
  const auto ops = cpu();
  Case c;
  c.loops = 8;
  c.sampling.temperature = 0.0;
  c.stop.max_tokens = 33;
  c.prompt = {5, 17, 3, 40};
  const Outcome plain = run(model, *ops, c, Speculation());
  for (const std::int32_t d : {1, 2, 4}) {
    Speculation speculation;
    speculation.kind = Speculation::Kind::wavefront;
    speculation.draft_loops = d;
    const Outcome wave = run(model, *ops, c, speculation);
    check_equal(plain, wave);
    CHECK(wave.answer.stats.accepted == wave.answer.stats.verified);
    // 32 rows enter every d passes, and the last of them still rises to loop 8.
    CHECK(wave.answer.stats.passes == 31 * d + 8);
    // A second proposal that agrees with the first changes nothing.
    speculation.later_draft_loops = {d + 1, 7};
    const Outcome again = run(model, *ops, c, speculation);
    check_equal(plain, again);
    CHECK(again.answer.stats.passes == wave.answer.stats.passes);
    CHECK(again.answer.stats.rows == wave.answer.stats.rows);
    CHECK(again.answer.stats.drafted > wave.answer.stats.drafted);
    speculation.later_draft_loops.clear();
    speculation.kind = Speculation::Kind::block;
    speculation.drafts = 3;
    const Outcome block = run(model, *ops, c, speculation);
    check_equal(plain, block);
    // 8 rounds of 4 rows.
    CHECK(block.answer.stats.passes == 8 * (4 * d + 8 - d));
  }
}

TEST_CASE("a second proposal costs what the formula says") {
  // After each id the guesses of all four loops are known from runs of that many loops; the model
  // has no attention worth the name, so a stream's guesses are those after its ids.
  Models models;
  const auto ops = cpu();
  for (const TinyModel which : {TinyModel::m, TinyModel::ouro, TinyModel::nanbeige}) {
    const Model& model = models.get(which, WeightType::f32);
    Case c;
    c.loops = 4;
    c.sampling.temperature = 0.0;
    c.stop.max_tokens = 40;
    c.prompt = random_ids(7, 9, model.config().vocab);
    const Outcome plain = run(model, *ops, c, Speculation());
    // Where the first guess that is right and stays so comes, the next row enters.
    const std::vector<TokenId>& ids = plain.answer.tokens;
    const auto guess_after = [&](std::size_t read, std::int32_t loops) {
      EngineSetting setting;
      setting.loops = 4;
      std::vector<TokenId> all = c.prompt;
      all.insert(all.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(read));
      const LoopPlan plan = setting.plan(model.config());
      Forward forward(model, *ops, plan, InitialStates(), 16, 16);
      Prompt before = read_prompt(forward, std::span(all).first(all.size() - 1));
      Row row{&before.cache, std::ssize(all) - 1, all.back(), 0, 0};
      before.cache.reserve(std::ssize(all));
      forward.enter({&row, 1});
      for (std::int32_t loop = 0; loop < loops; ++loop) forward.pass({&row, 1});
      const std::int32_t wanted = 0;
      const std::span<const float> logits = forward.leave({&row, 1}, {&wanted, 1});
      return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    };
    std::int64_t expected = 0;
    for (std::size_t n = 1; n < ids.size(); ++n) {
      // The row of token n - 1 stands for token n; the last row rises to the last loop.
      if (n + 1 == ids.size()) {
        expected += 4;
        break;
      }
      const bool first = guess_after(n, 1) == ids[n], second = guess_after(n, 2) == ids[n];
      expected += second ? (first ? 1 : 2) : 4;
    }
    const Outcome wave = run(model, *ops, c, Speculation::parse("wavefront:d=1+2"));
    check_equal(plain, wave);
    CAPTURE(name_of(which));
    CHECK(wave.answer.stats.passes == expected);
    CHECK(wave.answer.stats.passes <=
          run(model, *ops, c, Speculation::parse("wavefront:d=2")).answer.stats.passes);
  }
}

TEST_CASE("a draft that is not a number does no harm") {
  // The NaN enters with an id that only a draft could take; a bias makes early loops differ.
  Models models;
  const Model& model = models.get(TinyModel::nan, WeightType::f32);
  const auto ops = cpu();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Case c;
    c.sampling.seed = seed;
    c.sampling.temperature = 1.5;
    c.stop.max_tokens = 30;
    c.prompt = random_ids(seed + 50, 3, 64);
    std::replace(c.prompt.begin(), c.prompt.end(), kNanId, kNanId + 1);
    std::string expected;
    std::vector<TokenId> tokens;
    try {
      tokens = run(model, *ops, c, Speculation()).answer.tokens;
    } catch (const Error& error) {
      expected = error.what();
    }
    for (const char* name : {"block:d=1,k=5", "tree:d=1,width=3,depth=3", "wavefront:d=1"}) {
      std::string got;
      std::vector<TokenId> other;
      try {
        other = run(model, *ops, c, Speculation::parse(name)).answer.tokens;
      } catch (const Error& error) {
        got = error.what();
      }
      CHECK(got == expected);
      CHECK(other == tokens);
    }
  }
}

TEST_CASE("names of schedules, and combinations that cannot work") {
  CHECK(Speculation::parse("off").kind == Speculation::Kind::plain);
  CHECK(Speculation::parse("block").name() == "block:d=2,k=4");
  CHECK(Speculation::parse("tree:depth=3").name() == "tree:d=2,width=2,depth=3");
  CHECK(Speculation::parse("wavefront:d=1").name() == "wavefront:d=1");
  CHECK(Speculation::parse("wavefront:d=1+2+5").name() == "wavefront:d=1+2+5");
  CHECK(Speculation::parse("wavefront:d=1+2+5").proposal_loops() ==
        std::vector<std::int32_t>{1, 2, 5});
  for (const char* wrong :
       {"", "blocks", "block:", "block:d", "block:d=0", "block:d=1,,k=2", "block:width=2",
        "off:d=1", "block:d=65", "block:d=1k", "wavefront:k=1", "wavefront:d=2+1",
        "wavefront:d=1+1", "wavefront:d=1+", "wavefront:d=+1", "wavefront:d=1+65", "block:d=1+2"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(Speculation::parse(wrong), Error);
  }
  const ModelConfig ouro = tiny_config(TinyModel::m), huginn = tiny_config(TinyModel::huginn);
  const LoopPlan four = make_loop_plan(ouro, 4, 0);
  const ExitRule none, gate = ExitRule::parse("gate:0.5", false),
                       kl = ExitRule::parse("kl:0.1", false);
  const auto refuses = [&](const char* name, const ModelConfig& config, const ExitRule& exit,
                           std::int32_t slots) {
    try {
      check(Speculation::parse(name), config, four, exit, slots);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage;
    }
    return false;
  };
  CHECK(refuses("block:d=5", ouro, none, 0));
  CHECK(!refuses("block:d=4", ouro, none, 0));
  CHECK(refuses("wavefront:d=1", ouro, none, 2));
  CHECK(!refuses("wavefront:d=1", ouro, none, 4));
  CHECK(!refuses("off", ouro, none, 2));
  CHECK(refuses("off", ouro, none, 5));
  CHECK(refuses("off", huginn, gate, 0));
  CHECK(!refuses("off", huginn, kl, 0));
  CHECK(refuses("block:d=2", huginn, kl, 0));
  CHECK(!refuses("block:d=2", ouro, kl, 0));
}

}  // namespace
}  // namespace tinyloop
