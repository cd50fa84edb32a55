// SPDX-License-Identifier: Apache-2.0
// Runs of batches for the law's tests.
#include "model/batch_runs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "kv/prefix_pool.h"
#include "schedule/decode.h"
#include "schedule/prefix_cache.h"

namespace tinyloop {

BatchJob batch_job(std::int64_t number, std::vector<TokenId> prompt, std::int64_t max_tokens) {
  BatchJob job;
  job.number = number;
  job.prompt = std::move(prompt);
  job.stop.max_tokens = max_tokens;
  return job;
}

std::vector<Answer> each_alone(const Model& model, Ops& ops, const BatchSetting& setting,
                               const std::vector<BatchJob>& jobs) {
  const LoopPlan plan = setting.engine.plan(model.config());
  std::vector<Answer> answers;
  for (const BatchJob& job : jobs) {
    Forward forward(model, ops, plan, InitialStates::parse(setting.engine.initial, model.config()),
                    16, 16);
    KvCache cache(ops, plan, setting.engine.kv);
    SamplingOptions sampling = setting.options.sampling;
    sampling.seed = job.seed;
    DecodeRequest request;
    request.prompt = job.prompt;
    request.stop = job.stop;
    request.exit = setting.options.exit;
    request.hash_logits = true;
    answers.push_back(decode(forward, cache, Sampler(sampling, model.config().vocab), request));
  }
  return answers;
}

BatchRun run_batch(const Model& model, Ops& ops, const BatchSetting& setting,
                   const std::vector<BatchJob>& jobs) {
  BatchOptions options = setting.options;
  options.kv = setting.engine.kv;
  options.hash_logits = true;
  const std::int32_t rows = setting.rows > 0 ? setting.rows : options.lanes + 16;
  const bool exits = options.exit.kind != ExitRule::Kind::none;
  Forward forward(model, ops, setting.engine.plan(model.config()),
                  InitialStates::parse(setting.engine.initial, model.config()), rows,
                  rows + (exits ? options.lanes : 0));
  std::optional<PrefixPool> pool;
  if (!setting.pool_folder.empty()) {
    pool.emplace(setting.pool_folder, cache_identity(forward, options.kv));
    options.pool = &*pool;
  }
  BatchRun run;
  std::size_t taken = 0;
  std::map<std::int64_t, std::int64_t> index;  // of a number
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    index[jobs[i].number] = static_cast<std::int64_t>(i);
  }
  std::set<std::int64_t> unfinished;
  run.stats = generate_batch(
      forward, options,
      [&]() -> std::optional<BatchJob> {
        if (taken == jobs.size()) return std::nullopt;
        unfinished.insert(static_cast<std::int64_t>(taken));
        run.most_in_sight =
            std::max(run.most_in_sight, static_cast<std::int64_t>(taken) - *unfinished.begin() + 1);
        return jobs[taken++];
      },
      [&](BatchOutcome outcome) {
        CHECK(unfinished.erase(index.at(outcome.number)) == 1);
        run.outcomes.push_back(std::move(outcome));
      });
  CHECK(taken == jobs.size());
  CHECK(unfinished.empty());
  CHECK(run.most_in_sight <= options.in_sight);
  return run;
}

void check_equal(const BatchOutcome& outcome, const Answer& alone) {
  CHECK(outcome.error == "");
  CHECK(outcome.answer.tokens == alone.tokens);
  CHECK(outcome.answer.stop.kind == alone.stop.kind);
  CHECK(outcome.answer.stop.matched == alone.stop.matched);
  CHECK(outcome.answer.stats.logits_hash == alone.stats.logits_hash);
  CHECK(outcome.answer.stats.generated == alone.stats.generated);
  CHECK(outcome.answer.stats.exits == alone.stats.exits);
  CHECK(outcome.answer.stats.loops_saved == alone.stats.loops_saved);
}

void check_equal(const BatchRun& run, const std::vector<BatchJob>& jobs,
                 const std::vector<Answer>& alone) {
  CHECK(run.outcomes.size() == jobs.size());
  for (const BatchOutcome& outcome : run.outcomes) {
    INFO("job " << outcome.number);
    check_equal(outcome, alone[static_cast<std::size_t>(outcome.number)]);
  }
}

}  // namespace tinyloop
