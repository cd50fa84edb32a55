// SPDX-License-Identifier: Apache-2.0
// One table row per foreign family. The math behind each row stands in the family's paper and
// reference code: Ouro arXiv 2510.25741, Huginn arXiv 2502.05171, and the transformers library for
// Llama, Qwen3 and the config keys. Not the weights: import_hf reads those by the names given here.
#include "tinyloop/model/hf_families.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"

namespace tinyloop {

namespace {

constexpr std::int32_t kGreatestLoops = 64;

constexpr NameRow kLlamaLayer[] = {
    {"norm1", "input_layernorm.weight"},
    {"norm2", "input_layernorm_2.weight"},
    {"norm3", "post_attention_layernorm.weight"},
    {"norm4", "post_attention_layernorm_2.weight"},
    {"qkv", "self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight"},
    {"q_norm", "self_attn.q_norm.weight"},
    {"k_norm", "self_attn.k_norm.weight"},
    {"out", "self_attn.o_proj.weight"},
    {"gate_up", "mlp.gate_proj.weight mlp.up_proj.weight"},
    {"down", "mlp.down_proj.weight"},
};
constexpr NameRow kLlamaOther[] = {
    {"embedding", "model.embed_tokens.weight"},
    {"final_norm", "model.norm.weight"},
    {"head", "lm_head.weight"},
    {"exit_gate", "model.early_exit_gate.weight"},
    {"exit_bias", "model.early_exit_gate.bias"},
};
constexpr FamilyNames kLlamaNames = {"model.layers.", "model.layers.", "model.layers.",
                                     false,           kLlamaLayer,     kLlamaOther};

constexpr NameRow kHuginnLayer[] = {
    {"norm1", "norm_1.weight"},  {"norm2", "norm_2.weight"},   {"norm3", "norm_3.weight"},
    {"norm4", "norm_4.weight"},  {"qkv", "attn.Wqkv.weight"},  {"qk_bias", "attn.qk_bias"},
    {"out", "attn.proj.weight"}, {"gate_up", "mlp.fc.weight"}, {"down", "mlp.proj.weight"},
};
constexpr NameRow kHuginnLlamaLayer[] = {
    {"norm1", "norm_1.weight"},  {"norm3", "norm_2.weight"},  {"qkv", "attn.Wqkv.weight"},
    {"qk_bias", "attn.qk_bias"}, {"out", "attn.proj.weight"}, {"gate_up", "mlp.fc.weight"},
    {"down", "mlp.proj.weight"},
};
constexpr NameRow kHuginnOther[] = {
    {"embedding", "transformer.wte.weight"},
    {"adapter", "transformer.adapter.weight"},
    {"final_norm", "transformer.ln_f.weight"},
    {"head", "lm_head.weight"},
};
constexpr FamilyNames kHuginnNames = {"transformer.prelude.", "transformer.core_block.",
                                      "transformer.coda.",    true,
                                      kHuginnLayer,           kHuginnOther};
constexpr FamilyNames kHuginnLlamaNames = {"transformer.prelude.", "transformer.core_block.",
                                           "transformer.coda.",    true,
                                           kHuginnLlamaLayer,      kHuginnOther};

// A count or width; validate() has the finer limits.
std::int32_t count_of(const HfJson& json, const char* key) {
  const std::int64_t value = json.integer(key);
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    json.refuse(key, "which is out of range");
  }
  return static_cast<std::int32_t>(value);
}

std::int32_t count_or(const HfJson& json, const char* key, std::int32_t fallback) {
  return json.has(key) ? count_of(json, key) : fallback;
}

void refuse_unless_one(const HfJson& json, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (json.number_or(key, 1.0) != 1.0) json.refuse(key, "which is not supported");
  }
}

const char* first_present(const HfJson& json, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (json.has(key)) return key;
  }
  return *keys.begin();  // reported as missing
}

// Two keys for one number: where both are there, they must agree.
void refuse_if_different(const HfJson& json, const char* key, const HfJson& other,
                         const char* other_key) {
  if (!json.has(key) || !other.has(other_key)) return;
  if (json.number(key) == other.number(other_key)) return;
  json.refuse(key,
              fmt::format("which contradicts {}{} ({})", &json == &other ? "" : other.name() + ".",
                          other_key, other.number(other_key)));
}

std::int32_t head_dim_of(const HfJson& json, const char* width_key, const ModelConfig& config) {
  if (json.has("head_dim")) return count_of(json, "head_dim");
  if (config.heads == 0 || config.hidden % config.heads != 0) {
    json.refuse(width_key, "which the number of heads does not divide (and head_dim is absent)");
  }
  return config.hidden / config.heads;
}

// "rope_scaling" of older and "rope_parameters" of newer files, inside `json`.
void read_scaling(const HfJson& json, const HfJson& rope, RopeScaling& scaling) {
  if (const std::string layer_type = rope.first_object(); !layer_type.empty()) {
    json.refuse(rope.name().c_str(), fmt::format("which differs by layer type ({}); that is not "
                                                 "supported",
                                                 excerpt(layer_type)));
  }
  const char* type_key = first_present(rope, {"rope_type", "type"});
  rope.refuse_unless(type_key, {"default", "llama3"});
  if (rope.has("type") && rope.has(type_key) && rope.text("type") != rope.text(type_key)) {
    rope.refuse("type", "which contradicts rope_type");
  }
  refuse_unless_one(rope, {"partial_rotary_factor"});
  if (!rope.has(type_key)) {
    if (rope.has("factor")) rope.refuse("factor", "and its rope_type is missing");
    return;
  }
  if (rope.text(type_key) == "default") return;
  scaling.factor = rope.number("factor");
  scaling.low_frequency_factor = rope.number("low_freq_factor");
  scaling.high_frequency_factor = rope.number("high_freq_factor");
  scaling.original_context = rope.integer("original_max_position_embeddings");
  refuse_if_different(json, "original_max_position_embeddings", rope,
                      "original_max_position_embeddings");
}

// Theta and scaling stand at the top or in one of two objects: all that are there must agree.
void read_rope(const HfJson& json, const char* theta_key, ModelConfig& config) {
  refuse_unless_one(json, {"partial_rotary_factor"});
  std::vector<HfJson> objects;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!json.has(key)) continue;
    HfJson rope = json.object(key);
    RopeScaling scaling;
    read_scaling(json, rope, scaling);
    refuse_if_different(json, theta_key, rope, "rope_theta");
    if (!objects.empty()) {
      refuse_if_different(rope, "rope_theta", objects.front(), "rope_theta");
      if (scaling != config.rope_scaling) json.refuse(key, "which contradicts rope_parameters");
    }
    config.rope_scaling = scaling;
    objects.push_back(std::move(rope));
  }
  const auto has_theta = [](const HfJson& rope) { return rope.has("rope_theta"); };
  const auto inside = std::find_if(objects.begin(), objects.end(), has_theta);
  config.rope_theta =
      inside == objects.end() ? json.number(theta_key) : inside->number("rope_theta");
}

// An absent key means what the family's reference takes for it. That a tied head's tensor, if it is
// there, is the embedding is for import_hf to see.
bool tied_head(const HfJson& json, const char* key, bool absent, const HasTensor& has_tensor) {
  const bool tied = json.flag_or(key, absent);
  if (!tied && !has_tensor("lm_head.weight")) {
    json.refuse(key,
                "and tensor lm_head.weight is missing; set the key to true if the embedding "
                "is the head");
  }
  return tied;
}

// Factors and limits of neighbouring families, which a model of these has only if its numbers
// differ.
void refuse_foreign_scalars(const HfJson& json) {
  json.refuse_if_set({"attn_logit_softcapping", "final_logit_softcapping", "attention_multiplier",
                      "query_pre_attn_scalar", "clip_qkv", "no_rope_layers", "use_qk_norm",
                      "quantization_config", "compression_config"});
  refuse_unless_one(json, {"embedding_multiplier", "residual_multiplier", "logits_scaling",
                           "logit_scale", "pretraining_tp"});
}

// What Llama, Qwen3, Ouro and Nanbeige have in common.
ModelConfig llama_like(const HfJson& json, const HasTensor& has_tensor, std::string_view family) {
  json.refuse_unless("hidden_act", {"silu", "swish"});
  json.refuse_if_set({"attention_bias", "mlp_bias", "use_sliding_window"});
  refuse_foreign_scalars(json);
  for (const std::string& type : json.texts("layer_types")) {
    if (type != "full_attention") json.refuse("layer_types", "only full_attention is supported");
  }
  ModelConfig config;
  config.family = family;
  config.vocab = count_of(json, "vocab_size");
  config.hidden = count_of(json, "hidden_size");
  config.ffn = count_of(json, "intermediate_size");
  config.heads = count_of(json, "num_attention_heads");
  config.kv_heads = count_or(json, "num_key_value_heads", config.heads);
  config.head_dim = head_dim_of(json, "hidden_size", config);
  config.context = json.integer("max_position_embeddings");
  config.norm_eps = json.number("rms_norm_eps");
  config.core_layers = count_of(json, "num_hidden_layers");
  read_rope(json, "rope_theta", config);
  config.tied_head = tied_head(json, "tie_word_embeddings", false, has_tensor);
  return config;
}

void set_loops(const HfJson& json, const char* key, std::int64_t loops, ModelConfig& config) {
  if (loops < 1 || loops > 4096) json.refuse(key, "the number of loops must be 1 to 4096");
  config.default_loops = config.trained_loops = static_cast<std::int32_t>(loops);
  config.max_loops = std::max(kGreatestLoops, config.default_loops);
}

ModelConfig llama_config(const HfJson& json, const HasTensor& has_tensor) {
  return llama_like(json, has_tensor, "llama");
}

ModelConfig qwen3_config(const HfJson& json, const HasTensor& has_tensor) {
  ModelConfig config = llama_like(json, has_tensor, "qwen3");
  config.qk_norm = true;
  return config;
}

ModelConfig ouro_config(const HfJson& json, const HasTensor& has_tensor) {
  ModelConfig config = llama_like(json, has_tensor, "ouro");
  if (json.number_or("early_exit_threshold", 1.0) < 1.0) {
    json.refuse("early_exit_threshold", "and early exit is not supported: set it to 1.0");
  }
  if (json.has("early_exit_step")) {
    json.refuse("early_exit_step",
                "and early exit is not supported: remove it, choose the loops of a run");
  }
  json.refuse_if_set({"use_weighted_exit"});
  if (json.has("exit_at_step")) json.refuse("exit_at_step", "and early exit is not supported");
  set_loops(json, "total_ut_steps", json.integer("total_ut_steps"), config);
  config.block = BlockKind::sandwich_out;
  config.loop_norm = true;
  config.final_norm = false;
  config.exit_gate = has_tensor("model.early_exit_gate.weight");
  return config;
}

ModelConfig nanbeige_config(const HfJson& json, const HasTensor& has_tensor) {
  // Code paths of the reference that no released checkpoint uses.
  json.refuse_if_set({"enable_double_loop_split", "loop_share_kv", "qk_layernorm",
                      "enable_hyper_connection", "enable_mhc", "enable_depth_attention",
                      "emb_neighbor_num"});
  ModelConfig config = llama_like(json, has_tensor, "nanbeige");
  if (json.has("kv_channels")) {
    const std::int32_t channels = count_of(json, "kv_channels");
    if (json.has("head_dim") && channels != config.head_dim) {
      json.refuse("kv_channels", "which contradicts head_dim");
    }
    config.head_dim = channels;
  }
  const std::int64_t losses = json.list_length("loop_loss_weights");
  if (losses > 0) {
    set_loops(json, "loop_loss_weights", losses + 1, config);
    if (json.integer_or("num_loops", losses + 1) != losses + 1) {
      json.refuse("num_loops",
                  fmt::format("which contradicts loop_loss_weights ({} loops)", losses + 1));
    }
  } else {
    set_loops(json, "num_loops", json.integer("num_loops"), config);
  }
  config.loop_norm = !json.flag_or("skip_loop_final_norm", false);
  config.final_norm = !config.loop_norm;
  return config;
}

// What both flavours of the Raven wrapper have in common.
ModelConfig raven_config(const HfJson& json, const HasTensor& has_tensor, std::string_view family) {
  json.refuse_unless("injection_type", {"linear"});
  json.refuse_unless("state_init", {"like-init"});
  json.refuse_unless("nonlin_name", {"SiLU"});
  json.refuse_unless("mlp_class_name", {"GatedMLP"});
  json.refuse_unless("norm_class_name", {"RMSNorm_llama", "RMSNorm"});
  json.refuse_unless("hidden_act", {"silu", "swish"});
  json.refuse_if_set({"bias", "attention_bias", "mlp_bias", "test_time_noise"});
  refuse_foreign_scalars(json);
  refuse_if_different(json, "num_attention_heads", json, "n_heads");
  refuse_if_different(json, "hidden_size", json, "n_embd");
  refuse_if_different(json, "rms_norm_eps", json, "norm_eps");
  if (json.has("tie_word_embeddings") && json.has("tie_embeddings") &&
      json.flag_or("tie_word_embeddings", false) != json.flag_or("tie_embeddings", false)) {
    json.refuse("tie_word_embeddings", "which contradicts tie_embeddings");
  }
  ModelConfig config;
  config.family = family;
  config.vocab = count_of(json, first_present(json, {"padded_vocab_size", "vocab_size"}));
  config.hidden = count_of(json, "n_embd");
  config.ffn = count_of(json, "intermediate_size");
  config.heads = count_of(json, first_present(json, {"n_heads", "num_attention_heads"}));
  config.kv_heads = count_or(json, "num_key_value_heads", config.heads);
  config.head_dim = head_dim_of(json, "n_embd", config);
  config.context = json.integer(first_present(json, {"block_size", "max_position_embeddings"}));
  config.norm_eps = json.number("norm_eps");
  config.prelude_layers = count_of(json, "n_layers_in_prelude");
  config.core_layers = count_of(json, "n_layers_in_recurrent_block");
  config.coda_layers = count_of(json, "n_layers_in_coda");
  set_loops(json, "mean_recurrence", json.integer("mean_recurrence"), config);
  config.qk_bias = json.flag_or("qk_bias", false);
  if (config.qk_bias && config.heads != config.kv_heads) {
    json.refuse("qk_bias", "which needs as many key-value heads as heads");
  }
  config.tied_head = tied_head(json, first_present(json, {"tie_embeddings", "tie_word_embeddings"}),
                               true, has_tensor);
  config.injection = Injection::concat;
  config.initial_state = InitialState::free;
  const double width = config.hidden;
  config.embedding_scale = std::sqrt(width);
  config.initial_std = std::sqrt(2.0 / (5.0 * width));
  if (json.has("init_values")) {
    const HfJson values = json.object("init_values");
    config.embedding_scale = values.number_or("embed_scale", config.embedding_scale);
    config.initial_std = values.number_or("std", config.initial_std);
  }
  return config;
}

ModelConfig huginn_config(const HfJson& json, const HasTensor& has_tensor) {
  ModelConfig config = raven_config(json, has_tensor, "huginn");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (json.has(key)) json.refuse(key, "which is not supported");
  }
  refuse_unless_one(json, {"partial_rotary_factor"});
  refuse_if_different(json, "rope_theta", json, "rope_base");
  config.block = BlockKind::sandwich_post;
  config.rope_layout = RopeLayout::interleaved;
  config.rope_theta = json.number("rope_base");
  config.initial_std *= config.embedding_scale;  // the reference scales the drawn state
  config.post_loop_norm = true;
  return config;
}

ModelConfig huginn_llama_config(const HfJson& json, const HasTensor& has_tensor) {
  ModelConfig config = raven_config(json, has_tensor, "huginn_llama");
  // The reference of this flavour reads rope_theta only; rope_base stands beside it as the
  // wrapper's default.
  read_rope(json, first_present(json, {"rope_theta", "rope_base"}), config);
  return config;
}

constexpr std::string_view kFirstCore = "transformer.core_block.0.";

bool has_core(const HasTensor& has_tensor, std::string_view name) {
  return has_tensor(fmt::format("{}{}", kFirstCore, name));
}

bool fits_huginn(const HasTensor& has_tensor) { return has_core(has_tensor, "norm_3.weight"); }

bool fits_huginn_olmo(const HasTensor& has_tensor) {
  return has_core(has_tensor, "attn.q_norm.weight");
}

// Rows of one model_type are tried in order.
constexpr Family kFamilies[] = {
    {"ouro", "ouro", nullptr, ouro_config, &kLlamaNames, true},
    {"nanbeige", "nanbeige", nullptr, nanbeige_config, &kLlamaNames, true},
    {"huginn", "huginn_raven", fits_huginn, huginn_config, &kHuginnNames, true},
    {"huginn_olmo", "huginn_raven", fits_huginn_olmo, nullptr, nullptr, true},
    {"huginn_llama", "huginn_raven", nullptr, huginn_llama_config, &kHuginnLlamaNames, true},
    {"llama", "llama", nullptr, llama_config, &kLlamaNames, false},
    {"qwen3", "qwen3", nullptr, qwen3_config, &kLlamaNames, false},
    {"iquestpltcoder", "iquestpltcoder", nullptr, nullptr, nullptr, true},
    {"iquestloopcoder", "iquestloopcoder", nullptr, nullptr, nullptr, true},
};

}  // namespace

const Family& family_of(const HfJson& json, const HasTensor& has_tensor) {
  const std::string type = json.text("model_type");
  for (const Family& family : kFamilies) {
    if (family.model_type != type || (family.fits != nullptr && !family.fits(has_tensor))) continue;
    if (family.config != nullptr) return family;
    json.refuse("model_type", family.name == family.model_type
                                  ? "a family that is known but not supported"
                                  : fmt::format("with the tensors of its {} flavour, which is not "
                                                "supported",
                                                family.name));
  }
  json.refuse("model_type",
              fmt::format("which is unknown; known are {}", fmt::join(known_model_types(), ", ")));
}

std::vector<std::string> known_model_types() {
  std::vector<std::string> types;
  for (const Family& family : kFamilies) {
    const bool listed = std::find(types.begin(), types.end(), family.model_type) != types.end();
    if (family.config != nullptr && !listed) types.emplace_back(family.model_type);
  }
  return types;
}

bool is_ignored(const ModelConfig& config, std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("freqs_cis") ||
         (config.tied_head && name == "lm_head.weight");
}

}  // namespace tinyloop
