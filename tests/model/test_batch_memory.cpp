// SPDX-License-Identifier: Apache-2.0
// The memory that a batch's caches may take, counted by hand: which jobs run beside each other,
// which alone and which never. What they share is tested in test_batch_sharing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "guarded_ops.h"
#include "model/batch_runs.h"
#include "model/engine_runs.h"
#include "model/pool_runs.h"
#include "tiny_models.h"
#include "tinyloop/kv/kv_cache.h"

namespace tinyloop {
namespace {

using Order = std::vector<std::int64_t>;

TEST_CASE("lanes hold no more memory together than they may") {
  const Model model = tiny(TinyModel::ouro);
  const auto ops = cpu();
  for (const std::int64_t window : {0, 20}) {
    for (const bool alike : {false, true}) {
      std::vector<BatchJob> jobs;
      for (std::int64_t i = 0; i < 14; ++i) {
        const auto length = static_cast<std::size_t>(i % 3 == 0 ? 280 : 20);
        std::vector<TokenId> prompt =
            alike ? random_ids(8, 100, model.config().vocab) : std::vector<TokenId>();
        prompt =
            joined(prompt, random_ids(static_cast<std::uint64_t>(i), length, model.config().vocab));
        jobs.push_back(batch_job(i, prompt, 3 + i % 5));
      }
      BatchSetting setting = greedy_setting(BatchSchedule::continuous, 8);
      setting.engine.window = window;
      setting.engine.loops = 2;
      const KvCache shape(*ops, setting.engine.plan(model.config()));
      const std::size_t greatest = shape.bytes_to(0, 380 + 8, 16);
      const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
      for (const BatchSchedule schedule : {BatchSchedule::lockstep, BatchSchedule::continuous}) {
        for (const std::size_t halves : {2u, 5u}) {
          CAPTURE(window);
          CAPTURE(alike);
          CAPTURE(halves);
          GuardedOps guarded;
          setting.options.schedule = schedule;
          setting.options.memory = greatest * halves / 2;
          // One token of one id: when it is told, its cache is gone.
          std::size_t before = 0, most = 0;
          run_batch(model, guarded, setting, {batch_job(0, {1}, 1)},
                    [&](const BatchStats&) { before = guarded.live_bytes(); });
          std::int32_t busy = 0;
          const BatchRun run = run_batch(model, guarded, setting, jobs, [&](const BatchStats& now) {
            most = std::max(most, guarded.live_bytes());
            busy = std::max(busy, now.busy);
          });
          check_equal(run, jobs, alone);
          // Beside the caches only the logits' buffer grows, to 8 rows at most.
          const std::size_t logits = 8 * 4 * static_cast<std::size_t>(model.config().vocab);
          CHECK(most - before <= setting.options.memory + logits);
          CHECK(most - before > greatest / 2);
          CHECK(busy > 0);
          if (halves == 5) CHECK(busy > 1);
        }
      }
    }
  }
}

TEST_CASE("a job that never fits says so; a large one is not passed for ever") {
  const Model model = tiny(TinyModel::ouro);
  const auto ops = cpu();
  BatchSetting setting = greedy_setting(BatchSchedule::continuous, 2);
  const KvCache shape(*ops, setting.engine.plan(model.config()));
  const std::size_t tile = shape.bytes_to(0, 16, 16);
  setting.options.memory = 20 * tile;
  std::vector<BatchJob> jobs;
  const auto add = [&](std::size_t length, std::int64_t tokens) {
    const std::int64_t number = std::ssize(jobs);
    std::vector<TokenId> prompt = random_ids(static_cast<std::uint64_t>(number), length, 64);
    prompt[0] = static_cast<TokenId>(number);
    jobs.push_back(batch_job(number, prompt, tokens));
  };
  add(4, 9);
  add(305, 8);  // needs all there is: 312 positions
  for (int i = 0; i < 10; ++i) add(4, i % 2 == 0 ? 5 : 4);
  const BatchRun large = run_batch(model, *ops, setting, jobs);
  CHECK(large.stats.errors == 0);
  // Beside job 0 there is no room for it; with two lanes, two may pass it.
  const Order order = large.order();
  CHECK(std::find(order.begin(), order.end(), 1) - order.begin() == 3);
  --setting.options.memory;
  const BatchRun run = run_batch(model, *ops, setting, jobs);
  CHECK(run.stats.errors == 1);
  CHECK(run.of(1).error == "its keys and values may need " + std::to_string(20 * tile) +
                               " bytes, more than the " + std::to_string(20 * tile - 1) +
                               " of `memory` for all lanes");
}

TEST_CASE("the inputs that a store-h mode keeps count, also where keys and values are shared") {
  const Model model = tiny(TinyModel::ouro);
  const auto ops = cpu();
  const ModelConfig& config = model.config();
  BatchSetting setting = greedy_setting(BatchSchedule::continuous, 4);
  const std::int64_t planes = setting.engine.plan(config).planes();
  // Three tiles of 16 positions: keys and values in f16, and the input of each layer, in f16 too or
  // with a byte a channel and a scale for 32 of them.
  const std::int64_t kv = 48 * planes * 2 * 2 * config.kv_heads * config.head_dim;
  for (const bool bytes : {false, true}) {
    const std::int64_t record =
        bytes ? config.hidden + 4 * ((config.hidden + 31) / 32) : 2 * config.hidden;
    setting.engine.storage = bytes ? StorageMode::h8 : StorageMode::h16;
    const std::int64_t job = kv + 48 * planes * record;
    const std::vector<TokenId> system = random_ids(1, 32, 64);
    std::vector<BatchJob> jobs;
    for (std::int64_t i = 0; i < 6; ++i) {
      std::vector<TokenId> prompt = system;
      prompt.push_back(static_cast<TokenId>(i));
      jobs.push_back(batch_job(i, prompt, 4));
    }
    const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
    const auto most_busy = [&](std::int64_t memory) {
      setting.options.memory = static_cast<std::size_t>(memory);
      std::int32_t busy = 0;
      const BatchRun run = run_batch(model, *ops, setting, jobs, [&](const BatchStats& now) {
        busy = std::max(busy, now.busy);
      });
      check_equal(run, jobs, alone);
      return busy;
    };
    setting.options.grouping = BatchGrouping::none;
    CHECK(most_busy(2 * job) == 2);
    CHECK(most_busy(2 * job - 1) == 1);
    setting.options.grouping = BatchGrouping::prefix;
    // Two of the three tiles are the prefix's, but no input of a layer is.
    const std::int64_t rest = job - kv * 2 / 3, prefix = job * 2 / 3;
    CHECK(most_busy(prefix + 2 * rest) == 2);
    CHECK(most_busy(prefix + 2 * rest - 1) == 1);
    setting.options.memory = static_cast<std::size_t>(job - 1);
    CHECK(run_batch(model, *ops, setting, jobs).stats.errors == 6);
  }
}

TEST_CASE("a bound that nobody asked for refuses no job: one beyond it runs alone") {
  const Model model = tiny(TinyModel::ouro);
  const auto ops = cpu();
  // Two groups that share 20 ids each, single jobs, and every fifth job a block larger.
  std::vector<BatchJob> jobs;
  for (std::int64_t i = 0; i < 15; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    std::vector<TokenId> prompt;
    if (i % 3 < 2) prompt = random_ids(100 + seed % 3, 20, 64);
    prompt = joined(prompt, random_ids(seed, i % 5 == 0 ? 270 : 9, 64));
    jobs.push_back(batch_job(i, prompt, 3 + i % 4));
    jobs.back().priority = i % 2;
  }
  for (const BatchSchedule schedule : {BatchSchedule::lockstep, BatchSchedule::continuous}) {
    BatchSetting setting = greedy_setting(schedule, 4);
    const KvCache shape(*ops, setting.engine.plan(model.config()));
    const std::vector<Alone> alone = each_alone(model, *ops, setting, jobs);
    setting.options.memory_guessed = true;
    for (const std::size_t memory : {std::size_t{1}, shape.bytes_to(0, 256, 16) * 3 / 2}) {
      CAPTURE(memory);
      setting.options.memory = memory;
      std::int32_t busy = 0;
      const BatchRun run = run_batch(model, *ops, setting, jobs, [&](const BatchStats& now) {
        busy = std::max(busy, now.busy);
      });
      CHECK(run.stats.errors == 0);
      check_equal(run, jobs, alone);
      if (memory == 1) CHECK(busy == 1);
    }
  }
}

}  // namespace
}  // namespace tinyloop
