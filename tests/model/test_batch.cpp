// SPDX-License-Identifier: Apache-2.0
// Batches against each job alone, by equality: whatever the schedule, lanes, order, grouping,
// memory and pool, a job gets the ids, the stop reason and the bits of the logits that decode()
// gives it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "error.h"
#include "guarded_ops.h"
#include "model/batch_runs.h"
#include "model/engine_runs.h"
#include "model/pool_runs.h"
#include "random.h"
#include "schedule/decode.h"
#include "schedule/generate_batch.h"
#include "schedule/prefix_cache.h"
#include "temporary_folder.h"
#include "tiny_models.h"

namespace tinyloop {
namespace {

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
    const std::vector<Answer> alone = each_alone(model, *ops, setting, jobs);
    for (const BatchSchedule schedule : {BatchSchedule::lockstep, BatchSchedule::continuous}) {
      for (const std::int32_t lanes : {1, 2, 5, 12}) {
        for (const bool reversed : {false, true}) {
          CAPTURE(lanes);
          setting.options.schedule = schedule;
          setting.options.lanes = lanes;
          std::vector<BatchJob> order = jobs;
          if (reversed) std::reverse(order.begin(), order.end());
          const BatchRun run = run_batch(model, *ops, setting, order);
          check_equal(run, jobs, alone);
          for (const BatchOutcome& outcome : run.outcomes) {
            const auto& job = jobs[static_cast<std::size_t>(outcome.number)];
            const DecodeStats& stats = outcome.answer.stats;
            CHECK(stats.prefilled + stats.reused == std::ssize(job.prompt));
            CHECK(stats.rows == (stats.generated - 1) * 4);
            CHECK(stats.passes == stats.rows);
            CHECK(stats.loops_run == stats.prompt_loops + stats.rows);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tinyloop
