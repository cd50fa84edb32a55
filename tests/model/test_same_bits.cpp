// SPDX-License-Identifier: Apache-2.0
// The law: one prompt, one answer. Logits are compared bit for bit between ways to compute them;
// the way that everything is compared with is the plainest one: portable kernels, one thread, one
// position at a time.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "guarded_ops.h"
#include "model/engine_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/prompt/prefill.h"

namespace tinyloop {
namespace {

constexpr std::size_t kPrompt = 40, kLength = 46;

constexpr StorageMode kModes[] = {StorageMode::f32, StorageMode::f16, StorageMode::int8,
                                  StorageMode::int4};
constexpr WeightType kTypes[] = {WeightType::f32, WeightType::f16, WeightType::bf16,
                                 WeightType::q8,  WeightType::q4,  WeightType::q4_1};

std::vector<TinyModel> finite_models() {
  std::vector<TinyModel> models = all_tiny_models();
  std::erase(models, TinyModel::nan);
  return models;
}

Model tiny(TinyModel which, WeightType type) {
  static const TemporaryFolder folder;
  return Model::open(write_tiny_model(folder.path(), which, type));
}

TEST_CASE("threads, instruction sets and prefill chunks do not change a bit") {
  const auto plain = cpu("portable", 1);
  for (const TinyModel which : finite_models()) {
    for (const WeightType type : kTypes) {
      const Model model = tiny(which, type);
      CAPTURE(model.path());
      const std::vector<TokenId> ids = random_ids(7, kLength, model.config().vocab);
      const std::vector<float> expected = all_logits(model, *plain, {}, ids, kPrompt);
      for (const std::string& isa : usable_isas()) {
        for (const int threads : {1, 2, 3}) {
          const auto ops = cpu(isa, threads);
          for (const std::int64_t chunk : {1, 7, 16, 64}) {
            CAPTURE(ops->name());
            CAPTURE(chunk);
            EngineSetting setting;
            setting.chunk = chunk;
            CHECK(same_bits(all_logits(model, *ops, setting, ids, kPrompt), expected));
          }
        }
      }
    }
  }
}

TEST_CASE("every kv mode, window and loop count gives the same bits for every chunk") {
  const auto plain = cpu("portable", 1);
  const auto best = cpu("", 2);
  for (const TinyModel which : {TinyModel::odd, TinyModel::huginn, TinyModel::nanbeige}) {
    const Model model = tiny(which, WeightType::f16);
    const std::vector<TokenId> ids = random_ids(8, kLength, model.config().vocab);
    for (const StorageMode kv : kModes) {
      for (const std::int64_t window : {0, 1, 8, 15, 16, 17, 40}) {
        for (const std::int32_t loops : {1, 2, 3, 5, 8}) {
          EngineSetting setting;
          setting.storage = kv;
          setting.window = window;
          setting.loops = loops;
          CAPTURE(model.path());
          CAPTURE(name_of(kv));
          CAPTURE(window);
          CAPTURE(loops);
          const std::vector<float> expected = all_logits(model, *plain, setting, ids, kPrompt);
          for (const std::int64_t chunk : {7, 64}) {
            setting.chunk = chunk;
            CHECK(same_bits(all_logits(model, *best, setting, ids, kPrompt), expected));
          }
        }
      }
    }
  }
}

TEST_CASE("a cached run equals one that starts anew for every token") {
  const auto ops = cpu("", 1);
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn_llama, TinyModel::relaxed}) {
    for (const StorageMode kv : kModes) {
      const Model model = tiny(which, WeightType::q8);
      const auto vocab = static_cast<std::size_t>(model.config().vocab);
      const std::vector<TokenId> ids = random_ids(9, 33, model.config().vocab);
      EngineSetting setting;
      setting.storage = kv;
      setting.chunk = 64;
      const std::vector<float> cached = all_logits(model, *ops, setting, ids, 3);
      for (const std::size_t length : {1u, 2u, 15u, 16u, 17u, 31u, 32u, 33u}) {
        const std::span<const TokenId> prefix = std::span(ids).first(length);
        const std::vector<float> anew = all_logits(model, *ops, setting, prefix, length);
        CHECK(same_bits(std::span(anew).last(vocab),
                        std::span(cached).subspan((length - 1) * vocab, vocab)));
      }
    }
  }
}

TEST_CASE("rows of several sequences at different loops share a pass without a trace") {
  // Lane i starts i passes later than lane 0, so that every pass mixes loops; ids and lengths
  // differ.
  const auto ops = cpu("", 2);
  for (const TinyModel which : finite_models()) {
    for (const WeightType type : {WeightType::f32, WeightType::q4}) {
      const Model model = tiny(which, type);
      CAPTURE(model.path());
      const auto vocab = static_cast<std::size_t>(model.config().vocab);
      const LoopPlan plan = make_loop_plan(model.config(), 0, 0);
      constexpr std::int32_t kLanes = 5;
      Forward forward(model, *ops, plan, InitialStates::parse("", model.config()), 32, 32);
      std::vector<KvCache> caches;
      std::vector<std::vector<TokenId>> ids;
      std::vector<Row> rows;
      for (std::int32_t lane = 0; lane < kLanes; ++lane) {
        ids.push_back(random_ids(20 + static_cast<std::uint64_t>(lane),
                                 static_cast<std::size_t>(3 + 9 * lane), model.config().vocab));
        caches.emplace_back(*ops, plan);
        const std::span<const TokenId> all = ids.back();
        prefill(forward, caches.back(), all.first(all.size() - 1), 0);
        caches.back().reserve(static_cast<std::int64_t>(all.size()));
      }
      for (std::int32_t lane = 0; lane < kLanes; ++lane) {
        KvCache& cache = caches[static_cast<std::size_t>(lane)];
        rows.push_back(
            {&cache, cache.length(), ids[static_cast<std::size_t>(lane)].back(), lane, 0});
      }
      std::size_t entered = 0;
      const auto unfinished = [&] {
        return entered < rows.size() || rows.back().loop < plan.loops;
      };
      std::vector<std::vector<float>> results(rows.size());
      while (unfinished()) {
        if (entered < rows.size()) forward.enter(std::span(rows).subspan(entered++, 1));
        std::vector<Row> moving;
        for (std::size_t i = 0; i < entered; ++i) {
          if (rows[i].loop < plan.loops) moving.push_back(rows[i]);
        }
        forward.pass(moving);
        for (const Row& row : moving) rows[static_cast<std::size_t>(row.slot)] = row;
      }
      const std::vector<std::int32_t> wanted = {0, 1, 2, 3, 4};
      const std::span<const float> together = forward.leave(rows, wanted);
      const std::vector<float> logits(together.begin(), together.end());
      for (std::size_t lane = 0; lane < rows.size(); ++lane) {
        const std::vector<float> alone = all_logits(model, *ops, {}, ids[lane], ids[lane].size());
        CHECK(same_bits(std::span(logits).subspan(lane * vocab, vocab),
                        std::span(alone).last(vocab)));
      }
    }
  }
}

TEST_CASE("positions of one sequence may stand at different loops in one pass") {
  // The wavefront: position p enters in pass p and rises while later ones follow.
  const auto ops = cpu("", 1);
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn, TinyModel::relaxed}) {
    const Model model = tiny(which, WeightType::f16);
    CAPTURE(model.path());
    const LoopPlan plan = make_loop_plan(model.config(), 4, 0);
    const std::vector<TokenId> ids = random_ids(11, 20, model.config().vocab);
    Forward forward(model, *ops, plan, InitialStates::parse("", model.config()), 32, 32);
    KvCache cache(*ops, plan);
    cache.reserve(20);
    std::vector<Row> rows;
    for (std::int32_t i = 0; i < 20; ++i) {
      rows.push_back({&cache, i, ids[static_cast<std::size_t>(i)], i, 0});
    }
    for (std::size_t step = 0; step < rows.size() + 3; ++step) {
      if (step < rows.size()) forward.enter(std::span(rows).subspan(step, 1));
      const std::size_t first = step >= 4 ? step - 3 : 0;
      const std::size_t last = std::min(step, rows.size() - 1);
      forward.pass(std::span(rows).subspan(first, last - first + 1));
    }
    std::vector<float> logits;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      REQUIRE(rows[i].loop == 4);
      const std::int32_t wanted = 0;
      const std::span<const float> now = forward.leave(std::span(rows).subspan(i, 1), {&wanted, 1});
      logits.insert(logits.end(), now.begin(), now.end());
    }
    EngineSetting setting;
    setting.loops = 4;
    CHECK(same_bits(logits, all_logits(model, *ops, setting, ids, ids.size())));
  }
}

TEST_CASE("a fork and its original go on alone, also after a crop") {
  const auto ops = cpu("", 1);
  for (const StorageMode kv : kModes) {
    for (const std::int64_t window : {0, 20}) {
      const Model model = tiny(TinyModel::m, WeightType::f32);
      const auto vocab = static_cast<std::size_t>(model.config().vocab);
      const LoopPlan plan = make_loop_plan(model.config(), 0, window, kv);
      Forward forward(model, *ops, plan, InitialStates::parse("", model.config()), 64, 64);
      const std::vector<TokenId> shared = random_ids(12, 37, 64);
      KvCache original(*ops, plan);
      prefill(forward, original, shared, 0);
      KvCache copy = original.fork();
      copy.crop(35);
      const auto grown = [&](KvCache& cache, std::size_t kept, std::uint64_t seed) {
        std::vector<TokenId> ids(shared.begin(),
                                 shared.begin() + static_cast<std::ptrdiff_t>(kept));
        const std::vector<TokenId> more = random_ids(seed, 9, 64);
        ids.insert(ids.end(), more.begin(), more.end());
        const std::span<const float> logits = prefill(forward, cache, ids, 4);
        const std::vector<float> got(logits.begin(), logits.end());
        EngineSetting setting;
        setting.storage = kv;
        setting.window = window;
        const std::vector<float> alone = all_logits(model, *ops, setting, ids, ids.size());
        return same_bits(got, std::span(alone).last(vocab));
      };
      CAPTURE(name_of(kv));
      CAPTURE(window);
      CHECK(grown(original, 37, 13));
      CHECK(grown(copy, 35, 14));
    }
  }
}

TEST_CASE("host code touches device memory inside operations only") {
  for (const TinyModel which : finite_models()) {
    const Model model = tiny(which, WeightType::f16);
    const auto plain = cpu("", 1);
    GuardedOps guarded(1);
    EngineSetting setting;
    setting.chunk = 16;
    const std::vector<TokenId> ids = random_ids(15, kLength, model.config().vocab);
    CHECK(same_bits(all_logits(model, guarded, setting, ids, kPrompt),
                    all_logits(model, *plain, setting, ids, kPrompt)));
  }
}

}  // namespace
}  // namespace tinyloop
