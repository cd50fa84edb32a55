// SPDX-License-Identifier: Apache-2.0
// What is measured is real work: finite logits with every weight type and KV mode, filled tiles,
// and the same bits as a plain run where there is one to compare with.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tinyloop/backend.h"
#include "tinyloop/measure/speed_block.h"
#include "tinyloop/measure/speed_runs.h"
#include "tinyloop/model/model_shape.h"
#include "tinyloop/model/random_model.h"
#include "tinyloop/prompt/prefill.h"

namespace tinyloop {
namespace {

ModelConfig tiny() {
  return parse_model_shape(
      "dim=48,ffn=64,heads=4,kv-heads=2,layers=2,prelude=1,coda=1,loops=3,vocab=100");
}

bool usable(std::span<const float> logits) {
  const auto finite = [](float x) { return std::isfinite(x); };
  // Not all alike, and of a size that says something.
  const auto [least, greatest] = std::ranges::minmax(logits);
  return std::ranges::all_of(logits, finite) && greatest - least > 0.1f && greatest < 100.0f;
}

}  // namespace

TEST_CASE("measured work gives finite logits with every type and mode") {
  const auto ops = make_ops("cpu", {.isa = "", .threads = 1});
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q8,
                                WeightType::q4, WeightType::q4_1}) {
    const Model model = random_model(tiny(), type, 3);
    for (const StorageMode mode : {StorageMode::f32, StorageMode::f16, StorageMode::int8,
                                   StorageMode::int4, StorageMode::h8}) {
      CAPTURE(name_of(type));
      CAPTURE(name_of(mode));
      Forward forward(model, *ops, make_loop_plan(model.config(), 0, 0, mode), InitialStates(), 20,
                      20);
      SpeedRuns runs(forward, 700);
      CHECK(usable(runs.decode(0)));
      CHECK(usable(runs.decode(699)));
      CHECK(usable(runs.prefill(20)));
      runs.prepare_pass(16);
      for (int i = 0; i < 50; ++i) runs.pass();
      CHECK(usable(runs.decode(699)));
    }
  }
}

TEST_CASE("a measured prefill is a prefill, and may be run again") {
  const auto ops = make_ops("cpu", {.isa = "", .threads = 1});
  const Model model = random_model(tiny(), WeightType::f16, 3);
  Forward forward(model, *ops, make_loop_plan(model.config(), 0, 0), InitialStates(), 20, 20);
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < 20; ++i) ids.push_back(static_cast<TokenId>(i * 7919 % 100));
  KvCache cache(*ops, forward.plan());
  const std::span<const float> logits = prefill(forward, cache, ids, 20);
  const std::vector<float> wanted(logits.begin(), logits.end());

  SpeedRuns runs(forward, 300);
  for (int i = 0; i < 3; ++i) {
    CHECK(std::ranges::equal(runs.prefill(20), wanted));
    CHECK(std::ranges::equal(runs.decode(19), wanted));  // the last position alone
    runs.decode(299);
  }
}

TEST_CASE("a block measures all its items and every limit") {
  const auto ops = make_ops("cpu", {.isa = "", .threads = 2});
  const Model model = random_model(tiny(), WeightType::q8, 3);
  std::vector<SpeedItem> items(3);
  items[0].part = SpeedPart::prefill;
  items[0].rows = 5;
  items[1].context = 40;
  items[1].loops = 2;
  items[1].kv = StorageMode::int4;
  items[2].part = SpeedPart::pass;
  items[2].rows = 3;
  const SpeedBlock block =
      measure_speed(model, *ops, items, 1 << 20, {.repeats = 2, .warm_up = 1}, {});
  REQUIRE(block.items.size() == 3);
  std::set<Limit> limits;
  for (const SpeedLimit& limit : block.limits) {
    limits.insert(limit.limit);
    CHECK(limit.per_second() > 0.0);
  }
  CHECK(limits.size() == 4);
  for (const SpeedItem& item : block.items) {
    CHECK(item.timing.samples.size() == 2);
    CHECK(item.limit_ms > 0.0);
    CHECK(item.work.int8_ops > 0);
  }
  const WorkCount two(model, make_loop_plan(model.config(), 2, 0, StorageMode::int4));
  CHECK(block.items[1].work.bytes() == two.all({40, 1}).bytes());
  CHECK(block.items[2].work.int8_ops == two.pass({0, 3}).int8_ops);
  // Of every weight once, and the embedding not at all.
  const WorkCount one(model, make_loop_plan(model.config(), 1, 0));
  CHECK(block.weight_bytes == one.all({0, 1}).weight_bytes);
  CHECK(block.cache_bytes > 0);
  CHECK(block.working_bytes > 0);
}

}  // namespace tinyloop
