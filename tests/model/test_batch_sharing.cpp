// SPDX-License-Identifier: Apache-2.0
// What a batch shares and saves, counted by hand: rows, passes, prefixes, the pool; and the order
// in which jobs run. That answers stay what they are is tested in test_batch, memory in
// test_batch_memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "model/batch_runs.h"
#include "model/engine_runs.h"
#include "model/pool_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/prompt/prompt.h"

namespace tinyloop {
namespace {

using Order = std::vector<std::int64_t>;

// Jobs of `length` ids without common prefixes that generate as many tokens as `counts` says.
std::vector<BatchJob> plain_jobs(std::size_t length, const std::vector<std::int64_t>& counts) {
  std::vector<BatchJob> jobs;
  for (const std::int64_t count : counts) {
    const std::int64_t number = std::ssize(jobs);
    std::vector<TokenId> prompt = random_ids(static_cast<std::uint64_t>(number) + 9, length, 64);
    prompt[0] = static_cast<TokenId>(number);
    jobs.push_back(batch_job(number, prompt, count));
  }
  return jobs;
}

TEST_CASE("lockstep: all lanes step together, and a finished one has no rows") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const std::vector<BatchJob> jobs = plain_jobs(4, {1, 3, 6, 2, 4});
  const BatchSetting setting = greedy_setting(BatchSchedule::lockstep, 3);
  const BatchRun run = run_batch(model, *ops, setting, jobs);
  check_equal(run, jobs, each_alone(model, *ops, setting, jobs));
  CHECK(run.order() == Order{0, 1, 2, 3, 4});
  // Prompts of 3 lanes in one chunk, then 5 steps; of 2 lanes, then 3. The first token of each is
  // the prompt's.
  CHECK(run.stats.passes == 4 * (1 + 5 + 1 + 3));
  CHECK(run.stats.decode_rows == 4 * (0 + 2 + 5 + 1 + 3));
  CHECK(run.stats.rows == run.stats.decode_rows + 4 * 5 * 4);
  CHECK(run.stats.lane_passes == run.stats.decode_rows + 4 * 5);
}

TEST_CASE("a prompt of many chunks: lockstep waits for it, and no other prompt does") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  std::vector<BatchJob> jobs = plain_jobs(4, {3, 3});
  jobs[0].prompt = random_ids(77, 20, 64);
  for (const BatchSchedule schedule : {BatchSchedule::lockstep, BatchSchedule::continuous}) {
    const bool lockstep = schedule == BatchSchedule::lockstep;
    BatchSetting setting = greedy_setting(schedule, 2);
    setting.options.prefill_chunk = 5;
    const BatchRun run = run_batch(model, *ops, setting, jobs);
    check_equal(run, jobs, each_alone(model, *ops, setting, jobs));
    // Chunks of 5, 4 + 1, 5, 5 and 4 ids, the second one with all of job 1. Its two steps are made
    // beside the next chunks, or with those of job 0.
    CHECK(run.stats.passes == 4 * (5 + 2));
    CHECK(run.order() == (lockstep ? Order{0, 1} : Order{1, 0}));
  }
}

TEST_CASE("continuous: a free place is filled at once, and newcomers stall nobody") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const std::vector<BatchJob> jobs = plain_jobs(4, {1, 3, 6, 2, 4});
  BatchSetting setting = greedy_setting(BatchSchedule::continuous, 3);
  const BatchRun run = run_batch(model, *ops, setting, jobs);
  check_equal(run, jobs, each_alone(model, *ops, setting, jobs));
  // The longest begin first: job 2 has its place for 6 turns of 4 passes, job 4 for 4 and then job
  // 0 for one, which comes out of its prompt, job 1 for 3 and then job 3 for two.
  CHECK(run.order() == Order{1, 4, 3, 0, 2});
  CHECK(run.stats.passes == 4 * 6);
  CHECK(run.stats.lane_passes == 4 * (1 + 3 + 6 + 2 + 4));
  // A prompt of 40 ids, 5 at a time, beside a lane that goes on: 8 chunks in as many turns.
  std::vector<BatchJob> two = plain_jobs(4, {20, 1});
  two[1].prompt = random_ids(77, 40, 64);
  setting.options.prefill_chunk = 5;
  const BatchRun mixed = run_batch(model, *ops, setting, two);
  check_equal(mixed, two, each_alone(model, *ops, setting, two));
  CHECK(mixed.stats.passes == 4 * 20);
}

TEST_CASE("lanes stand at their own loops: where a rule lets go, the next token enters at once") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const std::vector<BatchJob> jobs = plain_jobs(6, {30, 30, 30, 30});
  BatchSetting setting = greedy_setting(BatchSchedule::continuous, 4);
  setting.engine.loops = 8;
  setting.rows = 30;
  setting.options.exit = ExitRule::parse("latent:0.35", false);
  const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
  const BatchRun run = run_batch(model, *ops, setting, jobs);
  check_equal(run, jobs, alone);
  std::int64_t longest = 0, all = 0;
  std::set<std::int64_t> different;
  for (const Alone& one : alone) {
    longest = std::max(longest, one.answer.stats.rows);
    all += one.answer.stats.rows;
    different.insert(one.answer.stats.rows);
  }
  REQUIRE(all < 4 * 29 * 8);
  REQUIRE(different.size() > 1);
  // 5 positions of a prompt, then the last one: 8 loops each.
  CHECK(run.stats.passes == longest + 16);
  setting.options.schedule = BatchSchedule::lockstep;
  const BatchRun steps = run_batch(model, *ops, setting, jobs);
  check_equal(steps, jobs, alone);
  CHECK(steps.stats.decode_rows == all);
  CHECK(steps.stats.passes > run.stats.passes);
}

TEST_CASE("a shared prefix is computed once, nested ones too") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const std::vector<TokenId> system = random_ids(1, 20, 64),
                             shots = joined(system, random_ids(2, 17, 64));
  std::vector<BatchJob> jobs;
  for (std::int64_t i = 0; i < 9; ++i) {
    std::vector<TokenId> prompt = i % 3 == 0 ? system : shots;
    prompt.push_back(static_cast<TokenId>(i));
    prompt.push_back(5);
    jobs.push_back(batch_job(i, prompt, 6));
    jobs.back().group = "g";
  }
  for (const BatchSchedule schedule : {BatchSchedule::lockstep, BatchSchedule::continuous}) {
    for (const std::int32_t lanes : {1, 4, 9}) {
      BatchSetting setting = greedy_setting(schedule, lanes);
      const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
      setting.options.grouping = BatchGrouping::none;
      const BatchRun none = run_batch(model, *ops, setting, jobs);
      check_equal(none, jobs, alone);
      CHECK(none.stats.prefilled == 3 * 22 + 6 * 39);
      CHECK(none.stats.shared == 0);
      CHECK(none.stats.reused == 0);
      for (const BatchGrouping grouping : {BatchGrouping::prefix, BatchGrouping::key}) {
        setting.options.grouping = grouping;
        const BatchRun run = run_batch(model, *ops, setting, jobs);
        check_equal(run, jobs, alone);
        CHECK(run.stats.prefilled == 37 + 9 * 2);
        CHECK(run.stats.shared == 3 * 20 + 6 * 37);
        CHECK(run.stats.reused == 0);
        CHECK(run.of(3).shared == 20);
        CHECK(run.of(4).shared == 37);
        CHECK(run.of(4).answer.stats.reused == 0);
      }
    }
  }
}

TEST_CASE("many samples of one prompt read it once") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  BatchSetting setting;
  setting.options.sampling.temperature = 1.0;
  std::vector<BatchJob> jobs;
  for (std::int64_t i = 0; i < 30; ++i) {
    jobs.push_back(batch_job(i, random_ids(3, 30, 64), 5));
    jobs.back().seed = static_cast<std::uint64_t>(i);
  }
  const BatchRun run = run_batch(model, *ops, setting, jobs);
  check_equal(run, jobs, each_alone(model, *ops, setting, jobs));
  CHECK(run.stats.prefilled == 29 + 30);
}

TEST_CASE("the order in which jobs run") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const std::vector<TokenId> a = random_ids(1, 18, 64), b = random_ids(2, 18, 64);
  std::vector<BatchJob> jobs;
  for (std::int64_t i = 0; i < 8; ++i) {
    std::vector<TokenId> prompt = i % 2 == 0 ? a : b;
    prompt.push_back(static_cast<TokenId>(40 - i));
    jobs.push_back(batch_job(i, prompt, 2));
    jobs.back().group = i % 4 < 2 ? "x" : "y";
  }
  BatchSetting setting = greedy_setting(BatchSchedule::continuous, 1);
  setting.options.in_sight = 16;
  const auto order = [&](BatchGrouping grouping) {
    setting.options.grouping = grouping;
    return run_batch(model, *ops, setting, jobs).order();
  };
  CHECK(order(BatchGrouping::none) == Order{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(order(BatchGrouping::prefix) == Order{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(order(BatchGrouping::key) == Order{0, 4, 1, 5, 2, 6, 3, 7});
  jobs[5].priority = 3;
  jobs[6].priority = 3;
  jobs[0].priority = -1;
  CHECK(order(BatchGrouping::none) == Order{5, 6, 1, 2, 3, 4, 7, 0});
  CHECK(order(BatchGrouping::prefix) == Order{5, 6, 1, 3, 7, 2, 4, 0});
  // What is not in sight cannot go first.
  setting.options.in_sight = 2;
  CHECK(order(BatchGrouping::none) == Order{1, 0, 2, 3, 5, 4, 6, 7});
  jobs[4].group.clear();
  setting.options.grouping = BatchGrouping::key;
  const BatchRun run = run_batch(model, *ops, setting, jobs);
  CHECK(run.stats.errors == 1);
  CHECK(run.of(4).error == "it has no group, which grouping by key requires");
}

// --- the pool ------------------------------------------------------------------------------------

TEST_CASE("hits, crops and misses of a pool are counted, here and there") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  BatchSetting setting = greedy_setting(BatchSchedule::continuous, 2);
  setting.pool_folder = folder.file("pool");
  setting.options.grouping = BatchGrouping::none;
  const std::vector<TokenId> entry = random_ids(1, 30, 64);
  fill_pool(model, *ops, setting, {entry});
  std::vector<BatchJob> jobs;
  jobs.push_back(batch_job(0, entry, 4));
  jobs.push_back(batch_job(1, joined(entry, random_ids(2, 5, 64)), 4));
  jobs.push_back(batch_job(2, {entry.begin(), entry.begin() + 22}, 4));
  jobs.push_back(batch_job(3, random_ids(3, 10, 64), 4));
  jobs.push_back(batch_job(4, entry, 0));  // an answer of no tokens asks nobody
  const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
  const BatchRun run = run_batch(model, *ops, setting, jobs);
  check_equal(run, jobs, alone);
  CHECK(run.of(0).answer.stats.reused == 29);  // its last position runs again
  CHECK(run.of(1).answer.stats.reused == 30);
  CHECK(run.of(2).answer.stats.reused == 21);
  CHECK(run.of(3).answer.stats.reused == 0);
  CHECK(run.stats.prefilled == 1 + 5 + 1 + 10);
  CHECK(run.stats.pool_hits == 3);
  CHECK(run.stats.pool_misses == 1);
  CHECK(run.stats.warning == "");
  const PoolCounts counts = PrefixPool(setting.pool_folder, {}).counts();
  CHECK(counts.hits == 3);
  CHECK(counts.misses == 1);
  setting.options.pool_crop = false;
  CHECK(run_batch(model, *ops, setting, jobs).of(2).answer.stats.reused == 0);
  damage_pool(setting);
  const BatchRun damaged = run_batch(model, *ops, setting, jobs);
  check_equal(damaged, jobs, alone);
  CHECK(damaged.stats.pool_hits == 0);
  CHECK(damaged.stats.warning.find("plane") != std::string::npos);
  // Not a pool, and nothing that could be read as one.
  setting.pool_folder = folder.file("file");
  write_content(setting.pool_folder, "x");
  const BatchRun without = run_batch(model, *ops, setting, jobs);
  check_equal(without, jobs, alone);
  CHECK(without.stats.pool_hits + without.stats.pool_misses == 0);
  CHECK(without.stats.warning != "");
}

TEST_CASE("a job begins with the longer of a shared prefix and a pool entry") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  BatchSetting setting = greedy_setting(BatchSchedule::continuous, 3);
  setting.pool_folder = folder.file("pool");
  const std::vector<TokenId> system = random_ids(1, 20, 64);
  std::vector<BatchJob> jobs;
  for (std::int64_t i = 0; i < 4; ++i) {
    jobs.push_back(
        batch_job(i, joined(system, std::vector<TokenId>(5, static_cast<TokenId>(i))), 3));
  }
  const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
  fill_pool(model, *ops, setting, {{system.begin(), system.begin() + 17}});
  const BatchRun shorter = run_batch(model, *ops, setting, jobs);
  check_equal(shorter, jobs, alone);
  CHECK(shorter.stats.prefilled == 3 + 4 * 5);
  CHECK(shorter.of(0).shared == 3);
  CHECK(shorter.of(0).answer.stats.reused == 17);
  CHECK(shorter.stats.pool_hits == 4);
  fill_pool(model, *ops, setting, {jobs[3].prompt});
  const BatchRun longer = run_batch(model, *ops, setting, jobs);
  check_equal(longer, jobs, alone);
  // All but the last id of the prefix are in the pool now.
  CHECK(longer.stats.prefilled == 1 + 3 * 5 + 1);
  CHECK(longer.of(0).answer.stats.reused == 20);
  CHECK(longer.of(3).answer.stats.reused == 24);
}

TEST_CASE("prefixes of enough jobs are registered before their jobs run") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn}) {
    const Model own = tiny(which);
    const TemporaryFolder folder;
    BatchSetting setting = greedy_setting(BatchSchedule::continuous, 3);
    setting.pool_folder = folder.file("pool");
    setting.options.pool_min_share = 3;
    fill_pool(own, *ops, setting, {});
    const std::vector<TokenId> system = random_ids(1, 20, 64),
                               shots = joined(system, random_ids(2, 18, 64));
    std::vector<BatchJob> jobs;
    for (std::int64_t i = 0; i < 5; ++i) {
      std::vector<TokenId> prompt = i < 2 ? shots : system;
      prompt.push_back(static_cast<TokenId>(i));
      jobs.push_back(batch_job(i, prompt, 3));
    }
    const std::vector<Alone> alone = each_alone(own, *ops, setting, jobs);
    const BatchRun run = run_batch(own, *ops, setting, jobs);
    check_equal(run, jobs, alone);
    PrefixPool pool(setting.pool_folder, {});
    CHECK(pool.size() == 1);
    CHECK(pool.cached_tokens() == 20);
    // The pool has it now for whoever comes.
    for (const BatchOutcome& outcome : run.outcomes) CHECK(outcome.answer.stats.reused == 20);
    setting.options.pool_min_share = 2;
    const BatchRun again = run_batch(own, *ops, setting, jobs);
    check_equal(again, jobs, alone);
    CHECK(pool.cached_tokens() == 20 + 38);
    CHECK(again.stats.prefilled == 18 + 5);
    CHECK(run_batch(own, *ops, setting, jobs).stats.prefilled == 5);
    // What was registered is what register_prefixes() would have written.
    Forward forward(own, *ops, setting.engine.plan(own.config()),
                    InitialStates::parse("", own.config()), 16, 16);
    PrefixPool same(setting.pool_folder, cache_identity(forward));
    const PoolMatch match = same.lookup(shots);
    REQUIRE(match.kind == MatchKind::whole);
    match.snapshot->verify_all();
    const Prompt fresh = read_prompt(forward, shots);
    std::vector<std::byte> plane(static_cast<std::size_t>(match.snapshot->shape().plane_bytes()));
    for (std::int32_t i = 0; i < fresh.cache.planes(); ++i) {
      fresh.cache.read_plane(i, plane);
      CHECK(std::ranges::equal(
          plane,
          match.snapshot->kv().subspan(static_cast<std::size_t>(i) * plane.size(), plane.size())));
    }
    // Nothing can be written: one warning, the same answers.
    setting.pool_folder = folder.file("file");
    write_content(setting.pool_folder, "x");
    const BatchRun without = run_batch(own, *ops, setting, jobs);
    check_equal(without, jobs, alone);
    CHECK(without.stats.warning != "");
  }
}

TEST_CASE("a pool of something else is refused at entry") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  BatchSetting setting;
  Forward forward(model, *ops, setting.engine.plan(model.config()), InitialStates(), 32, 32);
  setting.engine.storage = StorageMode::int8;
  Forward other(model, *ops, setting.engine.plan(model.config()), InitialStates(), 32, 32);
  PrefixPool pool(folder.file("pool"), cache_identity(other));
  setting.options.pool = &pool;
  const auto none = []() -> std::optional<BatchJob> { return std::nullopt; };
  CHECK_THROWS_AS(generate_batch(forward, setting.options, none, [](const BatchOutcome&) {}),
                  Error);
  CHECK(generate_batch(other, setting.options, none, [](const BatchOutcome&) {}).jobs == 0);
  setting.options.pool_min_share = 2;
  // More rows than 32 bits hold.
  setting.options.lanes = 1000000000;
  CHECK_THROWS_WITH_AS(generate_batch(other, setting.options, none, [](const BatchOutcome&) {}),
                       doctest::Contains("`lanes` 1000000000 and"), Error);
  setting.options.lanes = 16;
  setting.options.grouping = BatchGrouping::none;
  CHECK_THROWS_AS(generate_batch(other, setting.options, none, [](const BatchOutcome&) {}), Error);
}

}  // namespace
}  // namespace tinyloop
