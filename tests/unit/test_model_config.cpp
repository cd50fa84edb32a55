// SPDX-License-Identifier: Apache-2.0
// The generic configuration: its JSON text, letter by letter, and what is refused.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tinyloop/error.h"
#include "tinyloop/model/model_config.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

ModelConfig ouro() {
  ModelConfig config;
  config.family = "ouro";
  config.vocab = 256;
  config.hidden = 48;
  config.ffn = 100;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 10;
  config.context = 4096;
  config.core_layers = 3;
  config.default_loops = 4;
  config.trained_loops = 4;
  config.max_loops = 64;
  config.block = BlockKind::sandwich_out;
  config.loop_norm = true;
  config.final_norm = false;
  config.exit_gate = true;
  config.end_ids = {2, 255};
  config.begin_id = 0;
  return config;
}

ModelConfig huginn() {
  ModelConfig config = ouro();
  config.family = "huginn";
  config.prelude_layers = 2;
  config.coda_layers = 1;
  config.block = BlockKind::sandwich_post;
  config.rope_layout = RopeLayout::interleaved;
  config.rope_theta = 50000.0;
  config.rope_scaling = {8.0, 1.0, 4.0, 8192};
  config.norm_eps = 1e-5;
  config.qk_bias = config.qk_norm = config.tied_head = true;
  config.embedding_scale = std::sqrt(48.0);
  config.injection = Injection::concat;
  config.initial_state = InitialState::free;
  config.initial_std = 0.6324555320336759;
  config.loop_norm = false;
  config.post_loop_norm = config.final_norm = true;
  config.exit_gate = false;
  config.end_ids = {};
  config.begin_id = -1;
  return config;
}

ModelConfig relaxed() {
  ModelConfig config = ouro();
  config.family = "llama";
  config.block = BlockKind::pre;
  config.injection = Injection::relaxed;
  config.relaxed_alpha = 0.7;
  config.relaxed_beta = 0.25;
  config.loop_norm = config.exit_gate = false;
  config.final_norm = true;
  return config;
}

constexpr const char* kOuroJson =
    R"({"family":"ouro","vocab":256,"hidden":48,"ffn":100,"heads":6,"kv_heads":2,"head_dim":10,)"
    R"("context":4096,"norm_eps":1e-06,"prelude_layers":0,"core_layers":3,"coda_layers":0,)"
    R"("default_loops":4,"trained_loops":4,"greatest_loops":64,"block":"sandwich_out",)"
    R"("rope_layout":"half","rope_theta":10000.0,"rope_factor":1.0,)"
    R"("rope_low_frequency_factor":1.0,"rope_high_frequency_factor":1.0,)"
    R"("rope_original_context":0,"qk_bias":false,"qk_norm":false,"embedding_scale":1.0,)"
    R"("tied_head":false,"injection":"none","initial_state":"embedding","initial_std":0.0,)"
    R"("relaxed_alpha":1.0,"relaxed_beta":0.0,"loop_norm":true,"post_loop_norm":false,)"
    R"("final_norm":false,"exit_gate":true,"end_ids":[2,255],"begin_id":0})";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("the JSON text of a configuration is fixed") {
  CHECK(to_json(ouro()) == kOuroJson);
  CHECK(to_json(config_from_json(kOuroJson, "it")) == kOuroJson);
  CHECK(to_json(huginn()).find(R"("block":"sandwich_post","rope_layout":"interleaved")") !=
        std::string::npos);
}

TEST_CASE("every field survives writing and reading") {
  const ModelConfig wanted = huginn();
  const ModelConfig read = config_from_json(to_json(wanted), "it");
  CHECK(read.family == "huginn");
  CHECK(read.prelude_layers == 2);
  CHECK(read.core_layers == 3);
  CHECK(read.coda_layers == 1);
  CHECK(read.block == BlockKind::sandwich_post);
  CHECK(read.rope_layout == RopeLayout::interleaved);
  CHECK(read.rope_theta == 50000.0);
  CHECK(read.rope_scaling.factor == 8.0);
  CHECK(read.rope_scaling.low_frequency_factor == 1.0);
  CHECK(read.rope_scaling.high_frequency_factor == 4.0);
  CHECK(read.rope_scaling.original_context == 8192);
  CHECK(read.norm_eps == 1e-5);
  CHECK(read.qk_bias);
  CHECK(read.qk_norm);
  CHECK(read.tied_head);
  CHECK(read.embedding_scale == std::sqrt(48.0));  // doubles come back to the bit
  CHECK(read.injection == Injection::concat);
  CHECK(read.initial_state == InitialState::free);
  CHECK(read.initial_std == 0.6324555320336759);
  CHECK(read.post_loop_norm);
  CHECK(read.final_norm);
  CHECK_FALSE(read.loop_norm);
  CHECK_FALSE(read.exit_gate);
  CHECK(read.end_ids.empty());
  CHECK(read.begin_id == -1);
  CHECK(read.q_width() == 60);
  CHECK(read.kv_width() == 20);
  CHECK(read.layers() == 6);
  const ModelConfig other = config_from_json(to_json(relaxed()), "it");
  CHECK(other.injection == Injection::relaxed);
  CHECK(other.relaxed_alpha == 0.7);
  CHECK(other.relaxed_beta == 0.25);
  CHECK(other.block == BlockKind::pre);
}

TEST_CASE("each key must be there, once known, and of its type") {
  for (const char* key :
       {"family", "vocab", "context", "norm_eps", "block", "rope_theta", "qk_bias", "tied_head",
        "injection", "relaxed_beta", "end_ids", "begin_id"}) {
    CAPTURE(key);
    const std::string quoted = "\"" + std::string(key) + "\":";
    CHECK_ERROR(config_from_json(replaced(kOuroJson, quoted, "\"other\":"), "it"), data,
                "it: configuration: key '" + std::string(key) + "' is missing");
    CHECK_ERROR(config_from_json(replaced(kOuroJson, quoted, quoted + "{},\"other\":"), "it"), data,
                "the value of '" + std::string(key) + "' is invalid");
  }
  CHECK_ERROR(config_from_json(replaced(kOuroJson, "{", "{\"other\":1,"), "it"), data,
              "unknown key \"other\"");
  const std::pair<const char*, const char*> wrong[] = {
      {"\"vocab\":256", "\"vocab\":256.0"},
      {"\"vocab\":256", "\"vocab\":\"256\""},
      {"\"vocab\":256", "\"vocab\":4294967552"},
      {"\"vocab\":256", "\"vocab\":-4294967040"},
      {"\"vocab\":256", "\"vocab\":1e99"},
      {"\"vocab\":256", "\"vocab\":null"},
      {"\"family\":\"ouro\"", "\"family\":7"},
      {"\"qk_bias\":false", "\"qk_bias\":0"},
      {"\"norm_eps\":1e-06", "\"norm_eps\":\"\""},
      {"\"rope_layout\":\"half\"", "\"rope_layout\":\"full\""},
      {"[2,255]", "2"},
      {"[2,255]", "[2,\"255\"]"},
      {"[2,255]", "[2,4294967298]"},
      {"4096", "18446744073709551615"},
  };
  for (const auto& [from, to] : wrong) {
    CAPTURE(to);
    CHECK_ERROR(config_from_json(replaced(kOuroJson, from, to), "it"), data, "is invalid");
  }
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("1"),
        std::string(kOuroJson) + "}", std::string(kOuroJson) + '\0', std::string(1'000'000, '[')}) {
    CHECK_ERROR(config_from_json(text, "it"), data, "it: configuration: is not");
  }
}

TEST_CASE("what cannot be run is refused, naming the field") {
  CHECK_NOTHROW(validate(ouro(), "it"));
  CHECK_NOTHROW(validate(huginn(), "it"));
  CHECK_NOTHROW(validate(relaxed(), "it"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    std::function<void(ModelConfig&)> change;
    std::string message;
  };
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const Case cases[] = {
      {[](ModelConfig& c) { c.family = ""; }, "family"},
      {[](ModelConfig& c) { c.family = "Ouro"; }, "family"},
      {[](ModelConfig& c) { c.vocab = 0; }, "vocab is 0"},
      {[](ModelConfig& c) { c.vocab = (1 << 24) + 1; }, "vocab is 16777217"},
      {[](ModelConfig& c) { c.hidden = -1; }, "hidden is -1"},
      {[](ModelConfig& c) { c.ffn = 0; }, "ffn is 0"},
      {[](ModelConfig& c) { c.heads = 0; }, "heads is 0"},
      {[](ModelConfig& c) { c.kv_heads = 0; }, "kv_heads is 0"},
      {[](ModelConfig& c) { c.kv_heads = 4; }, "heads is 6: it must be a multiple of kv_heads"},
      {[](ModelConfig& c) { c.kv_heads = 12; }, "kv_heads is 12"},
      {[](ModelConfig& c) { c.head_dim = 9; }, "head_dim is 9: it must be even"},
      {[](ModelConfig& c) { c.head_dim = 0; }, "head_dim is 0"},
      {[](ModelConfig& c) { c.heads = c.kv_heads = c.head_dim = 1 << 16; }, "heads * head_dim"},
      {[](ModelConfig& c) { c.vocab = c.hidden = 1 << 24; }, "vocab * hidden"},
      {[](ModelConfig& c) { c.ffn = c.hidden = 1 << 20; }, "2 * ffn * hidden"},
      {[](ModelConfig& c) { c.context = 0; }, "context is 0"},
      {[](ModelConfig& c) { c.context = std::int64_t{1} << 40; }, "context is"},
      {[](ModelConfig& c) { c.core_layers = 0; }, "core_layers is 0"},
      {[](ModelConfig& c) { c.prelude_layers = -1; }, "prelude_layers is -1"},
      {[](ModelConfig& c) { c.coda_layers = -1; }, "coda_layers is -1"},
      {[&](ModelConfig& c) { c.core_layers = most; }, "core_layers is"},
      {[](ModelConfig& c) { c.default_loops = 0; }, "default_loops is 0"},
      {[](ModelConfig& c) { c.default_loops = 65; }, "default_loops is 65: it must be 1 to 64"},
      {[](ModelConfig& c) { c.trained_loops = 65; }, "trained_loops is 65"},
      {[](ModelConfig& c) { c.max_loops = 5000; }, "greatest_loops is 5000"},
      {[](ModelConfig& c) { c.norm_eps = 0.0; }, "norm_eps is 0"},
      {[&](ModelConfig& c) { c.norm_eps = nan; }, "norm_eps is nan"},
      {[](ModelConfig& c) { c.rope_theta = -1.0; }, "rope_theta is -1"},
      {[](ModelConfig& c) { c.rope_theta = HUGE_VAL; }, "rope_theta is inf"},
      {[](ModelConfig& c) { c.embedding_scale = 0.0; }, "embedding_scale is 0"},
      {[](ModelConfig& c) { c.rope_scaling.factor = 0.5; }, "rope_factor is 0.5"},
      {[](ModelConfig& c) {
         c.rope_scaling = {8.0, 4.0, 4.0, 64};
       },
       "rope_high_frequency_factor"},
      {[](ModelConfig& c) {
         c.rope_scaling = {8.0, 1.0, 4.0, 0};
       },
       "rope_original_context is 0"},
      {[](ModelConfig& c) { c.end_ids = {256}; }, "end_ids is 256"},
      {[](ModelConfig& c) {
         c.end_ids = {1, -1};
       },
       "end_ids is -1"},
      {[](ModelConfig& c) { c.begin_id = 256; }, "begin_id is 256"},
      {[](ModelConfig& c) { c.begin_id = -2; }, "begin_id is -2"},
      {[](ModelConfig& c) { c.injection = Injection::concat; }, "initial_state"},
      {[](ModelConfig& c) { c.initial_state = InitialState::free; }, "initial_state"},
      {[](ModelConfig& c) { c.initial_std = 1.0; }, "initial_std is 1"},
      {[](ModelConfig& c) { c.relaxed_alpha = 0.5; }, "relaxed_alpha is 0.5"},
      {[](ModelConfig& c) { c.relaxed_beta = 0.5; }, "relaxed_beta is 0.5"},
      {[](ModelConfig& c) { c.injection = Injection::relaxed; }, "injection"},
      {[](ModelConfig& c) { c.final_norm = true; }, "final_norm"},
      {[](ModelConfig& c) { c.loop_norm = false; }, "final_norm"},
      {[](ModelConfig& c) { c.coda_layers = 1; }, "loop_norm"},
      {[](ModelConfig& c) { c.post_loop_norm = true; }, "loop_norm"},
  };
  for (const Case& example : cases) {
    ModelConfig config = ouro();
    example.change(config);
    CHECK_ERROR(validate(config, "it"), data, "it: configuration: " + example.message);
    CHECK_ERROR(config_from_json(to_json(config), "it"), data, "it: configuration: ");
  }
  ModelConfig config = huginn();
  config.initial_std = 0.0;
  CHECK_ERROR(validate(config, "it"), data, "initial_std is 0");
  config = relaxed();
  config.relaxed_alpha = 0.0;
  CHECK_ERROR(validate(config, "it"), data, "relaxed_alpha is 0");
  config = relaxed();
  config.relaxed_beta = nan;
  CHECK_ERROR(validate(config, "it"), data, "relaxed_beta is nan");
}

}  // namespace
}  // namespace tinyloop
