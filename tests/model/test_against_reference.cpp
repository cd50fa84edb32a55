// SPDX-License-Identifier: Apache-2.0
// The engine against the reference model on the tiny models: every family, loop count, window, K/V
// mode and weight type, within stated bounds. That results are equal between schedules is tested
// elsewhere, by equality.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint_folder.h"
#include "model/reference_model.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/backend.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/error.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/model/initial_state.h"
#include "tinyloop/model/model.h"
#include "tinyloop/prompt/prefill.h"

namespace tinyloop {
namespace {

// 40 ids, so that windows, tiles of 16 and chunks end in the middle; the id of the NaN is not among
// them.
std::vector<TokenId> prompt_of(const ModelConfig& config) {
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 40; ++i) ids.push_back((11 + 17 * i + i * i) % config.vocab);
  std::replace(ids.begin(), ids.end(), kNanId, kNanId + 1);
  return ids;
}

struct Setting {
  std::int32_t loops = 0;
  std::int64_t window = 0;
  StorageMode kv = StorageMode::f32;
  std::string initial_state;
};

struct Values {
  Doubles logits;  // [positions][vocab]
  Doubles states;  // [loops][positions][hidden]
  Doubles gates;   // [loops][positions]
};

std::unique_ptr<Ops> one_thread() {
  BackendOptions options;
  options.threads = 1;
  return make_ops("cpu", options);
}

// One chunk of all ids, so that states come in the reference's order.
Values run_engine(const Model& model, const Setting& setting, std::span<const TokenId> ids) {
  const std::unique_ptr<Ops> ops = one_thread();
  const LoopPlan plan = make_loop_plan(model.config(), setting.loops, setting.window, setting.kv);
  const auto rows = static_cast<std::int32_t>(ids.size());
  Forward forward(model, *ops, plan, InitialStates::parse(setting.initial_state, model.config()),
                  rows, rows);
  KvCache cache(*ops, plan);
  Values values;
  PrefillHooks hooks;
  hooks.after_loop = [&](std::span<const Row> all) {
    const std::span<const float> states = forward.states(all);
    values.states.insert(values.states.end(), states.begin(), states.end());
    if (!model.config().exit_gate) return;
    const std::vector<float> gates = forward.gates(all);
    values.gates.insert(values.gates.end(), gates.begin(), gates.end());
  };
  hooks.all_logits = [&](std::int64_t, std::span<const float> logits) {
    values.logits.assign(logits.begin(), logits.end());
  };
  prefill(forward, cache, ids, 0, hooks);
  return values;
}

ReferenceResult reference(const ModelConfig& config, const ReferenceWeights& weights,
                          const Setting& setting, std::span<const TokenId> ids, bool exact_kv) {
  ReferenceOptions options;
  options.loops = setting.loops;
  options.window = setting.window;
  if (!exact_kv) options.kv = setting.kv;
  if (config.initial_state == InitialState::free) {
    const InitialStates states = InitialStates::parse(setting.initial_state, config);
    std::vector<float> row(static_cast<std::size_t>(config.hidden));
    for (std::size_t p = 0; p < ids.size(); ++p) {
      states.fill(static_cast<std::int64_t>(p), row);
      options.initial_states.insert(options.initial_states.end(), row.begin(), row.end());
    }
  }
  return run_reference(config, weights, ids, options);
}

double greatest_difference(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double greatest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) greatest = std::max(greatest, std::fabs(a[i] - b[i]));
  return greatest;
}

double rms_difference(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// Logits are about 4 and float32 rounds them by 2e-7; random weights amplify it from loop to loop.
void check_close(const Values& engine, const ReferenceResult& expected) {
  const double bound = 5e-4 * std::max(2, expected.loops);
  CHECK(greatest_difference(engine.logits, expected.logits) < bound);
  CHECK(greatest_difference(engine.states, expected.states) < bound);
  CHECK(greatest_difference(engine.gates, expected.gates) < bound);
}

TEST_CASE("engine and reference agree for every tiny model, loop count and window") {
  const TemporaryFolder folder;
  for (const TinyModel which : all_tiny_models()) {
    const Model model = Model::open(write_tiny_model(folder.path(), which, WeightType::f32));
    const ModelConfig& config = model.config();
    const ReferenceWeights weights = reference_weights(model);
    const std::vector<TokenId> ids = prompt_of(config);
    for (const std::int32_t loops : {1, 2, 3, 4, 5, 8, 16}) {
      if (loops > config.max_loops) continue;
      for (const std::int64_t window : {0, 1, 7, 16, 33}) {
        INFO(name_of(which) << " loops " << loops << " window " << window);
        const Setting setting{loops, window, StorageMode::f32, ""};
        check_close(run_engine(model, setting, ids),
                    reference(config, weights, setting, ids, true));
      }
    }
  }
}

TEST_CASE("engine and reference agree for every kind of initial state") {
  const TemporaryFolder folder;
  for (const TinyModel which : {TinyModel::huginn, TinyModel::huginn_llama}) {
    const Model model = Model::open(write_tiny_model(folder.path(), which, WeightType::f32));
    const std::vector<TokenId> ids = prompt_of(model.config());
    const ReferenceWeights weights = reference_weights(model);
    std::vector<Doubles> seen;
    for (const char* const state : {"zero", "seed:0", "seed:1"}) {
      INFO(name_of(which) << " " << std::string(state));
      const Setting setting{3, 0, StorageMode::f32, state};
      const Values engine = run_engine(model, setting, ids);
      check_close(engine, reference(model.config(), weights, setting, ids, true));
      for (const Doubles& other : seen) CHECK(greatest_difference(engine.logits, other) > 0.1);
      seen.push_back(engine.logits);
    }
  }
}

TEST_CASE("engine and reference agree in every K/V mode") {
  // Where a value lies near the middle of two steps of the mode, float32 and double may round it
  // apart, and one such value moves others. The first positions are before that; all of them stay
  // nearer than a rounding of its own would be.
  const TemporaryFolder folder;
  for (const TinyModel which : all_tiny_models()) {
    const Model model = Model::open(write_tiny_model(folder.path(), which, WeightType::f32));
    const ReferenceWeights weights = reference_weights(model);
    const std::vector<TokenId> ids = prompt_of(model.config());
    for (const StorageMode kv : {StorageMode::f16, StorageMode::int8, StorageMode::int4}) {
      for (const std::int64_t window : {0, 9}) {
        INFO(name_of(which) << " " << name_of(kv) << " window " << window);
        const Setting setting{std::min(2, model.config().max_loops), window, kv, ""};
        const Values engine = run_engine(model, setting, ids);
        const ReferenceResult rounded = reference(model.config(), weights, setting, ids, false);
        const ReferenceResult exact = reference(model.config(), weights, setting, ids, true);
        const auto vocab = static_cast<std::size_t>(model.config().vocab);
        for (const std::size_t positions : {std::size_t{2}, ids.size()}) {
          const auto part = [&](const Doubles& logits) {
            return std::span(logits).first(positions * vocab);
          };
          const double cost = rms_difference(part(rounded.logits), part(exact.logits));
          const double share = positions == 2 ? 0.05 : 0.8;
          CHECK(cost > 0.0);
          CHECK(rms_difference(part(engine.logits), part(rounded.logits)) < share * cost);
        }
      }
    }
  }
}

TEST_CASE("engine and reference agree for every weight type") {
  const TemporaryFolder folder;
  for (const TinyModel which : all_tiny_models()) {
    for (const WeightType type :
         {WeightType::f16, WeightType::bf16, WeightType::q8, WeightType::q4, WeightType::q4_1}) {
      if (which == TinyModel::nan && is_quantised(type)) continue;
      INFO(name_of(which) << " " << name_of(type));
      const Model model = Model::open(write_tiny_model(folder.path(), which, type));
      const std::vector<TokenId> ids = prompt_of(model.config());
      const Setting setting{std::min(2, model.config().max_loops), 0, StorageMode::f32, ""};
      const Values engine = run_engine(model, setting, ids);
      const ReferenceResult expected =
          reference(model.config(), reference_weights(model), setting, ids, true);
      if (!is_quantised(type)) {
        check_close(engine, expected);
        continue;
      }
      // Activations are rounded to 8 bits on their way into a quantised matrix; the reference does
      // not do that.
      const Doubles zeros(expected.logits.size(), 0.0);
      CHECK(rms_difference(engine.logits, expected.logits) <
            0.1 * rms_difference(expected.logits, zeros));
    }
  }
}

TEST_CASE("an imported checkpoint of every family computes what the reference does") {
  const TemporaryFolder folder;
  for (const TinyModel which : all_tiny_models()) {
    if (which == TinyModel::nan) continue;
    INFO(name_of(which));
    const std::string checkpoint = write_tiny_checkpoint(folder.path(), which, WeightType::f32);
    ImportOptions options;
    if (which == TinyModel::relaxed) options.looped = LoopedRange{1, 2, 3, 1.0, 0.25};
    const std::string path = folder.file("imported.tinyloop");
    import_checkpoint(checkpoint, path, options);
    const Model model = Model::open(path);

    // How many loops are usual or allowed is not written in a checkpoint in the same way
    // everywhere.
    ModelConfig expected = tiny_config(which);
    expected.default_loops = model.config().default_loops;
    expected.trained_loops = model.config().trained_loops;
    expected.max_loops = model.config().max_loops;
    CHECK(to_json(model.config()) == to_json(expected));

    const std::vector<TokenId> ids = prompt_of(model.config());
    const Setting setting{0, 0, StorageMode::f32, ""};
    check_close(run_engine(model, setting, ids),
                reference(expected, tiny_weights(which), setting, ids, true));
  }
}

TEST_CASE("import refuses a checkpoint with a NaN by name") {
  const TemporaryFolder folder;
  const std::string checkpoint =
      write_tiny_checkpoint(folder.path(), TinyModel::nan, WeightType::f32);
  const std::string path = folder.file("nan.tinyloop");
  std::string message;
  try {
    import_checkpoint(checkpoint, path, {});
  } catch (const Error& error) {
    message = error.what();
    CHECK(error.kind() == ErrorKind::data);
  }
  CHECK(message.find("embed_tokens") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tinyloop
