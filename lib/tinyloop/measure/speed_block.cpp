// SPDX-License-Identifier: Apache-2.0
// Sets up the engine for the items, times them, and compares them with the limits.
#include "tinyloop/measure/speed_block.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tinyloop/backend.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/error.h"
#include "tinyloop/measure/speed_runs.h"

namespace tinyloop {
namespace {

// What one number of loops and one storage mode need to run.
struct Engine {
  Forward forward;
  SpeedRuns runs;
  Engine(const Model& model, Ops& ops, const LoopPlan& plan, std::int32_t rows,
         std::int64_t positions)
      : forward(model, ops, plan, InitialStates::parse("", model.config()), rows, rows),
        runs(forward, positions) {}
};

void check_fit(const SpeedItem& item, const ModelConfig& config) {
  if (item.context + item.rows > config.context) {
    throw Error(ErrorKind::usage, "{} rows after {} positions exceed the model's context of {}",
                item.rows, item.context, config.context);
  }
}

// Sets item.work.
TimedWork prepare(SpeedItem& item, SpeedRuns& runs) {
  switch (item.part) {
    case SpeedPart::prefill:
      item.work = runs.prefill_work(item.rows);
      return {[&runs, rows = item.rows] { runs.prefill(rows); }, {}};
    case SpeedPart::decode:
      item.work = runs.decode_work(item.context);
      return {[&runs, context = item.context] { runs.decode(context); }, {}};
    case SpeedPart::pass:
      break;
  }
  item.work = runs.pass_work(item.rows);
  return {[&runs] { runs.pass(); }, [&runs, rows = item.rows] { runs.prepare_pass(rows); }};
}

}  // namespace

void compare_with_limits(SpeedItem& item, const std::vector<SpeedLimit>& limits,
                         std::int64_t weight_bytes, std::size_t cache_bytes) {
  const auto ms_at = [&](Limit limit, std::int64_t amount) {
    const auto found = std::ranges::find(limits, limit, &SpeedLimit::limit);
    if (amount == 0 || found == limits.end()) return 0.0;
    return 1000.0 * static_cast<double>(amount) / found->per_second();
  };
  const auto cache = static_cast<std::int64_t>(cache_bytes);
  const Limit reading = weight_bytes + item.work.kv_bytes < cache ? Limit::cache : Limit::memory;
  const double read_ms = ms_at(reading, item.work.bytes());
  const double float_ms = ms_at(Limit::floats, item.work.float_ops);
  const double int8_ms = ms_at(Limit::int8, item.work.int8_ops);
  item.limit_ms = std::max(read_ms, float_ms + int8_ms);
  item.limit = item.limit_ms == read_ms ? reading
               : float_ms >= int8_ms    ? Limit::floats
                                        : Limit::int8;
}

SpeedBlock measure_speed(const Model& model, Ops& ops, std::vector<SpeedItem> items,
                         std::size_t array_bytes, const TimingOptions& options,
                         const std::function<void(std::int64_t, std::int64_t)>& progress) {
  SpeedBlock block;
  block.items = std::move(items);
  using Setting = std::pair<std::int32_t, StorageMode>;  // what an engine is made for
  const auto plan_of = [&](const Setting& setting) {
    return make_loop_plan(model.config(), setting.first, 0, setting.second);
  };
  std::map<Setting, std::int64_t> positions;
  std::int64_t rows = 1;
  for (const SpeedItem& item : block.items) {
    check_fit(item, model.config());
    rows = std::max(rows, item.rows);
    std::int64_t& max = positions[{item.loops, item.kv}];
    max = std::max(max, item.context + item.rows);
  }
  // The memory's limit is looked for in two arrays.
  MemoryNeed need{weight_bytes(model), 0, 2 * static_cast<std::int64_t>(array_bytes)};
  for (const auto& [setting, max] : positions) {
    need.working += working_bytes(model.config(), rows, rows, 1);
    need.cache += kv_bytes(plan_of(setting), max, rows);
  }
  check_memory(ops, need);
  const std::vector<LimitProbe> probes = limit_probes(ops, array_bytes);

  std::map<Setting, Engine> engines;
  std::vector<TimedWork> work, limits;
  for (SpeedItem& item : block.items) {
    const Setting setting{item.loops, item.kv};
    Engine& engine = engines
                         .try_emplace(setting, model, ops, plan_of(setting),
                                      static_cast<std::int32_t>(rows), positions[setting])
                         .first->second;
    work.push_back(prepare(item, engine.runs));
  }
  for (const LimitProbe& probe : probes) limits.push_back({probe.run, {}});
  Timings timings = time_in_turn(work, limits, options, progress);

  for (std::size_t i = 0; i < probes.size(); ++i) {
    block.limits.push_back(
        {probes[i].limit, probes[i].amount, std::move(timings.limits[i]), probes[i].pattern});
  }
  const LoopPlan one_loop = make_loop_plan(model.config(), 1, 0);
  block.weight_bytes = WorkCount(model, one_loop).all({0, 1}).weight_bytes;
  // A device without a limit of its cache is measured against its memory.
  const bool cached = std::ranges::find(probes, Limit::cache, &LimitProbe::limit) != probes.end();
  const std::size_t cache_bytes = cached ? last_level_cache_bytes() : 0;
  for (std::size_t i = 0; i < block.items.size(); ++i) {
    block.items[i].timing = std::move(timings.work[i]);
    compare_with_limits(block.items[i], block.limits, block.weight_bytes, cache_bytes);
  }
  for (const auto& [key, engine] : engines) {
    block.working_bytes += static_cast<std::int64_t>(engine.forward.working_bytes());
    block.cache_bytes += static_cast<std::int64_t>(engine.runs.cache_bytes());
  }
  return block;
}

}  // namespace tinyloop
