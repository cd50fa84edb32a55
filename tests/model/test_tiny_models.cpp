// SPDX-License-Identifier: Apache-2.0
// The tiny models are what the acceptance cases need: lively, different for every loop count, tied
// where they should be. Only reference and file format take part, not the engine.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "model/reference_model.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/model/model.h"

namespace tinyloop {
namespace {

bool same(const Doubles& a, const Doubles& b) {  // NaN equals NaN
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return true;
}

TEST_CASE("tiny models: the file holds the weights") {
  const TemporaryFolder folder;
  for (const TinyModel which : all_tiny_models()) {
    INFO(name_of(which));
    const Model model = Model::open(write_tiny_model(folder.path(), which, WeightType::f32));
    model.verify();
    CHECK(std::filesystem::file_size(model.path()) < 1000000);
    CHECK(to_json(model.config()) == to_json(tiny_config(which)));
    const ReferenceWeights written = tiny_weights(which), read = reference_weights(model);
    CHECK(same(written.embedding, read.embedding));
    CHECK(same(written.head, read.head));
    CHECK(same(written.adapter, read.adapter));
    CHECK(same(written.exit_gate, read.exit_gate));
    CHECK(written.exit_bias == read.exit_bias);
    CHECK(same(written.final_norm, read.final_norm));
    REQUIRE(written.layers.size() == read.layers.size());
    for (std::size_t i = 0; i < read.layers.size(); ++i) {
      const ReferenceLayer &w = written.layers[i], &r = read.layers[i];
      CHECK(same(w.q, r.q));
      CHECK(same(w.k, r.k));
      CHECK(same(w.v, r.v));
      CHECK(same(w.out, r.out));
      CHECK(same(w.gate, r.gate));
      CHECK(same(w.up, r.up));
      CHECK(same(w.down, r.down));
      CHECK(same(w.norm1, r.norm1));
      CHECK(same(w.norm2, r.norm2));
      CHECK(same(w.norm3, r.norm3));
      CHECK(same(w.norm4, r.norm4));
      CHECK(same(w.q_norm, r.q_norm));
      CHECK(same(w.k_norm, r.k_norm));
      CHECK(same(w.qk_bias, r.qk_bias));
    }
  }
}

TEST_CASE("tiny models: m is the model that CASES.md describes") {
  const ModelConfig config = tiny_config(TinyModel::m);
  CHECK(config.vocab == 64);
  CHECK(config.hidden == 32);
  CHECK(config.heads == 2);
  CHECK(config.head_dim == 16);
  CHECK(config.core_layers == 2);
  CHECK(config.max_loops == 16);
  CHECK(config.context == 64);
  CHECK(tiny_config(TinyModel::odd).head_dim == 24);
}

TEST_CASE("tiny models: greedy streams are lively and every loop count has its own") {
  const std::vector<TokenId> prompt = {20, 3, 11, 60, 21};
  for (const TinyModel which : all_tiny_models()) {
    if (which == TinyModel::nan || which == TinyModel::tie) continue;
    INFO(name_of(which));
    const ModelConfig config = tiny_config(which);
    const ReferenceWeights weights = tiny_weights(which);
    std::set<std::vector<TokenId>> streams;
    const std::int32_t most = std::min(config.max_loops, 8);
    ReferenceOptions options;
    for (options.loops = 1; options.loops <= most; ++options.loops) {
      streams.insert(reference_greedy(config, weights, prompt, 24, options));
    }
    // Deep loops may agree now and then, and more substeps of relaxed looping come ever closer to
    // one stream.
    CHECK(std::ssize(streams) >=
          (config.injection == Injection::relaxed ? most / 2 : most - most / 8));
    options.loops = config.default_loops;
    const std::vector<TokenId> stream = reference_greedy(config, weights, prompt, 24, options);
    CHECK(std::set<TokenId>(stream.begin(), stream.end()).size() >= 4);
  }
  CHECK(reference_greedy(tiny_config(TinyModel::m), tiny_weights(TinyModel::m), prompt, 24, {}) !=
        reference_greedy(tiny_config(TinyModel::m2), tiny_weights(TinyModel::m2), prompt, 24, {}));
}

TEST_CASE("tiny models: the equal ids of tie are on top after kTiePrompt, and the lower one wins") {
  const std::vector<TokenId> prompt = {kTiePrompt};
  const ReferenceResult result =
      run_reference(tiny_config(TinyModel::tie), tiny_weights(TinyModel::tie), prompt, {});
  const std::span<const double> logits = result.logits_at(0);
  CHECK(logits[static_cast<std::size_t>(kTieLow)] == logits[static_cast<std::size_t>(kTieHigh)]);
  CHECK(greatest_id(logits) == kTieLow);
  // In m itself the higher id wins, so the test of the tie can fail.
  CHECK(greatest_id(run_reference(tiny_config(TinyModel::m), tiny_weights(TinyModel::m), prompt, {})
                        .logits_at(0)) == kTieHigh);
}

TEST_CASE("tiny models: nan is m but for the embedding of one id") {
  const std::vector<TokenId> without = {1, 2, 3}, with = {1, kNanId, 3};
  const ModelConfig config = tiny_config(TinyModel::nan);
  const ReferenceWeights weights = tiny_weights(TinyModel::nan);
  CHECK(run_reference(config, weights, without, {}).logits ==
        run_reference(config, tiny_weights(TinyModel::m), without, {}).logits);
  const ReferenceResult result = run_reference(config, weights, with, {});
  CHECK(!std::isnan(result.logits_at(0)[0]));
  CHECK(std::isnan(result.logits_at(1)[0]));
}

}  // namespace
}  // namespace tinyloop
