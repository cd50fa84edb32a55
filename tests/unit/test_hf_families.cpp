// SPDX-License-Identifier: Apache-2.0
// What each family's config.json becomes, and the keys that are refused because they would change
// the math. The weights are in test_import_hf.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/model/import_hf.h"
#include "unit/file_bytes.h"
#include "unit/hf_folder.h"

namespace tinyloop {
namespace {

ModelConfig config_of(const HfModel& model, const std::optional<LoopedRange>& looped = {}) {
  const TemporaryFolder folder;
  model.write(folder.path());
  return import_config(folder.path(), looped);
}

HfModel with(HfModel model, const std::string& key, const std::string& value) {
  model.keys[key] = value;
  return model;
}

HfModel without(HfModel model, const std::string& key) {
  model.keys.erase(key);
  return model;
}

TEST_CASE("Llama and Qwen3 are plain decoders of one loop") {
  const ModelConfig llama = config_of(hf_llama());
  CHECK(llama.family == "llama");
  CHECK(llama.vocab == 19);
  CHECK(llama.hidden == 20);
  CHECK(llama.ffn == 36);
  CHECK(llama.heads == 4);
  CHECK(llama.kv_heads == 2);
  CHECK(llama.head_dim == 6);
  CHECK(llama.context == 128);
  CHECK(llama.norm_eps == 1e-5);
  CHECK(llama.prelude_layers == 0);
  CHECK(llama.core_layers == 3);
  CHECK(llama.coda_layers == 0);
  CHECK(llama.default_loops == 1);
  CHECK(llama.trained_loops == 1);
  CHECK(llama.max_loops == 1);
  CHECK(llama.block == BlockKind::pre);
  CHECK(llama.rope_layout == RopeLayout::half);
  CHECK(llama.rope_theta == 10000.0);
  CHECK(llama.rope_scaling.factor == 1.0);
  CHECK(llama.embedding_scale == 1.0);
  CHECK(llama.injection == Injection::none);
  CHECK(llama.final_norm);
  CHECK_FALSE(llama.loop_norm);
  CHECK_FALSE(llama.tied_head);
  CHECK_FALSE(llama.qk_norm);
  CHECK_FALSE(llama.exit_gate);
  CHECK(llama.end_ids == std::vector<TokenId>{2});
  CHECK(llama.begin_id == 1);
  const ModelConfig qwen = config_of(hf_qwen3());
  CHECK(qwen.family == "qwen3");
  CHECK(qwen.qk_norm);
  CHECK(qwen.max_loops == 1);
}

TEST_CASE("Ouro") {
  const ModelConfig ouro = config_of(hf_ouro());
  CHECK(ouro.family == "ouro");
  CHECK(ouro.default_loops == 4);
  CHECK(ouro.trained_loops == 4);
  CHECK(ouro.max_loops == 64);
  CHECK(ouro.block == BlockKind::sandwich_out);
  CHECK(ouro.loop_norm);
  CHECK_FALSE(ouro.final_norm);
  CHECK(ouro.exit_gate);
  CHECK(config_of(with(hf_ouro(), "total_ut_steps", "100")).max_loops == 100);
  HfModel ungated = hf_ouro();
  ungated.remove("model.early_exit_gate.weight");
  ungated.remove("model.early_exit_gate.bias");
  CHECK_FALSE(config_of(ungated).exit_gate);
}

TEST_CASE("Nanbeige") {
  const ModelConfig nanbeige = config_of(hf_nanbeige());
  CHECK(nanbeige.family == "nanbeige");
  CHECK(nanbeige.default_loops == 2);
  CHECK(nanbeige.max_loops == 64);
  CHECK(nanbeige.block == BlockKind::pre);
  CHECK(nanbeige.loop_norm);
  CHECK_FALSE(nanbeige.final_norm);
  const ModelConfig skip = config_of(with(hf_nanbeige(), "skip_loop_final_norm", "true"));
  CHECK_FALSE(skip.loop_norm);
  CHECK(skip.final_norm);
  const HfModel weighted = with(hf_nanbeige(), "loop_loss_weights", "[0.5,0.25]");
  CHECK(config_of(without(weighted, "num_loops")).default_loops == 3);
  CHECK(config_of(with(weighted, "num_loops", "3")).default_loops == 3);
  CHECK_ERROR(config_of(weighted), data,
              "num_loops is 2, which contradicts loop_loss_weights (3 loops)");
  CHECK(config_of(without(hf_nanbeige(), "head_dim")).head_dim == 6);
}

TEST_CASE("Huginn and its Llama flavour") {
  const ModelConfig huginn = config_of(hf_huginn(false));
  CHECK(huginn.family == "huginn");
  CHECK(huginn.hidden == 20);
  CHECK(huginn.heads == 4);
  CHECK(huginn.kv_heads == 4);
  CHECK(huginn.context == 128);
  CHECK(huginn.prelude_layers == 2);
  CHECK(huginn.core_layers == 1);
  CHECK(huginn.coda_layers == 1);
  CHECK(huginn.default_loops == 32);
  CHECK(huginn.max_loops == 64);
  CHECK(huginn.block == BlockKind::sandwich_post);
  CHECK(huginn.rope_layout == RopeLayout::interleaved);
  CHECK(huginn.rope_theta == 50000.0);
  CHECK(huginn.norm_eps == 1e-6);
  CHECK(huginn.qk_bias);
  CHECK(huginn.tied_head);
  CHECK(huginn.injection == Injection::concat);
  CHECK(huginn.initial_state == InitialState::free);
  CHECK(huginn.post_loop_norm);
  CHECK(huginn.final_norm);
  CHECK_FALSE(huginn.loop_norm);
  CHECK(huginn.end_ids.empty());
  CHECK(huginn.begin_id == -1);
  // Without init_values: std = sqrt(2 / (5 d)) times sqrt(d), whatever d is.
  CHECK(huginn.embedding_scale == doctest::Approx(std::sqrt(20.0)).epsilon(1e-12));
  CHECK(huginn.initial_std == doctest::Approx(std::sqrt(0.4)).epsilon(1e-12));
  const ModelConfig given =
      config_of(with(hf_huginn(false), "init_values", R"({"std":0.25,"embed_scale":3.0})"));
  CHECK(given.embedding_scale == 3.0);
  CHECK(given.initial_std == 0.75);
  HfModel other_key = without(hf_huginn(false), "n_heads");
  CHECK(config_of(with(other_key, "num_attention_heads", "4")).heads == 4);

  const ModelConfig llama =
      config_of(with(with(hf_huginn(true), "init_values", R"({"std":0.25,"embed_scale":1.0})"),
                     "rope_theta", "500000.0"));
  CHECK(llama.family == "huginn_llama");
  CHECK(llama.kv_heads == 2);
  CHECK(llama.block == BlockKind::pre);
  CHECK(llama.rope_layout == RopeLayout::half);
  CHECK(llama.rope_theta == 500000.0);
  CHECK_FALSE(llama.qk_bias);
  CHECK_FALSE(llama.post_loop_norm);
  CHECK(llama.final_norm);
  CHECK(llama.initial_std == 0.25);
  CHECK(llama.embedding_scale == 1.0);
  CHECK(llama.injection == Injection::concat);
  CHECK(config_of(hf_huginn(true)).rope_theta == 50000.0);
  CHECK(config_of(hf_huginn(true)).initial_std == doctest::Approx(std::sqrt(2.0 / 100.0)));
}

TEST_CASE("keys that may be absent, and newer spellings of old ones") {
  HfModel model = hf_llama();
  for (const char* key :
       {"num_key_value_heads", "hidden_act", "attention_bias", "mlp_bias", "pretraining_tp",
        "rope_scaling", "torch_dtype", "bos_token_id", "eos_token_id"}) {
    model.keys.erase(key);
  }
  for (HfSpec& spec : model.tensors) {
    if (spec.name.find("k_proj") != std::string::npos ||
        spec.name.find("v_proj") != std::string::npos) {
      spec.shape[0] = 24;
    }
  }
  const ModelConfig config = config_of(model);
  CHECK(config.kv_heads == 4);
  CHECK(config.end_ids.empty());
  CHECK(config.begin_id == -1);
  model.keys["num_attention_heads"] = "5";
  model.keys.erase("head_dim");
  CHECK(config_of(model).head_dim == 4);  // 20 / 5
}

TEST_CASE("RoPE in old and new files") {
  const std::string llama3 =
      R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64)";
  const auto check_llama3 = [](const ModelConfig& config) {
    CHECK(config.rope_theta == 500000.0);
    CHECK(config.rope_scaling.factor == 8.0);
    CHECK(config.rope_scaling.low_frequency_factor == 1.0);
    CHECK(config.rope_scaling.high_frequency_factor == 4.0);
    CHECK(config.rope_scaling.original_context == 64);
  };
  const HfModel old = with(hf_llama(), "rope_theta", "500000");
  check_llama3(config_of(with(old, "rope_scaling", R"({"rope_type":"llama3",)" + llama3 + "}")));
  check_llama3(config_of(with(old, "rope_scaling", R"({"type":"llama3",)" + llama3 + "}")));
  CHECK(config_of(with(old, "rope_scaling", R"({"rope_type":"default"})")).rope_scaling.factor ==
        1.0);
  HfModel fresh = without(without(hf_llama(), "rope_theta"), "rope_scaling");
  fresh.keys.erase("torch_dtype");
  fresh.keys["dtype"] = "\"float32\"";
  check_llama3(config_of(with(fresh, "rope_parameters",
                              R"({"rope_theta":500000.0,"rope_type":"llama3",)" + llama3 + "}")));
  CHECK(config_of(with(fresh, "rope_parameters", R"({"rope_theta":7.0,"rope_type":"default"})"))
            .rope_theta == 7.0);
  CHECK_ERROR(config_of(fresh), data, "rope_theta is missing");
  CHECK_ERROR(config_of(with(fresh, "rope_parameters", R"({"rope_type":"default"})")), data,
              "rope_theta is missing");
  CHECK_ERROR(config_of(with(old, "rope_scaling", R"({"rope_type":"llama3","factor":8.0})")), data,
              "rope_scaling: low_freq_factor is missing");
  for (const char* type : {"linear", "dynamic", "yarn", "longrope", "mrope"}) {
    CHECK_ERROR(config_of(with(old, "rope_scaling",
                               R"({"factor":2.0,"rope_type":")" + std::string(type) + "\"}")),
                data, type);
  }
  CHECK_ERROR(config_of(with(old, "rope_scaling",
                             R"({"rope_type":"default","partial_rotary_factor":0.5})")),
              data, "partial_rotary_factor is 0.5");
}

TEST_CASE("RoPE in two places: both are named where they disagree") {
  const HfModel llama = hf_llama();  // with rope_theta 10000
  const auto refused = [&](const HfModel& model, const std::string& message) {
    CHECK_ERROR(config_of(model), data, message);
  };
  const char* const five = R"({"rope_type":"default","rope_theta":500})";
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    refused(with(llama, key, five),
            "rope_theta is 10000.0, which contradicts " + key + ".rope_theta (500)");
    CHECK(config_of(without(with(llama, key, five), "rope_theta")).rope_theta == 500.0);
    CHECK(config_of(with(with(llama, key, five), "rope_theta", "500")).rope_theta == 500.0);
    refused(with(llama, key, R"({"full_attention":{"rope_type":"default","rope_theta":500}})"),
            key + R"( is {"full_attention":{)");
    refused(with(llama, key, R"({"full_attention":{"rope_type":"default"}})"),
            "which differs by layer type (full_attention)");
    refused(with(llama, key, R"({"factor":8.0})"), "factor is 8.0, and its rope_type is missing");
    refused(with(llama, key, R"({"rope_type":"default","type":"linear"})"),
            "type is \"linear\", which contradicts rope_type");
  }
  const HfModel both = without(with(llama, "rope_scaling", five), "rope_theta");
  refused(with(both, "rope_parameters", R"({"rope_theta":7})"),
          "rope_scaling: rope_theta is 500, which contradicts rope_parameters.rope_theta (7)");
  const auto llama3 = [](const std::string& low, const std::string& context) {
    return R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":)" + low +
           R"(,"high_freq_factor":4.0,"original_max_position_embeddings":)" + context + "}";
  };
  const HfModel scaled = with(llama, "rope_parameters", llama3("1.0", "64"));
  CHECK_NOTHROW(config_of(with(scaled, "rope_scaling", llama3("1.0", "64"))));
  for (const std::string& other : {llama3("2.0", "64"), llama3("1.0", "32"), std::string("{}")}) {
    refused(with(scaled, "rope_scaling", other), "which contradicts rope_parameters");
  }
  refused(with(scaled, "original_max_position_embeddings", "32"),
          "original_max_position_embeddings is 32, which contradicts rope_parameters.original");
}

TEST_CASE("end ids come from both files; ids outside the vocabulary are refused") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& ends, const std::string& generation) {
    with(hf_llama(), "eos_token_id", ends).write(folder.path());
    write_file(folder.file("generation_config.json"), generation);
    return import_config(folder.path(), {}).end_ids;
  };
  using Ids = std::vector<TokenId>;
  CHECK(read("2", "{}") == Ids{2});
  CHECK(read("null", "{}") == Ids{});
  CHECK(read("[2,3]", "{}") == Ids{2, 3});
  CHECK(read("2", R"({"eos_token_id":[5,2,18]})") == Ids{2, 5, 18});
  CHECK(read("null", R"({"eos_token_id":0})") == Ids{0});
  CHECK_ERROR(read("19", "{}"), data, "config.json: eos_token_id is 19");
  CHECK_ERROR(read("[1,-1]", "{}"), data, "eos_token_id is [1,-1]");
  CHECK_ERROR(read("[18446744073709551614]", "{}"), data, "expected a list of integers");
  CHECK_ERROR(read("18446744073709551615", "{}"), data, "expected an integer");
  CHECK_ERROR(read("\"2\"", "{}"), data, "eos_token_id is \"2\"");
  CHECK_ERROR(read("2", R"({"eos_token_id":19})"), data,
              "generation_config.json: eos_token_id is 19");
  CHECK_ERROR(read("2", "["), data, "generation_config.json:1:2: not valid JSON");
  CHECK_ERROR(config_of(with(hf_llama(), "bos_token_id", "19")), data, "bos_token_id is 19");
}

TEST_CASE("training-free looping of a plain model") {
  const ModelConfig config = config_of(hf_llama(), LoopedRange{1, 1, 3, 0.5, 0.25});
  CHECK(config.family == "llama");
  CHECK(config.prelude_layers == 1);
  CHECK(config.core_layers == 1);
  CHECK(config.coda_layers == 1);
  CHECK(config.default_loops == 3);
  CHECK(config.trained_loops == 3);
  CHECK(config.max_loops == 64);
  CHECK(config.injection == Injection::relaxed);
  CHECK(config.relaxed_alpha == 0.5);
  CHECK(config.relaxed_beta == 0.25);
  CHECK(config.final_norm);
  CHECK(config_of(hf_llama(), LoopedRange{0, 2, 2, 1.0, 0.0}).core_layers == 3);
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{1, 3, 2, 1.0, 0.0}), usage,
              "`loop_layers` 1:3: the model has layers 0 to 2");
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{2, 1, 2, 1.0, 0.0}), usage, "`loop_layers` 2:1");
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{-1, 1, 2, 1.0, 0.0}), usage, "`loop_layers` -1:1");
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{0, 1, 0, 1.0, 0.0}), usage, "`substeps` 0");
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{0, 1, 65, 1.0, 0.0}), usage, "`substeps` 65");
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{0, 1, 2, 0.0, 0.0}), usage, "`alpha` 0");
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{0, 1, 2, std::nan(""), 0.0}), usage, "`alpha` nan");
  CHECK_ERROR(config_of(hf_llama(), LoopedRange{0, 1, 2, 1.0, HUGE_VAL}), usage, "`beta` inf");
  for (const HfModel& looped : {hf_ouro(), hf_nanbeige(), hf_huginn(false)}) {
    CHECK_ERROR(config_of(looped, LoopedRange{0, 0, 2, 1.0, 0.0}), usage, "looped already");
  }
}

TEST_CASE("keys that would change the math are refused by name") {
  struct Case {
    HfModel model;
    const char *key, *value;
  };
  const HfModel llama = hf_llama(), qwen = hf_qwen3(), ouro = hf_ouro(), nanbeige = hf_nanbeige();
  const HfModel huginn = hf_huginn(false), huginn_llama = hf_huginn(true);
  const Case cases[] = {
      {llama, "hidden_act", "\"gelu\""},
      {llama, "attention_bias", "true"},
      {llama, "mlp_bias", "true"},
      {llama, "pretraining_tp", "2"},
      {llama, "quantization_config", R"({"bits":4})"},
      {llama, "partial_rotary_factor", "0.5"},
      {llama, "layer_types", R"(["full_attention","sliding_attention","full_attention"])"},
      {qwen, "use_sliding_window", "true"},
      {ouro, "use_sliding_window", "true"},
      {ouro, "early_exit_threshold", "0.5"},
      {ouro, "early_exit_step", "1"},
      {ouro, "total_ut_steps", "0"},
      {ouro, "layer_types", R"(["full_attention","chunked_attention"])"},
      {nanbeige, "enable_double_loop_split", "true"},
      {nanbeige, "loop_share_kv", "true"},
      {nanbeige, "qk_layernorm", "true"},
      {nanbeige, "enable_hyper_connection", "true"},
      {nanbeige, "enable_mhc", "true"},
      {nanbeige, "enable_depth_attention", "true"},
      {nanbeige, "emb_neighbor_num", "2"},
      {nanbeige, "kv_channels", "8"},
      {nanbeige, "num_loops", "0"},
      {llama, "attn_logit_softcapping", "30.0"},
      {qwen, "final_logit_softcapping", "30.0"},
      {llama, "attention_multiplier", "0.5"},
      {llama, "residual_multiplier", "0.22"},
      {ouro, "embedding_multiplier", "12.0"},
      {qwen, "logits_scaling", "8.0"},
      {llama, "logit_scale", "0.0625"},
      {llama, "clip_qkv", "8.0"},
      {nanbeige, "query_pre_attn_scalar", "144"},
      {llama, "compression_config", R"({"format":"pack"})"},
      {ouro, "use_weighted_exit", "true"},
      {ouro, "exit_at_step", "0"},
      {llama, "tie_word_embeddings", "\"false\""},
      {nanbeige, "skip_loop_final_norm", "\"no\""},
      {huginn, "num_attention_heads", "5"},
      {huginn, "hidden_size", "24"},
      {huginn, "rms_norm_eps", "1e-05"},
      {huginn, "tie_word_embeddings", "false"},
      {huginn, "rope_theta", "10000.0"},
      {huginn, "rope_parameters", R"({"rope_theta":50000.0})"},
      {huginn, "partial_rotary_factor", "0.5"},
      {huginn_llama, "attention_multiplier", "0.5"},
      {huginn, "injection_type", "\"add\""},
      {huginn, "state_init", "\"zero\""},
      {huginn, "test_time_noise", "0.1"},
      {huginn, "bias", "true"},
      {huginn, "nonlin_name", "\"ReLU\""},
      {huginn, "mlp_class_name", "\"BaseMLP\""},
      {huginn, "norm_class_name", "\"LayerNorm\""},
      {huginn, "rope_scaling", R"({"rope_type":"llama3"})"},
      {huginn_llama, "rope_scaling", R"({"rope_type":"yarn"})"},
      {huginn_llama, "qk_bias", "true"},
  };
  for (const Case& example : cases) {
    CAPTURE(example.key);
    CHECK_NOTHROW(config_of(example.model));
    CHECK_ERROR(config_of(with(example.model, example.key, example.value)), data,
                std::string(example.key).substr(0, 12));
    CHECK_ERROR(config_of(with(example.model, example.key, example.value)), data, "config.json: ");
  }
  // Set to what changes nothing they pass.
  CHECK_NOTHROW(config_of(with(nanbeige, "emb_neighbor_num", "0")));
  CHECK_NOTHROW(config_of(with(nanbeige, "loop_share_kv", "false")));
  CHECK_NOTHROW(config_of(with(nanbeige, "enable_mhc", "null")));
  CHECK_NOTHROW(config_of(with(llama, "residual_multiplier", "1.0")));
  CHECK_NOTHROW(config_of(with(llama, "attn_logit_softcapping", "null")));
  CHECK_NOTHROW(config_of(with(huginn, "num_attention_heads", "4")));
  CHECK_NOTHROW(config_of(with(huginn, "rope_theta", "50000")));
  CHECK_NOTHROW(config_of(with(huginn, "tie_word_embeddings", "true")));
}

TEST_CASE("wrong values and missing keys are named") {
  for (const char* key : {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size", "rms_norm_eps",
                          "max_position_embeddings", "rope_theta"}) {
    CAPTURE(key);
    CHECK_ERROR(config_of(without(hf_llama(), key)), data, std::string(key) + " is missing");
    CHECK_ERROR(config_of(with(hf_llama(), key, "[7]")), data, std::string(key) + " is [7]");
  }
  for (const char* key : {"hidden_size", "vocab_size", "num_hidden_layers", "head_dim"}) {
    for (const char* value :
         {"-4", "20.5", "4294967316", "18446744073709551615", "\"20\"", "true"}) {
      CHECK_ERROR(config_of(with(hf_llama(), key, value)), data, std::string(key) + " is ");
    }
  }
  CHECK_ERROR(config_of(with(hf_llama(), "head_dim", "5")), data, "head_dim is 5: it must be even");
  CHECK_ERROR(config_of(with(hf_llama(), "num_key_value_heads", "3")), data, "kv_heads");
  CHECK_ERROR(config_of(with(without(hf_llama(), "head_dim"), "num_attention_heads", "3")), data,
              "hidden_size is 20");
  CHECK_ERROR(config_of(with(hf_llama(), "hidden_act", "\"" + std::string(500, 'x') + "\"")), data,
              "xxx..., which");
}

TEST_CASE("families that are unknown or known but not supported") {
  const auto families = known_families();
  CHECK(families == std::vector<std::string>{"ouro", "nanbeige", "huginn_raven", "llama", "qwen3"});
  CHECK_ERROR(config_of(with(hf_llama(), "model_type", "\"mamba\"")), data,
              "model_type is \"mamba\", which is unknown; known are ouro, nanbeige, huginn_raven");
  for (const char* name : {"iquestpltcoder", "iquestloopcoder"}) {
    CHECK_ERROR(config_of(with(hf_llama(), "model_type", "\"" + std::string(name) + "\"")), data,
                "known but not supported");
  }
  HfModel olmo = hf_huginn(true);
  olmo.tensor("transformer.core_block.0.attn.q_norm.weight").shape = {24};
  CHECK_ERROR(config_of(olmo), data, "huginn_olmo");
}

TEST_CASE("folders that are no checkpoint") {
  const TemporaryFolder folder;
  CHECK_ERROR(import_config(folder.file("none"), {}), io, "none/config.json: No such file");
  CHECK_ERROR(import_config(folder.path(), {}), io, "config.json: No such file");
  const std::string config = folder.file("config.json");
  write_file(config, "[1]");
  CHECK_ERROR(import_config(folder.path(), {}), data, "config.json: is not a JSON object");
  write_file(config, "{}");
  CHECK_ERROR(import_config(folder.path(), {}), data, "config.json: model_type is missing");
  write_file(config, hf_llama().config());
  CHECK_ERROR(import_config(folder.path(), {}), io, "neither model.safetensors nor");
  write_file(folder.file("pytorch_model.bin"), "");
  CHECK_ERROR(import_config(folder.path(), {}), io, "pytorch_model.bin is not read");
  write_file(folder.file("model.safetensors"), "");
  CHECK_ERROR(import_config(folder.path(), {}), data, "model.safetensors: is empty");
  std::filesystem::remove(config);
  std::filesystem::create_directory(config);
  CHECK_ERROR(import_config(folder.path(), {}), io, "config.json: Is a directory");
}

}  // namespace
}  // namespace tinyloop
