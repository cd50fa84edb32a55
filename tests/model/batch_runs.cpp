// SPDX-License-Identifier: Apache-2.0
// Runs of batches for the law's tests.
#include "model/batch_runs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "model/pool_runs.h"
#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/prompt/registration.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop {
namespace {

Forward make_forward(const Model& model, Ops& ops, const EngineSetting& setting, std::int32_t rows,
                     std::int32_t slots) {
  return Forward(model, ops, setting.plan(model.config()),
                 InitialStates::parse(setting.initial, model.config()), rows, slots);
}

// What the statistics of the batch and of its answers have to do with each other.
void check_statistics(const BatchRun& run, const BatchSetting& setting, std::int64_t loops) {
  const BatchStats& stats = run.stats;
  std::int64_t generated = 0, prefilled = 0, reused = 0, shared = 0, rows = 0, errors = 0;
  for (const BatchOutcome& outcome : run.outcomes) {
    const DecodeStats& own = outcome.answer.stats;
    generated += own.generated;
    prefilled += own.prefilled;
    reused += own.reused;
    rows += own.rows;
    errors += outcome.error.empty() ? 0 : 1;
    CHECK(own.accepted + own.undrafted == own.generated);
    CHECK(own.loops_run == own.prompt_loops + own.rows);
    CHECK(own.passes == own.rows);  // one row in each pass that it took part in
    CHECK(outcome.queue_ms >= 0.0);
    CHECK(outcome.shared >= 0);
    CHECK(own.reused >= 0);
    shared += outcome.shared;
  }
  CHECK(stats.jobs == std::ssize(run.outcomes));
  CHECK(stats.errors == errors);
  CHECK(stats.busy == 0);
  CHECK(stats.lane_passes <= stats.passes * setting.options.lanes);
  CHECK(stats.passes <= stats.rows);
  if (errors > 0 || setting.narrow) return;  // some of the work is in no answer
  CHECK(stats.generated == generated);
  CHECK(stats.prefilled >= prefilled);  // shared prefixes are nobody's own
  CHECK(stats.reused == reused);
  CHECK(stats.shared == shared);
  CHECK(stats.decode_rows == rows);
  CHECK(stats.rows == stats.decode_rows + stats.prefilled * loops);
}

}  // namespace

std::vector<std::int64_t> BatchRun::order() const {
  std::vector<std::int64_t> numbers;
  for (const BatchOutcome& outcome : outcomes) numbers.push_back(outcome.number);
  return numbers;
}

const BatchOutcome& BatchRun::of(std::int64_t number) const {
  return *std::find_if(outcomes.begin(), outcomes.end(),
                       [&](const BatchOutcome& outcome) { return outcome.number == number; });
}

BatchSetting greedy_setting(BatchSchedule schedule, std::int32_t lanes) {
  BatchSetting setting;
  setting.options.schedule = schedule;
  setting.options.lanes = lanes;
  setting.options.sampling.temperature = 0.0;
  return setting;
}

BatchJob batch_job(std::int64_t number, std::vector<TokenId> prompt, std::int64_t max_tokens) {
  BatchJob job;
  job.number = number;
  job.prompt = std::move(prompt);
  job.stop.max_tokens = max_tokens;
  return job;
}

std::vector<Alone> each_alone(const Model& model, Ops& ops, const BatchSetting& setting,
                              const std::vector<BatchJob>& jobs) {
  std::vector<Alone> all;
  for (const BatchJob& job : jobs) {
    Forward forward = make_forward(model, ops, setting.engine, 16, 16);
    SamplingOptions sampling = setting.options.sampling;
    sampling.seed = job.seed;
    DecodeRequest request;
    request.stop = job.stop;
    request.exit = setting.options.exit;
    request.hash_logits = true;
    Alone alone;
    try {
      alone.answer =
          decode(forward, read_prompt(forward, job.prompt, {}, options_for(request.exit)),
                 Sampler(sampling, model.config().vocab), request);
    } catch (const Error& error) {
      alone.error = error.what();
    }
    all.push_back(std::move(alone));
  }
  return all;
}

BatchRun run_batch(const Model& model, Ops& ops, const BatchSetting& setting,
                   const std::vector<BatchJob>& jobs,
                   const std::function<void(const BatchStats&)>& progress) {
  BatchOptions options = setting.options;
  options.hash_logits = true;
  const std::int32_t rows = setting.rows > 0 ? setting.rows : options.lanes + 16;
  const bool exits = options.exit.kind != ExitRule::Kind::none;
  Forward forward =
      make_forward(model, ops, setting.engine, rows, rows + (exits ? options.lanes : 0));
  std::optional<PrefixPool> pool;
  if (!setting.pool_folder.empty()) {
    pool.emplace(setting.pool_folder, cache_identity(forward));
    options.pool = &*pool;
  }
  BatchRun run;
  std::size_t taken = 0;
  std::map<std::int64_t, std::size_t> index;  // of a number
  for (std::size_t i = 0; i < jobs.size(); ++i) index[jobs[i].number] = i;
  REQUIRE(index.size() == jobs.size());
  std::set<std::size_t> unfinished;
  std::size_t working = 0;
  const auto next = [&]() -> std::optional<BatchJob> {
    if (working == 0) working = forward.working_bytes();
    if (taken == jobs.size()) return std::nullopt;
    unfinished.insert(taken);
    CHECK(static_cast<std::int64_t>(taken - *unfinished.begin()) < options.in_sight);
    return jobs[taken++];
  };
  const auto done = [&](BatchOutcome outcome) {
    CHECK(unfinished.erase(index.at(outcome.number)) == 1);
    run.outcomes.push_back(std::move(outcome));
  };
  run.stats = generate_batch(forward, options, next, done, progress);
  CHECK(taken == jobs.size());
  CHECK(forward.working_bytes() == working);  // caches may take the rest
  CHECK(unfinished.empty());
  check_statistics(run, setting, forward.plan().loops);
  return run;
}

void fill_pool(const Model& model, Ops& ops, const BatchSetting& setting,
               const std::vector<std::vector<TokenId>>& prefixes) {
  Forward forward = make_forward(model, ops, setting.engine, 16, 16);
  PrefixPool pool(setting.pool_folder, cache_identity(forward));
  pool.prepare(PoolSettings{.capacity = 100});
  register_prefixes(forward, pool, prefixes, 0);
}

void damage_pool(const BatchSetting& setting) {
  for (const auto& file : std::filesystem::recursive_directory_iterator(setting.pool_folder)) {
    if (file.path().extension() != ".safetensors") continue;
    std::string content = file_content(file.path());
    content.back() = static_cast<char>(content.back() ^ 16);
    write_content(file.path(), content);
  }
}

void check_equal(const BatchOutcome& outcome, const Alone& alone) {
  CHECK(outcome.error == alone.error);
  if (!alone.error.empty()) return;
  const Answer &got = outcome.answer, &expected = alone.answer;
  CHECK(got.tokens == expected.tokens);
  CHECK(got.stop.kind == expected.stop.kind);
  CHECK(got.stop.matched == expected.stop.matched);
  CHECK(got.stats.logits_hash == expected.stats.logits_hash);
  CHECK(got.stats.generated == expected.stats.generated);
  CHECK(got.stats.exits == expected.stats.exits);
  CHECK(got.stats.loops_saved == expected.stats.loops_saved);
  CHECK(got.stats.rows == expected.stats.rows);
  if (got.stats.generated > 0) {
    CHECK(got.stats.prefilled + got.stats.reused + outcome.shared == expected.stats.prefilled);
  }
}

void check_equal(const BatchRun& run, const std::vector<BatchJob>& jobs,
                 const std::vector<Alone>& alone) {
  CHECK(run.outcomes.size() == jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    INFO("job " << jobs[i].number);
    check_equal(run.of(jobs[i].number), alone[i]);
  }
}

}  // namespace tinyloop
