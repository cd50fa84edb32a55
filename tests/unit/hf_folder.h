// SPDX-License-Identifier: Apache-2.0
// Tiny Hugging Face folders for tests of the import, put together from handwritten names and keys:
// a config.json as text and tensors whose values anyone can compute. One function a family. Not the
// model tests' checkpoints (tests/model), which carry weights for a reference run.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/file_bytes.h"

namespace tinyloop {

struct HfSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string type = "F32";
};

// Element `index` of a tensor: 20 bits of a hash in [-1, 1). Where a type has fewer bits the value
// is cut to 7, so that every type holds it exactly.
inline float hf_value(const HfSpec& spec, std::int64_t index) {
  std::uint32_t hash = 2166136261u;
  for (const char c : spec.name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  hash = (hash ^ static_cast<std::uint32_t>(index)) * 2654435761u;
  hash ^= hash >> 15;
  const std::int32_t bits = static_cast<std::int32_t>((hash * 2246822519u) >> 12) - (1 << 19);
  return spec.type == "F32" ? static_cast<float>(bits) * 0x1p-19f
                            : static_cast<float>(bits >> 13) * 0x1p-6f;
}

// An f16 or bf16 that holds a small multiple of 2^-6 exactly; by the formats' definitions, not by
// lib's conversions.
inline std::uint16_t hf_sixteen_bits(float value, const std::string& type) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (type == "BF16") return static_cast<std::uint16_t>(bits >> 16);
  if (value == 0.0f) return 0;
  const std::uint32_t exponent = ((bits >> 23) & 255) - 127 + 15;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000) | (exponent << 10) |
                                    ((bits >> 13) & 0x3ff));
}

struct HfModel {
  std::map<std::string, std::string> keys;  // of config.json, values as JSON text
  std::vector<HfSpec> tensors;
  std::map<std::pair<std::string, std::int64_t>, float> replaced;  // single values of F32 tensors

  HfSpec& tensor(const std::string& name) {
    for (HfSpec& spec : tensors) {
      if (spec.name == name) return spec;
    }
    tensors.push_back({name, {}, "F32"});
    return tensors.back();
  }
  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const HfSpec& spec) { return spec.name == name; });
  }
  void store_as(const std::string& type) {
    for (HfSpec& spec : tensors) spec.type = type;
  }

  std::string config() const {
    std::string text;
    for (const auto& [key, value] : keys) {
      text += (text.empty() ? "{\"" : ",\"") + key + "\":" + value;
    }
    return text + "}";
  }

  std::string data_of(const HfSpec& spec) const {
    std::int64_t count = 1;
    for (const std::int64_t n : spec.shape) count *= n;
    std::string data;
    for (std::int64_t i = 0; i < count; ++i) {
      float value = hf_value(spec, i);
      if (const auto other = replaced.find({spec.name, i}); other != replaced.end()) {
        value = other->second;
      }
      data += spec.type == "F32" ? bytes_of_values<float>({value})
              : spec.type == "I64"
                  ? std::string(8, '\0')
                  : bytes_of_values<std::uint16_t>({hf_sixteen_bits(value, spec.type)});
    }
    return data;
  }

  std::string file_of(const std::vector<HfSpec>& specs) const {
    std::string header = "{\"__metadata__\":{\"format\":\"pt\"}", data;
    for (const HfSpec& spec : specs) {
      std::string shape;
      for (const std::int64_t n : spec.shape)
        shape += (shape.empty() ? "" : ",") + std::to_string(n);
      const std::string begin = std::to_string(data.size());
      data += data_of(spec);
      header += ",\"" + spec.name + "\":{\"dtype\":\"" + spec.type + "\",\"shape\":[" + shape +
                "],\"data_offsets\":[" + begin + "," + std::to_string(data.size()) + "]}";
    }
    return safetensors(header + "}", data);
  }

  // FOLDER with config.json and model.safetensors.
  void write(const std::string& folder) const {
    std::filesystem::create_directories(folder);
    write_file(folder + "/config.json", config());
    write_file(folder + "/model.safetensors", file_of(tensors));
  }
};

// hidden 20, heads 4 of 6, 2 kv heads, ffn 36, vocab 19: q_width 24, kv_width 12.
inline HfModel hf_llama() {
  HfModel model;
  model.keys = {{"model_type", "\"llama\""},
                {"hidden_size", "20"},
                {"intermediate_size", "36"},
                {"num_hidden_layers", "3"},
                {"num_attention_heads", "4"},
                {"num_key_value_heads", "2"},
                {"head_dim", "6"},
                {"hidden_act", "\"silu\""},
                {"rms_norm_eps", "1e-05"},
                {"rope_theta", "10000.0"},
                {"rope_scaling", "null"},
                {"max_position_embeddings", "128"},
                {"vocab_size", "19"},
                {"tie_word_embeddings", "false"},
                {"attention_bias", "false"},
                {"mlp_bias", "false"},
                {"pretraining_tp", "1"},
                {"torch_dtype", "\"float32\""},
                {"bos_token_id", "1"},
                {"eos_token_id", "2"},
                {"unknown_but_harmless", "[{}]"},
                {"attention_dropout", "0.0"}};
  model.tensors = {{"model.embed_tokens.weight", {19, 20}},
                   {"model.norm.weight", {20}},
                   {"lm_head.weight", {19, 20}}};
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
             {"self_attn.q_proj", {24, 20}},
             {"self_attn.k_proj", {12, 20}},
             {"self_attn.v_proj", {12, 20}},
             {"self_attn.o_proj", {20, 24}},
             {"mlp.gate_proj", {36, 20}},
             {"mlp.up_proj", {36, 20}},
             {"mlp.down_proj", {20, 36}},
             {"input_layernorm", {20}},
             {"post_attention_layernorm", {20}}}) {
      model.tensors.push_back({layer + name + ".weight", shape});
    }
  }
  return model;
}

inline HfModel hf_qwen3() {
  HfModel model = hf_llama();
  model.keys["model_type"] = "\"qwen3\"";
  model.keys["use_sliding_window"] = "false";
  model.keys["sliding_window"] = "4096";
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".self_attn.";
    model.tensors.push_back({layer + "q_norm.weight", {6}});
    model.tensors.push_back({layer + "k_norm.weight", {6}});
  }
  return model;
}

inline HfModel hf_ouro() {
  HfModel model = hf_llama();
  model.keys["model_type"] = "\"ouro\"";
  model.keys["total_ut_steps"] = "4";
  model.keys["early_exit_threshold"] = "1.0";
  model.keys["layer_types"] = R"(["full_attention","full_attention","full_attention"])";
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    model.tensors.push_back({layer + "input_layernorm_2.weight", {20}});
    model.tensors.push_back({layer + "post_attention_layernorm_2.weight", {20}});
  }
  model.tensors.push_back({"model.early_exit_gate.weight", {1, 20}});
  model.tensors.push_back({"model.early_exit_gate.bias", {1}});
  return model;
}

inline HfModel hf_nanbeige() {
  HfModel model = hf_llama();
  model.keys["model_type"] = "\"nanbeige\"";
  model.keys["num_loops"] = "2";
  model.keys["loop_loss_weights"] = "[]";
  model.keys["kv_channels"] = "6";
  model.keys["skip_loop_final_norm"] = "false";
  return model;
}

// prelude 2, core 1, coda 1; heads 4 of 6 and as many kv heads.
inline HfModel hf_huginn(bool llama_flavour) {
  const std::int64_t kv = llama_flavour ? 12 : 24;
  HfModel model;
  model.keys = {{"model_type", "\"huginn_raven\""},
                {"n_embd", "20"},
                {"n_heads", "4"},
                {"num_key_value_heads", llama_flavour ? "2" : "4"},
                {"head_dim", "6"},
                {"intermediate_size", "36"},
                {"vocab_size", "19"},
                {"padded_vocab_size", "19"},
                {"norm_eps", "1e-06"},
                {"rope_base", "50000.0"},
                {"block_size", "128"},
                {"n_layers_in_prelude", "2"},
                {"n_layers_in_recurrent_block", "1"},
                {"n_layers_in_coda", "1"},
                {"mean_recurrence", "32"},
                {"tie_embeddings", "true"},
                {"qk_bias", llama_flavour ? "false" : "true"},
                {"bias", "false"},
                {"injection_type", "\"linear\""},
                {"state_init", "\"like-init\""},
                {"test_time_noise", "0"},
                {"nonlin_name", "\"SiLU\""},
                {"mlp_class_name", "\"GatedMLP\""},
                {"norm_class_name", "\"RMSNorm_llama\""}};
  model.tensors = {{"freqs_cis", {1, 128, 1, 3, 2}},
                   {"transformer.wte.weight", {19, 20}},
                   {"transformer.adapter.weight", {20, 40}},
                   {"transformer.ln_f.weight", {20}}};
  for (const std::string layer : {"prelude.0.", "prelude.1.", "core_block.0.", "coda.0."}) {
    const std::string prefix = "transformer." + layer;
    model.tensors.push_back({prefix + "attn.Wqkv.weight", {24 + 2 * kv, 20}});
    model.tensors.push_back({prefix + "attn.proj.weight", {20, 24}});
    model.tensors.push_back({prefix + "mlp.fc.weight", {72, 20}});
    model.tensors.push_back({prefix + "mlp.proj.weight", {20, 36}});
    if (!llama_flavour) model.tensors.push_back({prefix + "attn.qk_bias", {2, 1, 4, 6}});
    for (int n = 1; n <= (llama_flavour ? 2 : 4); ++n) {
      model.tensors.push_back({prefix + "norm_" + std::to_string(n) + ".weight", {20}});
    }
  }
  return model;
}

}  // namespace tinyloop
