// SPDX-License-Identifier: Apache-2.0
// The forward pass, schedules and pool on the CUDA device, in the emulator or on a GPU: the law of
// one answer where it holds there (few rows), closeness to the CPU, and the golden vectors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/cuda_device.h"
#include "model/checkpoint_folder.h"
#include "model/golden_files.h"
#include "model/pool_runs.h"
#include "temporary_folder.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/error.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/prompt/prefill.h"
#include "tinyloop/prompt/prompt.h"

namespace tinyloop {
namespace {

using cuda::WorkOrder;

double greatest_difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double greatest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    greatest = std::max(greatest, static_cast<double>(std::fabs(a[i] - b[i])));
  }
  return greatest;
}

double rms_error(std::span<const float> logits, const Doubles& exact) {
  REQUIRE(logits.size() == exact.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += (logits[i] - exact[i]) * (logits[i] - exact[i]);
  }
  return std::sqrt(sum / static_cast<double>(logits.size()));
}

// Where activations, keys or values are rounded to a few bits, a last bit may become a whole step:
// the device may then be as far from exact arithmetic as the CPU is, and not much further.
void check_as_good_as_cpu(const Model& model, const EngineSetting& setting,
                          std::span<const TokenId> ids, std::size_t prompt,
                          std::span<const float> logits) {
  ReferenceOptions options;
  options.loops = setting.loops;
  options.window = setting.window;
  const Doubles exact =
      run_reference(model.config(), reference_weights(model), ids, options).logits;
  const auto plain = cpu("", 1);
  const double on_cpu = rms_error(all_logits(model, *plain, setting, ids, prompt), exact);
  CAPTURE(on_cpu);
  CHECK(rms_error(logits, exact) < 1.5 * on_cpu + 1e-3);
}

EngineSetting chunked(std::int64_t chunk, StorageMode kv = StorageMode::f16,
                      std::int64_t window = 0) {
  EngineSetting setting;
  setting.chunk = chunk;
  setting.storage = kv;
  setting.window = window;
  setting.loops = 3;
  return setting;
}

TEST_CASE("few rows: chunks, the order of work and graphs do not change a bit") {
  struct Case {
    TinyModel model;
    WeightType type;
    StorageMode kv;
    std::int64_t window;
  };
  const Case cases[] = {
      {TinyModel::odd, WeightType::f32, StorageMode::f32, 0},
      {TinyModel::m, WeightType::f16, StorageMode::f16, 0},
      {TinyModel::ouro, WeightType::q8, StorageMode::int8, 0},
      {TinyModel::nanbeige, WeightType::bf16, StorageMode::int4, 9},
      {TinyModel::relaxed, WeightType::q4, StorageMode::f16, 17},
  };
  for (const Case& c : cases) {
    const Model model = tiny(c.model, c.type);
    CAPTURE(model.path());
    const std::vector<TokenId> ids = random_ids(7, 22, model.config().vocab);
    EngineSetting setting = chunked(1, c.kv, c.window);
    CudaDevice late(WorkOrder::late), early(WorkOrder::early);
    const std::vector<float> expected = all_logits(model, late.ops(), setting, ids, 18);
    CHECK(late.ops().graph_launches() > 0);
    CHECK(same_bits(all_logits(model, early.ops(), setting, ids, 18), expected));
    for (const std::int64_t chunk : {5, 16, 18}) {
      setting.chunk = chunk;
      CHECK(same_bits(all_logits(model, late.ops(), setting, ids, 18), expected));
    }
    check_as_good_as_cpu(model, setting, ids, 18, expected);
    if (late.emulated()) CHECK(late.runtime().count("gemm") == 0);
  }
}

TEST_CASE("many rows go through cuBLAS, close to the CPU and repeatable") {
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q8,
                                WeightType::q4, WeightType::q4_1}) {
    const Model model = tiny(TinyModel::ouro, type);
    CAPTURE(model.path());
    const std::vector<TokenId> ids = random_ids(8, 40, model.config().vocab);
    CudaDevice device;
    const EngineSetting setting = chunked(36);
    const std::vector<float> logits = all_logits(model, device.ops(), setting, ids, 36);
    if (device.emulated()) CHECK(device.runtime().count("gemm") > 0);
    CHECK(same_bits(all_logits(model, device.ops(), setting, ids, 36), logits));
    if (is_quantised(type)) {
      check_as_good_as_cpu(model, setting, ids, 36, logits);
      continue;
    }
    // Activations have 24, 11 or 8 bits in the products.
    const double bound = type == WeightType::f32 ? 2e-3 : type == WeightType::f16 ? 3e-2 : 3e-1;
    const auto plain = cpu("", 1);
    CHECK(greatest_difference(all_logits(model, *plain, setting, ids, 36), logits) < bound);
  }
}

TEST_CASE("rows of several sequences at different loops share a pass without a trace") {
  CudaDevice device;
  Ops& ops = device.ops();
  const Model model = tiny(TinyModel::huginn, WeightType::f16);
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  const LoopPlan plan = make_loop_plan(model.config(), 3, 0);
  Forward forward(model, ops, plan, InitialStates::parse("", model.config()), 16, 16);
  constexpr std::int32_t kLanes = 3;
  std::vector<KvCache> caches;
  std::vector<std::vector<TokenId>> ids;
  std::vector<Row> rows;
  caches.reserve(kLanes);
  for (std::int32_t lane = 0; lane < kLanes; ++lane) {
    ids.push_back(random_ids(20 + static_cast<std::uint64_t>(lane),
                             static_cast<std::size_t>(3 + 9 * lane), model.config().vocab));
    KvCache& cache = caches.emplace_back(ops, plan);
    prefill(forward, cache, std::span(ids.back()).first(ids.back().size() - 1), 0);
    cache.reserve(std::ssize(ids.back()));
    rows.push_back({&cache, cache.length(), ids.back().back(), lane, 0});
  }
  // Lane i starts i passes later than lane 0.
  for (std::int32_t step = 0; step < plan.loops + kLanes - 1; ++step) {
    if (step < kLanes) forward.enter(std::span(rows).subspan(static_cast<std::size_t>(step), 1));
    std::vector<Row> moving;
    for (std::int32_t lane = 0; lane <= std::min(step, kLanes - 1); ++lane) {
      if (rows[static_cast<std::size_t>(lane)].loop < plan.loops) {
        moving.push_back(rows[static_cast<std::size_t>(lane)]);
      }
    }
    forward.pass(moving);
    for (const Row& row : moving) rows[static_cast<std::size_t>(row.slot)] = row;
  }
  const std::vector<std::int32_t> wanted = {0, 1, 2};
  const std::span<const float> together = forward.leave(rows, wanted);
  const std::vector<float> logits(together.begin(), together.end());
  for (std::size_t lane = 0; lane < rows.size(); ++lane) {
    const std::vector<float> alone =
        all_logits(model, ops, chunked(1), ids[lane], ids[lane].size());
    CHECK(same_bits(std::span(logits).subspan(lane * vocab, vocab), std::span(alone).last(vocab)));
  }
}

TEST_CASE("every schedule gives plain decoding's stream") {
  CudaDevice device;
  const Model model = tiny(TinyModel::m, WeightType::f16);
  const LoopPlan plan = make_loop_plan(model.config(), 4, 0);
  Forward forward(model, device.ops(), plan, InitialStates::parse("", model.config()), 16, 16);
  const std::vector<TokenId> prompt = random_ids(3, 9, model.config().vocab);
  SamplingOptions options;
  options.seed = 5;
  DecodeRequest request;
  request.stop.max_tokens = 10;
  request.hash_logits = true;
  const auto run = [&](const char* speculation) {
    return generate(forward, read_prompt(forward, prompt), Sampler(options, model.config().vocab),
                    request, Speculation::parse(speculation));
  };
  const Answer plain = run("off");
  CHECK(plain.tokens.size() == 10);
  for (const char* speculation : {"block:d=2,k=3", "tree:d=1,width=2,depth=2", "wavefront:d=2"}) {
    CAPTURE(std::string(speculation));
    const Answer answer = run(speculation);
    CHECK(answer.tokens == plain.tokens);
    CHECK(answer.stats.logits_hash == plain.stats.logits_hash);
  }
}

TEST_CASE("where only the best logits count, only they travel, and the answer is the same") {
  CudaDevice device;
  for (const TinyModel which : {TinyModel::m, TinyModel::tie}) {
    const Model model = tiny(which, WeightType::f16);
    const LoopPlan plan = make_loop_plan(model.config(), 4, 0);
    Forward forward(model, device.ops(), plan, InitialStates::parse("", model.config()), 16, 16);
    const std::vector<TokenId> prompt = {kTiePrompt, 3, kTiePrompt};
    const auto run = [&](const SamplingOptions& options, bool all) {
      DecodeRequest request;
      request.stop.max_tokens = 12;
      request.hash_logits = all;  // which needs every one
      return generate(forward, read_prompt(forward, prompt), Sampler(options, model.config().vocab),
                      request, {})
          .tokens;
    };
    for (const double temperature : {0.0, 1.0}) {
      for (const std::int64_t top_k : {1, 7, 50}) {
        SamplingOptions options;
        options.temperature = temperature;
        options.top_k = top_k;
        options.seed = 11;
        const std::vector<TokenId> all = run(options, true);
        const std::int64_t before =
            device.emulated() ? device.runtime().count("top_k") + device.runtime().count("launch")
                              : 0;
        CHECK(run(options, false) == all);
        if (device.emulated()) {
          CHECK(device.runtime().count("top_k") + device.runtime().count("launch") > before);
        }
      }
    }
  }
  // NaN is told as on the way over all logits.
  const Model broken = tiny(TinyModel::nan, WeightType::f32);
  const LoopPlan plan = make_loop_plan(broken.config(), 2, 0);
  Forward forward(broken, device.ops(), plan, InitialStates::parse("", broken.config()), 16, 16);
  KvCache cache(device.ops(), plan);
  const std::int32_t first = 0;
  std::vector<Row> rows = {{&cache, 0, kNanId, 0, 0}};
  cache.reserve(1);
  forward.enter(rows);
  forward.pass(rows);
  forward.leave_on_device(rows, {&first, 1});
  CHECK(forward.best(0, 5).empty());
  CHECK(std::isnan(forward.logits()[0]));
}

TEST_CASE("store-h modes work on the device") {
  CudaDevice device;
  const Model model = tiny(TinyModel::m, WeightType::f16);
  const std::vector<TokenId> ids = random_ids(9, 12, model.config().vocab);
  EngineSetting setting = chunked(1);
  setting.storage = StorageMode::h8;
  const std::vector<float> expected = all_logits(model, device.ops(), setting, ids, 8);
  setting.chunk = 8;
  CHECK(same_bits(all_logits(model, device.ops(), setting, ids, 8), expected));
}

TEST_CASE("a snapshot serves on the device that made it, held once for all who use it") {
  const TemporaryFolder folder;
  CudaDevice device;
  const Model model = tiny(TinyModel::m, WeightType::f16);
  EngineSetting setting = chunked(16);
  PoolRuns runs(model, device.ops(), setting, folder.path());
  const std::vector<TokenId> prefix = random_ids(4, 32, model.config().vocab);
  runs.add(prefix);
  const std::vector<TokenId> prompt = joined(prefix, random_ids(5, 3, model.config().vocab));
  const Answer plain = runs.plain(prompt, 5);
  const PooledAnswer pooled = runs.pooled(prompt, 5);
  CHECK(pooled.pool.kind == MatchKind::prefix);
  CHECK(pooled.pool.reused == 32);
  CHECK(runs.agree(plain, pooled.answer));

  const PoolMatch match = runs.pool().lookup(prompt, true);
  const LoopPlan plan = setting.plan(model.config());
  const std::size_t before = device.ops().held_bytes();
  const KvCache first(device.ops(), plan, match.snapshot, 32);
  const std::size_t one = device.ops().held_bytes() - before;
  CHECK(one >= match.snapshot->kv().size());
  const KvCache second(device.ops(), plan, match.snapshot, 32);
  CHECK(device.ops().held_bytes() == before + one);

  // The CPU's numbers are others: what it finds in the pool is not for it.
  const auto plain_cpu = cpu();
  PoolRuns others(model, *plain_cpu, setting, folder.path());
  CHECK(others.pool().identity() != runs.pool().identity());
  CHECK(others.pooled(prompt, 2).pool.kind == MatchKind::miss);
}

TEST_CASE("a snapshot that finds no room gives a plain run and a warning") {
  const TemporaryFolder folder;
  CudaDevice device;
  if (!device.emulated()) return;  // a GPU's memory is not filled for this
  const Model model = tiny(TinyModel::m, WeightType::f16);
  PoolRuns runs(model, device.ops(), chunked(16), folder.path());
  const std::vector<TokenId> prefix = random_ids(4, 32, model.config().vocab);
  runs.add(prefix);
  const std::vector<TokenId> prompt = joined(prefix, random_ids(5, 3, model.config().vocab));
  // The room that the snapshot would have, asked for twice, is taken by something else.
  device.runtime().refuse_next(2);
  const Prompt starved = read_prompt(runs.forward(), prompt, {.pool = &runs.pool()});
  CHECK(starved.work.prefilled == std::ssize(prompt));
  CHECK(starved.pool.kind == MatchKind::miss);
  CHECK(starved.pool.warning.find("refused") != std::string::npos);
  CHECK(same_bits(starved.logits, read_prompt(runs.forward(), prompt).logits));
}

TEST_CASE("what a run needs is known before it") {
  for (const TinyModel which : {TinyModel::ouro, TinyModel::huginn, TinyModel::relaxed}) {
    for (const std::int64_t window : {0, 20}) {
      CudaDevice device;
      const Model model = tiny(which, WeightType::q8);
      CAPTURE(model.path());
      const LoopPlan plan = make_loop_plan(model.config(), 2, window, StorageMode::int8);
      const MemoryNeed need = memory_need(model, plan, 8, 8, 50);
      {
        Forward forward(model, device.ops(), plan, InitialStates::parse("", model.config()), 8, 8);
        KvCache cache(device.ops(), plan);
        const std::vector<TokenId> ids = random_ids(4, 50, model.config().vocab);
        prefill(forward, cache, ids, 8);
        CHECK(static_cast<std::int64_t>(forward.working_bytes()) == need.working);
        CHECK(static_cast<std::int64_t>(cache.bytes()) <= need.cache);
        CHECK(static_cast<std::int64_t>(cache.bytes()) > need.cache / 2);
      }
      CHECK_NOTHROW(check_memory(device.ops(), need));
      CudaDevice small(WorkOrder::late, (256u << 20) + static_cast<std::size_t>(need.total()) - 1);
      CHECK_THROWS_WITH_AS(check_memory(small.ops(), need), doctest::Contains("the run needs"), Error);
    }
  }
}

TEST_CASE("the golden vectors, weights widened to f32") {
  const std::string root = golden_roots().front();
  const TemporaryFolder temporary;
  int compared = 0;
  for (const GoldenCase& golden : read_golden_cases(root)) {
    if (!golden.plain() || golden.skip_loop_norm) continue;
    INFO(golden.folder << " " << golden.name);
    ImportOptions options;
    options.type = WeightType::f32;
    options.looped = golden.looped;
    const std::string path = temporary.file("model.tinyloop");
    import_checkpoint(golden.folder, path, options);
    const Model model = Model::open(path);
    EngineSetting setting = chunked(16, StorageMode::f32);
    setting.loops = golden.loops;
    setting.initial = golden.initial_states_file;
    if (setting.initial.empty() && model.config().initial_state == InitialState::free) {
      setting.initial = "zero";
    }
    const GoldenRun& run = golden.runs.front();
    if (run.prompt_logits.empty()) continue;
    CudaDevice device;
    const std::vector<float> logits =
        all_logits(model, device.ops(), setting, run.prompt, run.prompt.size());
    REQUIRE(logits.size() == run.prompt_logits.size());
    double greatest = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      greatest = std::max(greatest, std::fabs(logits[i] - run.prompt_logits[i]));
    }
    // As tests/model/test_golden.cpp: ten times what float32 arithmetic costs.
    CHECK(greatest < std::min(2e-3, 2e-5 + 10.0 * run.float_error_prompt));
    ++compared;
  }
  CHECK(compared >= 6);
}

}  // namespace
}  // namespace tinyloop
