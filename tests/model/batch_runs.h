// SPDX-License-Identifier: Apache-2.0
// Runs of batches, and of each of their jobs alone by decode().
// Not a reference: that is reference_model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/engine_runs.h"
#include "tinyloop/batch/generate_batch.h"
#include "tinyloop/device/ops.h"
#include "tinyloop/model/model.h"

namespace tinyloop {

struct BatchSetting {
  BatchSetting() { engine.loops = 4; }

  BatchOptions options;  // kv is the engine's
  EngineSetting engine;
  std::int32_t rows = 0;    // of the forward pass; 0: 16 more than lanes
  std::string pool_folder;  // empty: none
  bool narrow = false;      // the device may refuse memory: jobs may begin twice
};

struct BatchRun {
  std::vector<BatchOutcome> outcomes;  // in the order they came
  BatchStats stats;

  std::vector<std::int64_t> order() const;  // the outcomes' numbers
  const BatchOutcome& of(std::int64_t number) const;
};

// What decode() makes of a job.
struct Alone {
  Answer answer;
  std::string error;  // may be empty
};

// At temperature 0.
BatchSetting greedy_setting(BatchSchedule schedule, std::int32_t lanes);
// Greedy unless the options say otherwise.
BatchJob batch_job(std::int64_t number, std::vector<TokenId> prompt, std::int64_t max_tokens);

// Each on a forward pass of its own, in the order of jobs.
std::vector<Alone> each_alone(const Model& model, Ops& ops, const BatchSetting& setting,
                              const std::vector<BatchJob>& jobs);
// Checks on the way that each job ends once, that no more are in sight than may be and that the
// statistics are those of the answers. The jobs' numbers differ.
BatchRun run_batch(const Model& model, Ops& ops, const BatchSetting& setting,
                   const std::vector<BatchJob>& jobs,
                   const std::function<void(const BatchStats&)>& progress = {});

// Registers each of `prefixes` in the setting's pool.
void fill_pool(const Model& model, Ops& ops, const BatchSetting& setting,
               const std::vector<std::vector<TokenId>>& prefixes);
// Changes the last plane of every entry.
void damage_pool(const BatchSetting& setting);

// Everything that must not depend on the company.
void check_equal(const BatchOutcome& outcome, const Alone& alone);
// The same for all, jobs and alone in one order.
void check_equal(const BatchRun& run, const std::vector<BatchJob>& jobs,
                 const std::vector<Alone>& alone);

}  // namespace tinyloop
