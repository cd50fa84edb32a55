// SPDX-License-Identifier: Apache-2.0
// Random models in memory: whole, finite, of a sensible scale, the same for the same seed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tinyloop/model/random_model.h"

namespace tinyloop {
namespace {

// Every optional tensor, in sizes that neither 16 nor 32 divide.
ModelConfig odd_config() {
  ModelConfig config;
  config.family = "random";
  config.vocab = 21;
  config.hidden = 10;
  config.ffn = 35;
  config.heads = 3;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.context = 64;
  config.prelude_layers = config.core_layers = config.coda_layers = 1;
  config.max_loops = 8;
  config.block = BlockKind::sandwich_post;
  config.qk_bias = config.qk_norm = true;
  config.injection = Injection::concat;
  config.initial_state = InitialState::free;
  config.initial_std = 0.5;
  config.exit_gate = true;
  return config;
}

// All places of a packed matrix, padding included, [16 * panels][k].
std::vector<float> values_of(const WeightView& weight) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < panels_of(weight.n) * kPanel; ++row) {
    for (std::int64_t column = 0; column < weight.k; ++column) {
      values.push_back(
          unpack_value(weight.type, weight.k, weight.data, weight.scales, row, column));
    }
  }
  return values;
}

void check_matrix(const WeightView& weight, std::int64_t n, std::int64_t k) {
  REQUIRE(weight.present());
  CHECK(weight.n == n);
  CHECK(weight.k == k);
  CHECK(weight.data.size() == packed_data_bytes(weight.type, n, k));
  CHECK(weight.scales.size() == packed_scale_bytes(weight.type, n, k));
  CHECK(reinterpret_cast<std::uintptr_t>(weight.data.data()) % 64 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(weight.scales.data()) % 64 == 0);
  const std::vector<float> values = values_of(weight);
  double squares = 0.0;
  std::int64_t tiny = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    REQUIRE(std::isfinite(value));
    if (static_cast<std::int64_t>(i) >= n * k) {
      REQUIRE(value == 0.0f);  // absent rows
      continue;
    }
    squares += static_cast<double>(value) * static_cast<double>(value);
    if (std::fabs(value) < 1e-3f) ++tiny;
  }
  // A row's sum of squares is about 1.
  CHECK(squares / static_cast<double>(n) == doctest::Approx(1.0).epsilon(0.35));
  CHECK(tiny < static_cast<std::int64_t>(values.size()) / 4);
}

void check_vector(VectorView vector, std::int64_t n) {
  REQUIRE(static_cast<std::int64_t>(vector.size()) == n);
  for (const float value : vector) {
    CHECK(value > 0.7f);
    CHECK(value < 1.3f);
  }
}

bool same(const Model& a, const Model& b) {
  return std::ranges::equal(a.head().data, b.head().data) &&
         std::ranges::equal(a.layers()[1].down.data, b.layers()[1].down.data);
}

}  // namespace

TEST_CASE("a random model has every tensor that its configuration asks for") {
  const ModelConfig c = odd_config();
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q8,
                                WeightType::q4, WeightType::q4_1}) {
    CAPTURE(name_of(type));
    const Model model = random_model(c, type, 7);
    CHECK(model.path().empty());
    check_matrix(model.embedding(), 21, 10);
    check_matrix(model.head(), 21, 10);
    check_matrix(model.adapter(), 10, 20);
    CHECK(model.exit_gate().type == WeightType::f32);
    CHECK(model.exit_gate().k == 10);
    CHECK(std::isfinite(model.exit_bias()));
    check_vector(model.final_norm(), 10);
    REQUIRE(model.layers().size() == 3);
    for (const LayerWeights& layer : model.layers()) {
      CHECK(layer.qkv.type == type);
      check_matrix(layer.qkv, 20, 10);
      check_matrix(layer.out, 10, 12);
      check_matrix(layer.gate_up, 70, 10);
      check_matrix(layer.down, 10, 35);
      for (const VectorView norm : {layer.norm1, layer.norm2, layer.norm3, layer.norm4}) {
        check_vector(norm, 10);
      }
      check_vector(layer.q_norm, 4);
      check_vector(layer.k_norm, 4);
      check_vector(layer.qk_bias, 16);
    }
    CHECK_NOTHROW(model.verify());
  }
}

TEST_CASE("tensors of a random model do not share memory") {
  const Model model = random_model(odd_config(), WeightType::q8, 7);
  std::vector<std::span<const std::byte>> all = {model.embedding().data, model.head().data};
  for (const LayerWeights& layer : model.layers()) {
    for (const WeightView* w : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down}) {
      all.push_back(w->data);
      all.push_back(w->scales);
    }
    all.push_back(std::as_bytes(layer.norm1));
  }
  std::ranges::sort(all, {}, [](auto span) { return span.data(); });
  for (std::size_t i = 1; i < all.size(); ++i) {
    CHECK(all[i - 1].data() + all[i - 1].size() <= all[i].data());
  }
}

TEST_CASE("the same arguments give the same random model, others another one") {
  const ModelConfig config = odd_config();
  const Model a = random_model(config, WeightType::f16, 7);
  const Model again = random_model(config, WeightType::f16, 7);
  const Model b = random_model(config, WeightType::f16, 8);
  CHECK(same(a, again));
  CHECK(!same(a, b));
  CHECK(a.fingerprint() == again.fingerprint());
  CHECK(a.fingerprint().size() == 32);
  CHECK(a.fingerprint() != b.fingerprint());
  CHECK(a.fingerprint() != random_model(config, WeightType::bf16, 7).fingerprint());
}

}  // namespace tinyloop
