// SPDX-License-Identifier: Apache-2.0
// Planes of a run, and loop counts and windows that are refused.
#include <doctest/doctest.h>

#include <set>

#include "tinyloop/error.h"
#include "tinyloop/model/loop_plan.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

ModelConfig config_of(std::int32_t prelude, std::int32_t core, std::int32_t coda) {
  ModelConfig config;
  config.family = "huginn";
  config.prelude_layers = prelude;
  config.core_layers = core;
  config.coda_layers = coda;
  config.kv_heads = 3;
  config.head_dim = 24;
  config.default_loops = 4;
  config.max_loops = 16;
  return config;
}

TEST_CASE("every (loop, layer) has a plane of its own") {
  for (const std::int32_t prelude : {0, 2}) {
    for (const std::int32_t coda : {0, 1}) {
      const LoopPlan plan = make_loop_plan(config_of(prelude, 3, coda), 5, 0);
      std::set<std::int32_t> planes;
      for (std::int32_t layer = 0; layer < prelude; ++layer) {
        planes.insert(plan.prelude_plane(layer));
      }
      for (std::int32_t loop = 0; loop < 5; ++loop) {
        for (std::int32_t layer = 0; layer < 3; ++layer)
          planes.insert(plan.core_plane(loop, layer));
      }
      for (std::int32_t layer = 0; layer < coda; ++layer) planes.insert(plan.coda_plane(layer));
      const std::int32_t count = prelude + 5 * 3 + coda;
      CHECK(plan.planes() == count);
      CHECK(static_cast<std::int32_t>(planes.size()) == count);  // no two share one
      CHECK(*planes.begin() == 0);
      CHECK(*planes.rbegin() == count - 1);
    }
  }
}

TEST_CASE("the plan takes over the model's shape, the window and the default") {
  const LoopPlan plan = make_loop_plan(config_of(2, 3, 1), 0, 128);
  CHECK(plan.loops == 4);
  CHECK(plan.window == 128);
  CHECK(plan.prelude_layers == 2);
  CHECK(plan.core_layers == 3);
  CHECK(plan.coda_layers == 1);
  CHECK(plan.kv_heads == 3);
  CHECK(plan.head_dim == 24);
  CHECK(make_loop_plan(config_of(2, 3, 1), 16, 0).loops == 16);
}

TEST_CASE("impossible loops and windows are refused") {
  const ModelConfig config = config_of(0, 3, 0);
  CHECK_ERROR(make_loop_plan(config, 17, 0), usage, "17 loops: this model supports 1 to 16");
  CHECK_ERROR(make_loop_plan(config, -1, 0), usage, "-1 loops");
  CHECK_ERROR(make_loop_plan(config, 0, -1), usage, "window of -1 is negative");
  ModelConfig plain = config_of(0, 3, 0);
  plain.family = "llama";
  plain.default_loops = plain.max_loops = 1;
  CHECK(make_loop_plan(plain, 1, 0).loops == 1);
  CHECK_ERROR(make_loop_plan(plain, 2, 0), usage, "`loop_layers`");
}

}  // namespace
}  // namespace tinyloop
