// SPDX-License-Identifier: Apache-2.0
// What a model's matrices read while it reads a text: against norms of embeddings in double, and
// that it is only a matter of the text.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "model/engine_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/error.h"
#include "tinyloop/measure/input_weights.h"

namespace tinyloop {
namespace {

struct Engine {
  explicit Engine(TinyModel which)
      : model(Model::open(write_tiny_model(folder.path(), which, WeightType::f32))), ops(cpu()) {}
  TemporaryFolder folder;
  Model model;
  std::unique_ptr<Ops> ops;
};

using Texts = std::vector<std::vector<TokenId>>;

TEST_CASE("the first matrix reads normed embeddings: mean squares, and a hundredth of their mean") {
  const Engine engine(TinyModel::llama);
  const Model& model = engine.model;
  const Texts texts = {{3, 1, 4, 15, 9, 2, 6}, {5, 3}};
  const auto weights = input_weights(model, *engine.ops, texts);
  const auto hidden = static_cast<std::size_t>(model.config().hidden);
  const WeightView& table = model.embedding();
  std::vector<double> squares(hidden, 0.0);
  for (const std::vector<TokenId>& ids : texts) {
    for (const TokenId id : ids) {
      std::vector<double> x;
      double sum = 0.0;
      for (std::size_t i = 0; i < hidden; ++i) {
        x.push_back(static_cast<double>(unpack_value(table.type, table.k, table.data, table.scales,
                                                     id, static_cast<std::int64_t>(i))));
        sum += x.back() * x.back();
      }
      const double norm = std::sqrt(sum / static_cast<double>(hidden) + model.config().norm_eps);
      for (std::size_t i = 0; i < hidden; ++i) {
        squares[i] += std::pow(x[i] / norm * static_cast<double>(model.layers()[0].norm1[i]), 2);
      }
    }
  }
  double mean = 0.0;
  for (const double value : squares) mean += value / static_cast<double>(hidden);
  const std::vector<float>& first = weights.at("layers.0.qkv");
  REQUIRE(first.size() == hidden);
  for (std::size_t i = 0; i < hidden; ++i) {
    CHECK(static_cast<double>(first[i]) == doctest::Approx(squares[i] / mean + 0.01).epsilon(1e-4));
  }
}

TEST_CASE("every matrix but the embedding has its weights, in whatever order the texts are") {
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn, TinyModel::ouro}) {
    const Engine engine(which);
    const Model& model = engine.model;
    std::set<std::string> wanted, found;
    for (const ModelTensor& tensor : model_tensors(model.config())) {
      if (!tensor.matrix || tensor.name == "embedding" || tensor.name == "exit_gate") continue;
      wanted.insert(tensor.name);
    }
    const Texts texts = {{3, 1, 4}, {1, 5, 9, 2}}, other_order = {texts[1], texts[0]};
    const auto weights = input_weights(model, *engine.ops, texts);
    const auto again = input_weights(model, *engine.ops, other_order);
    for (const auto& [name, values] : weights) {
      found.insert(name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(values[i] > 0.0f);
        CHECK(again.at(name)[i] == doctest::Approx(values[i]).epsilon(1e-4));
      }
    }
    CHECK(found == wanted);
  }
}

TEST_CASE("a text that cannot be read is refused") {
  const Engine engine(TinyModel::m);
  const auto read = [&](const Texts& texts) { input_weights(engine.model, *engine.ops, texts); };
  CHECK_THROWS_AS(read({{}}), Error);
  CHECK_THROWS_AS(read({{1, 64}}), Error);
  const auto context = static_cast<std::size_t>(engine.model.config().context);
  CHECK_THROWS_AS(read({std::vector<TokenId>(context + 1, 1)}), Error);
}

TEST_CASE("a random text is of the vocabulary, fits the context and is always the same") {
  ModelConfig config;
  config.vocab = 37;
  config.context = 300;
  const std::vector<TokenId> ids = random_text(config, 256);
  CHECK(ids.size() == 256);
  const std::set<TokenId> seen(ids.begin(), ids.end());
  CHECK(*seen.begin() >= 0);
  CHECK(*seen.rbegin() < 37);
  CHECK(seen.size() > 30);
  CHECK(random_text(config, 256) == ids);
  config.context = 9;
  CHECK(random_text(config, 256).size() == 9);
}

}  // namespace
}  // namespace tinyloop
