// SPDX-License-Identifier: Apache-2.0
// Runs of batches, and of each of their jobs alone by decode().
// Not a reference: that is reference_model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/ops.h"
#include "model/engine_runs.h"
#include "model/model.h"
#include "schedule/generate_batch.h"

namespace tinyloop {

struct BatchSetting {
  BatchSetting() { engine.loops = 4; }

  BatchOptions options;  // kv is the engine's
  EngineSetting engine;
  std::int32_t rows = 0;    // of the forward pass; 0: lanes + 16
  std::string pool_folder;  // empty: none
};

struct BatchRun {
  std::vector<BatchOutcome> outcomes;  // as they came
  BatchStats stats;
  std::int64_t most_in_sight = 0;  // jobs taken and not ended, the oldest of those counted from
};

BatchJob batch_job(std::int64_t number, std::vector<TokenId> prompt, std::int64_t max_tokens);

// Each by itself, on a forward pass of its own.
std::vector<Answer> each_alone(const Model& model, Ops& ops, const BatchSetting& setting,
                               const std::vector<BatchJob>& jobs);
BatchRun run_batch(const Model& model, Ops& ops, const BatchSetting& setting,
                   const std::vector<BatchJob>& jobs);

// One outcome for each job, equal to alone[its number], without an error.
void check_equal(const BatchRun& run, const std::vector<BatchJob>& jobs,
                 const std::vector<Answer>& alone);
void check_equal(const BatchOutcome& outcome, const Answer& alone);

}  // namespace tinyloop
