// SPDX-License-Identifier: Apache-2.0
// Batches against each job alone, by equality: whatever the schedule, lanes, order, grouping,
// memory and pool, a job gets the ids, the stop reason and the bits of the logits that decode()
// gives it. What batches share and save is tested in test_batch_sharing.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "guarded_ops.h"
#include "model/batch_runs.h"
#include "model/engine_runs.h"
#include "model/pool_runs.h"
#include "model/random_cases.h"
#include "temporary_folder.h"
#include "test_seed.h"
#include "tiny_models.h"
#include "tinyloop/error.h"
#include "tinyloop/kv/kv_cache.h"

namespace tinyloop {
namespace {

constexpr BatchSchedule kSchedules[] = {BatchSchedule::lockstep, BatchSchedule::continuous};

// Prompts that branch off each other at random places, some of them equal.
std::vector<std::vector<TokenId>> random_prompts(Dice& dice, std::size_t count,
                                                 std::int32_t vocab) {
  std::vector<std::vector<TokenId>> prompts;
  while (prompts.size() < count) {
    std::vector<TokenId> prompt;
    if (!prompts.empty() && !dice.one_in(3)) {
      prompt = prompts[dice.below(static_cast<std::uint32_t>(prompts.size()))];
      prompt.resize(1 + dice.below(static_cast<std::uint32_t>(prompt.size())));
    }
    if (prompt.empty() || (prompt.size() < 45 && !dice.one_in(5))) {
      const auto more =
          static_cast<std::size_t>(dice.one_in(3) ? dice.from(1, 3) : dice.from(16, 24));
      prompt = joined(prompt, random_ids(dice.below(1u << 20), more, vocab));
    }
    prompts.push_back(prompt);
  }
  return prompts;
}

std::size_t greatest_bytes(const Model& model, Ops& ops, const BatchSetting& setting,
                           const std::vector<BatchJob>& jobs) {
  const KvCache cache(ops, setting.engine.plan(model.config()));
  std::size_t greatest = 1;
  for (const BatchJob& job : jobs) {
    const std::int64_t end = std::min<std::int64_t>(model.config().context,
                                                    std::ssize(job.prompt) + job.stop.max_tokens);
    greatest = std::max(greatest, cache.bytes_to(0, end, 64) + cache.record_bytes_to(end));
  }
  return greatest;
}

std::string describe(const BatchSetting& setting, std::size_t jobs) {
  const BatchOptions& options = setting.options;
  return fmt::format(
      "jobs {} {} grouping {} lanes {} chunk {} in sight {} memory {} loops {} window {} kv {} "
      "exit '{}' temperature {} pool {} min share {} crop {}",
      jobs, options.schedule == BatchSchedule::lockstep ? "lockstep" : "continuous",
      static_cast<int>(options.grouping), options.lanes, options.prefill_chunk, options.in_sight,
      options.memory, setting.engine.loops, setting.engine.window, name_of(setting.engine.storage),
      options.exit.identity(), options.sampling.temperature, !setting.pool_folder.empty(),
      options.pool_min_share, options.pool_crop);
}

BatchSetting random_setting(Dice& dice, const ModelConfig& config) {
  BatchSetting setting;
  EngineSetting& engine = setting.engine;
  engine.loops = dice.from(1, std::min(config.max_loops, 5));
  const std::int64_t windows[] = {0, 0, 1, 8, 16, 17, 30};
  engine.window = windows[dice.below(7)];
  engine.storage = static_cast<StorageMode>(dice.below(4));
  if (dice.one_in(5)) engine.storage = static_cast<StorageMode>(dice.from(4, 6));
  BatchOptions& options = setting.options;
  options.schedule = kSchedules[dice.below(2)];
  options.grouping = static_cast<BatchGrouping>(dice.below(3));
  const std::int32_t lanes[] = {1, 2, 3, 5, 12};
  options.lanes = lanes[dice.below(5)];
  setting.rows = options.lanes + dice.from(1, 24);
  if (dice.one_in(2)) options.prefill_chunk = dice.from(1, setting.rows - options.lanes);
  options.in_sight = dice.one_in(3) ? dice.from(1, 6) : dice.from(4, 40);
  options.sampling = random_sampling(dice, config);
  options.exit = random_exit(dice, config);
  return setting;
}

TEST_CASE("hundreds of random batches: no job knows that it has company") {
  Dice dice(test_seed());
  Models models;
  const std::vector<TinyModel> known = all_tiny_models();
  const auto one = cpu("", 1), three = cpu("", 3);
  GuardedOps guarded(1);
  std::int64_t jobs_run = 0, errors = 0, shared = 0, from_pool = 0, saved = 0;
  for (int batch = 0; batch < 600; ++batch) {
    const TinyModel which = known[dice.below(static_cast<std::uint32_t>(known.size()))];
    const Model& model = models.get(which, dice.one_in(3) ? WeightType::q8 : WeightType::f32);
    const ModelConfig& config = model.config();
    BatchSetting setting = random_setting(dice, config);
    BatchOptions& options = setting.options;
    std::vector<BatchJob> jobs;
    const auto count = static_cast<std::size_t>(dice.from(1, 14));
    const auto prompts = random_prompts(dice, count, config.vocab);
    for (const std::vector<TokenId>& prompt : prompts) {
      BatchJob job = batch_job(std::ssize(jobs) + 100, prompt, 0);
      job.stop = random_stop(dice, config);
      job.stop.max_tokens = std::min<std::int64_t>(job.stop.max_tokens, 12);
      job.seed = dice.below(1000);
      if (dice.one_in(4)) job.priority = dice.from(-1, 2);
      job.group = dice.one_in(2) ? "a" : "b";
      if (dice.one_in(30)) job.prompt.clear();
      if (dice.one_in(30)) job.prompt.resize(static_cast<std::size_t>(config.context) + 1);
      jobs.push_back(std::move(job));
    }
    if (dice.one_in(3)) {
      const auto parts = static_cast<std::size_t>(dice.from(0, 5));
      options.memory = greatest_bytes(model, *one, setting, jobs) * (2 + parts) / 2;
    }
    const TemporaryFolder folder;
    if (dice.one_in(3)) {
      setting.pool_folder = folder.file("pool");
      std::vector<std::vector<TokenId>> entries;
      for (const std::vector<TokenId>& prompt : prompts) {
        if (!dice.one_in(4)) continue;
        entries.push_back(prompt);
        if (dice.one_in(2)) entries.back() = joined(prompt, random_ids(dice.below(99), 3, 64));
        const auto context = static_cast<std::size_t>(config.context);
        if (entries.back().size() > context) entries.back().resize(context);
      }
      fill_pool(model, *one, setting, entries);
      if (dice.one_in(3)) damage_pool(setting);
      options.pool_crop = !dice.one_in(4);
      if (options.grouping != BatchGrouping::none) options.pool_min_share = dice.from(0, 3);
    }
    INFO(name_of(which) << ": " << describe(setting, jobs.size()));
    Ops& ops = dice.one_in(10) ? static_cast<Ops&>(guarded) : dice.one_in(5) ? *three : *one;
    const std::vector<Alone> alone = each_alone(model, *one, setting, jobs);
    const BatchRun run = run_batch(model, ops, setting, jobs);
    check_equal(run, jobs, alone);
    jobs_run += run.stats.jobs;
    errors += run.stats.errors;
    shared += run.stats.shared + run.stats.reused;
    for (const BatchOutcome& outcome : run.outcomes) {
      from_pool += outcome.answer.stats.reused;
      saved += outcome.answer.stats.loops_saved;
    }
  }
  CHECK(guarded.live_bytes() == 0);
  // The batches were worth their time.
  CHECK(jobs_run > 1000);
  CHECK(errors > 20);
  CHECK(shared > 4000);
  CHECK(from_pool > 1000);
  CHECK(saved > 100);
}

TEST_CASE("U-15: a lane stands alone") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  for (const double temperature : {0.0, 0.8}) {
    BatchSetting setting;
    setting.options.sampling.temperature = temperature;
    std::vector<BatchJob> jobs;
    for (std::int64_t i = 0; i < 12; ++i) {
      const auto length = static_cast<std::size_t>(1 + i * 59 / 11);
      jobs.push_back(batch_job(i, random_ids(60 + static_cast<std::uint64_t>(i), length, 64), 4));
      jobs.back().seed = static_cast<std::uint64_t>(i) + 7;
    }
    const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
    for (const BatchSchedule schedule : kSchedules) {
      for (const std::int32_t lanes : {1, 2, 5, 12}) {
        for (const bool reversed : {false, true}) {
          CAPTURE(lanes);
          setting.options.schedule = schedule;
          setting.options.lanes = lanes;
          std::vector<BatchJob> order = jobs;
          if (reversed) std::reverse(order.begin(), order.end());
          const BatchRun run = run_batch(model, *ops, setting, order);
          check_equal(run, jobs, alone);
          for (const BatchJob& job : jobs) {
            const DecodeStats& stats = run.of(job.number).answer.stats;
            CHECK(stats.prefilled == std::ssize(job.prompt));
            CHECK(stats.rows == (stats.generated - 1) * 4);
          }
        }
      }
    }
  }
}

TEST_CASE("U-16: bad jobs get their reason, the others their answers") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  std::vector<BatchJob> jobs;
  for (std::int64_t i = 0; i < 10; ++i) {
    jobs.push_back(batch_job(i, random_ids(static_cast<std::uint64_t>(i) + 5, 9, 64), 6));
  }
  jobs[2].prompt[4] = 64;
  jobs[4].prompt.clear();
  jobs[5].prompt[0] = -1;
  jobs[6].stop.sequences = {{}};
  jobs[7].prompt = random_ids(1, 65, 64);
  const std::vector<std::string> reasons = {
      "",
      "",
      "id 64 is not below 64",
      "",
      "empty prompt",
      "id -1 is not below 64",
      "`stop`: the sequence is empty",
      "prompt too long: 65 ids exceed the model's context of 64",
      "",
      ""};
  BatchSetting setting;
  std::vector<BatchJob> good;
  for (const BatchJob& job : jobs) {
    if (reasons[static_cast<std::size_t>(job.number)].empty()) good.push_back(job);
  }
  const std::vector<Alone> alone = each_alone(model, *ops, setting, good);
  for (const BatchSchedule schedule : kSchedules) {
    setting.options.schedule = schedule;
    setting.options.lanes = 3;
    const BatchRun run = run_batch(model, *ops, setting, jobs);
    CHECK(run.stats.jobs == 10);
    CHECK(run.stats.errors == 5);
    for (const BatchOutcome& outcome : run.outcomes) {
      CHECK(outcome.error == reasons[static_cast<std::size_t>(outcome.number)]);
    }
    for (std::size_t i = 0; i < good.size(); ++i) check_equal(run.of(good[i].number), alone[i]);
  }
}

TEST_CASE("U-18: a job that is not a number harms nobody") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::nan);
  for (const bool alike : {false, true}) {
    std::vector<BatchJob> jobs;
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::uint64_t seed = alike ? 20 : 20 + static_cast<std::uint64_t>(i);
      std::vector<TokenId> prompt = random_ids(seed, 20, 64);
      std::replace(prompt.begin(), prompt.end(), kNanId, kNanId + 1);
      prompt.push_back(static_cast<TokenId>(i));
      jobs.push_back(batch_job(i, prompt, 5));
    }
    jobs[1].prompt.back() = kNanId;
    BatchSetting setting;
    setting.options.sampling.temperature = 0.0;
    const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
    CHECK(alone[1].error.find("step 1: logits are not finite at position 21") == 0);
    for (const BatchSchedule schedule : kSchedules) {
      setting.options.schedule = schedule;
      const BatchRun run = run_batch(model, *ops, setting, jobs);
      check_equal(run, jobs, alone);
      CHECK(run.stats.errors == 1);
    }
  }
}

TEST_CASE(
    "where memory is refused, jobs wait for each other and fail only where they would alone") {
  const Model model = tiny(TinyModel::ouro);
  const std::int32_t vocab = model.config().vocab;
  const auto ops = cpu();
  for (const BatchSchedule schedule : kSchedules) {
    BatchSetting setting;
    setting.engine.loops = 2;
    setting.options.schedule = schedule;
    setting.options.lanes = 3;
    std::vector<BatchJob> jobs;
    for (std::int64_t i = 0; i < 6; ++i) {
      const auto own = random_ids(static_cast<std::uint64_t>(i) + 40, 9, vocab);
      // Some need a second piece of cache when they have begun, and some begin alike.
      jobs.push_back(batch_job(i, i < 2 ? own : joined(random_ids(1, 240, vocab), own), 16));
    }
    const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
    std::size_t fixed = 0;  // held beside caches
    {
      GuardedOps measured;
      run_batch(model, measured, setting, {batch_job(0, {1}, 1)},
                [&](const BatchStats&) { fixed = measured.live_bytes(); });
    }
    const std::size_t tile =
        KvCache(*ops, setting.engine.plan(model.config())).bytes_to(0, 256, 1) / 16;
    setting.narrow = true;
    std::set<std::int64_t> failures, generated;
    // Alone, the short ones need 2 tiles and the others 17.
    for (const std::size_t tiles : {0u, 1u, 2u, 16u, 17u, 18u, 25u, 33u, 35u, 51u, 85u}) {
      CAPTURE(tiles);
      const auto narrow_run = [&](const std::vector<BatchJob>& some) {
        GuardedOps narrow;
        narrow.limit(fixed + tiles * tile);
        return run_batch(model, narrow, setting, some);
      };
      const BatchRun run = narrow_run(jobs);
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        const BatchOutcome& outcome = run.of(jobs[i].number);
        CHECK(outcome.error.empty() == (tiles >= (i < 2 ? 2 : 17)));
        CHECK(outcome.error == narrow_run({jobs[i]}).outcomes.front().error);
        if (outcome.error.empty()) check_equal(outcome, alone[i]);
        if (!outcome.error.empty()) CHECK(outcome.error.find("no memory: ") == 0);
      }
      failures.insert(run.stats.errors);
      generated.insert(run.stats.generated);
    }
    CHECK(failures.count(0) == 1);
    CHECK(failures.size() > 1);
    CHECK(generated.size() > failures.size());  // some began anew
  }
}

TEST_CASE("nothing to do, and nothing to say") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  for (const BatchSchedule schedule : kSchedules) {
    BatchSetting setting;
    setting.options.schedule = schedule;
    CHECK(run_batch(model, *ops, setting, {}).stats.passes == 0);
    std::vector<BatchJob> jobs;
    for (std::int64_t i = 0; i < 40; ++i) jobs.push_back(batch_job(i, {1, 2, 3}, i % 2));
    const BatchRun run = run_batch(model, *ops, setting, jobs);
    CHECK(run.stats.generated == 20);
    check_equal(run, jobs, each_alone(model, *ops, setting, jobs));
  }
}

TEST_CASE("what cannot work together is refused at entry, by name") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const auto refusal = [&](auto change) -> std::string {
    BatchSetting setting;
    setting.rows = 20;
    setting.options.lanes = 4;
    change(setting);
    Forward forward(model, *ops, setting.engine.plan(model.config()), InitialStates(), setting.rows,
                    setting.rows);
    bool asked = false;
    try {
      generate_batch(
          forward, setting.options,
          [&]() -> std::optional<BatchJob> {
            asked = true;
            return std::nullopt;
          },
          [](const BatchOutcome&) {});
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK_FALSE(asked);
      return error.what();
    }
    return "";
  };
  CHECK(refusal([](BatchSetting&) {}) == "");
  CHECK(refusal([](BatchSetting& s) { s.options.lanes = 0; }) == "`lanes`: 0 is not at least 1");
  CHECK(refusal([](BatchSetting& s) {
          s.options.lanes = 20;
        }).find("`lanes` 20 and `prefill_chunk` 0 do not fit") == 0);
  CHECK(refusal([](BatchSetting& s) { s.options.lanes = INT32_MAX; }).find("`lanes` 2147483647") ==
        0);
  CHECK(refusal([](BatchSetting& s) { s.options.prefill_chunk = 16; }) == "");
  CHECK(refusal([](BatchSetting& s) {
          s.options.prefill_chunk = 17;
        }).find("`lanes` 4 and `prefill_chunk` 17 do not fit") == 0);
  CHECK(refusal([](BatchSetting& s) { s.options.prefill_chunk = -1; }) ==
        "`prefill_chunk`: -1 is negative");
  CHECK(refusal([](BatchSetting& s) {
          s.options.exit = ExitRule::parse("gate:0.5", false);
          s.options.prefill_chunk = 13;  // the selected states need slots too
        }).find("do not fit") != std::string::npos);
  CHECK(refusal([](BatchSetting& s) { s.options.in_sight = 0; }).find("not at least 1") !=
        std::string::npos);
  CHECK(refusal([](BatchSetting& s) { s.options.pool_min_share = 2; }) ==
        "`pool_min_share` needs `pool`");
  CHECK(refusal([](BatchSetting& s) { s.options.pool_min_share = -1; }) ==
        "`pool_min_share`: -1 is negative");
  CHECK(refusal([](BatchSetting& s) {
          s.options.sampling.temperature = -1.0;
        }).find("`temperature`") == 0);
  CHECK(refusal([](BatchSetting& s) {
          s.options.exit.select_only = true;
        }).find("`exit_select` needs `exit`") == 0);
}

}  // namespace
}  // namespace tinyloop
