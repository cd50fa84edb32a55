// SPDX-License-Identifier: Apache-2.0
// Hugging Face checkpoint folders for tests; see the header. Names and shapes are those of the
// public checkpoints.
#include "model/checkpoint_folder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

template <typename T>
T little_endian(const char* bytes) {  // hosts of the tests are little-endian
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool is_huginn(const ModelConfig& config) {
  return config.family == "huginn" || config.family == "huginn_llama";
}

void add_plain_layer(const ModelConfig& c, ReferenceLayer& layer, const std::string& prefix,
                     std::vector<CheckpointTensor>& list) {
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, Doubles& values) {
    list.push_back({prefix + name + ".weight", std::move(shape), {values}});
  };
  add("self_attn.q_proj", {c.q_width(), c.hidden}, layer.q);
  add("self_attn.k_proj", {c.kv_width(), c.hidden}, layer.k);
  add("self_attn.v_proj", {c.kv_width(), c.hidden}, layer.v);
  add("self_attn.o_proj", {c.hidden, c.q_width()}, layer.out);
  add("mlp.gate_proj", {c.ffn, c.hidden}, layer.gate);
  add("mlp.up_proj", {c.ffn, c.hidden}, layer.up);
  add("mlp.down_proj", {c.hidden, c.ffn}, layer.down);
  add("input_layernorm", {c.hidden}, layer.norm1);
  add("post_attention_layernorm", {c.hidden}, layer.norm3);
  if (c.block == BlockKind::sandwich_out) {
    add("input_layernorm_2", {c.hidden}, layer.norm2);
    add("post_attention_layernorm_2", {c.hidden}, layer.norm4);
  }
  if (c.qk_norm) {
    add("self_attn.q_norm", {c.head_dim}, layer.q_norm);
    add("self_attn.k_norm", {c.head_dim}, layer.k_norm);
  }
}

void add_huginn_layer(const ModelConfig& c, ReferenceLayer& layer, const std::string& prefix,
                      std::vector<CheckpointTensor>& list) {
  list.push_back({prefix + "attn.Wqkv.weight",
                  {c.q_width() + 2 * c.kv_width(), c.hidden},
                  {layer.q, layer.k, layer.v}});
  list.push_back({prefix + "attn.proj.weight", {c.hidden, c.q_width()}, {layer.out}});
  list.push_back({prefix + "mlp.fc.weight", {2 * c.ffn, c.hidden}, {layer.gate, layer.up}});
  list.push_back({prefix + "mlp.proj.weight", {c.hidden, c.ffn}, {layer.down}});
  if (c.qk_bias) {
    list.push_back({prefix + "attn.qk_bias", {2, 1, c.heads, c.head_dim}, {layer.qk_bias}});
  }
  std::vector<Doubles*> norms = {&layer.norm1, &layer.norm3};
  if (c.block == BlockKind::sandwich_post) {
    norms = {&layer.norm1, &layer.norm2, &layer.norm3, &layer.norm4};
  }
  for (std::size_t i = 0; i < norms.size(); ++i) {
    list.push_back({prefix + "norm_" + std::to_string(i + 1) + ".weight", {c.hidden}, {*norms[i]}});
  }
}

double decode(const std::string& type, const char* data, std::size_t index) {
  if (type == "F32") return little_endian<float>(data + 4 * index);
  const auto bits = little_endian<std::uint16_t>(data + 2 * index);
  if (type == "F16") return half_to_float(bits);
  if (type == "BF16") return bfloat_to_float(bits);
  throw std::runtime_error("type " + type);
}

void encode(WeightType type, double value, std::string& bytes) {
  char raw[4];
  const auto number = static_cast<float>(value);
  if (type == WeightType::f32) {
    std::memcpy(raw, &number, 4);
    bytes.append(raw, 4);
    return;
  }
  const std::uint16_t half =
      type == WeightType::f16 ? float_to_half(number) : float_to_bfloat(number);
  std::memcpy(raw, &half, 2);
  bytes.append(raw, 2);
}

Json common_json(const ModelConfig& c, const char* dtype) {
  Json json;
  json["model_type"] = c.family;
  json["hidden_size"] = c.hidden;
  json["intermediate_size"] = c.ffn;
  json["num_hidden_layers"] = c.layers();
  json["num_attention_heads"] = c.heads;
  json["num_key_value_heads"] = c.kv_heads;
  json["head_dim"] = c.head_dim;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = c.norm_eps;
  json["rope_theta"] = c.rope_theta;
  json["rope_scaling"] = nullptr;
  if (c.rope_scaling.factor != 1.0) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", c.rope_scaling.factor},
                            {"low_freq_factor", c.rope_scaling.low_frequency_factor},
                            {"high_freq_factor", c.rope_scaling.high_frequency_factor},
                            {"original_max_position_embeddings", c.rope_scaling.original_context}};
  }
  json["max_position_embeddings"] = c.context;
  json["vocab_size"] = c.vocab;
  json["tie_word_embeddings"] = c.tied_head;
  json["torch_dtype"] = dtype;
  if (!c.end_ids.empty()) json["eos_token_id"] = c.end_ids;
  if (c.begin_id >= 0) json["bos_token_id"] = c.begin_id;
  return json;
}

Json huginn_json(const ModelConfig& c, const char* dtype) {
  const bool post = c.block == BlockKind::sandwich_post;
  const double state_scale = post ? std::sqrt(static_cast<double>(c.hidden)) : 1.0;
  Json json;
  json["model_type"] = "huginn_raven";
  json["n_embd"] = c.hidden;
  json["n_heads"] = c.heads;
  json["num_key_value_heads"] = c.kv_heads;
  json["head_dim"] = c.head_dim;
  json["intermediate_size"] = c.ffn;
  json["vocab_size"] = json["padded_vocab_size"] = c.vocab;
  json["norm_eps"] = c.norm_eps;
  json["rope_base"] = c.rope_theta;
  json["block_size"] = c.context;
  json["n_layers_in_prelude"] = c.prelude_layers;
  json["n_layers_in_recurrent_block"] = c.core_layers;
  json["n_layers_in_coda"] = c.coda_layers;
  json["mean_recurrence"] = c.default_loops;
  json["tie_embeddings"] = json["tie_word_embeddings"] = c.tied_head;
  json["qk_bias"] = c.qk_bias;
  json["bias"] = false;
  json["injection_type"] = "linear";
  json["state_init"] = "like-init";
  json["test_time_noise"] = 0;
  json["init_values"] = {{"std", c.initial_std / state_scale}, {"embed_scale", c.embedding_scale}};
  json["torch_dtype"] = dtype;
  if (!post) json["rope_theta"] = c.rope_theta;
  return json;
}

// name -> raw values of every tensor in the folder's safetensors files
std::map<std::string, Doubles> read_tensors(const std::string& folder) {
  std::map<std::string, Doubles> tensors;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = read_bytes(entry.path());
    const auto header = little_endian<std::uint64_t>(bytes.data());
    const Json json = Json::parse(bytes.substr(8, header));
    for (const auto& [name, tensor] : json.items()) {
      if (name == "__metadata__") continue;
      const std::string type = tensor.at("dtype");
      const auto begin = tensor.at("data_offsets").at(0).get<std::size_t>();
      const auto end = tensor.at("data_offsets").at(1).get<std::size_t>();
      const std::size_t count = (end - begin) / (type == "F32" ? 4 : 2);
      Doubles& values = tensors[name];
      for (std::size_t i = 0; i < count; ++i) {
        values.push_back(decode(type, bytes.data() + 8 + header + begin, i));
      }
    }
  }
  return tensors;
}

}  // namespace

ReferenceWeights sized_weights(const ModelConfig& c) {
  const auto zeros = [](std::int64_t n, std::int64_t k) {
    return Doubles(static_cast<std::size_t>(n * k), 0.0);
  };
  ReferenceWeights w;
  w.embedding = zeros(c.vocab, c.hidden);
  if (!c.tied_head) w.head = zeros(c.vocab, c.hidden);
  if (c.injection == Injection::concat) w.adapter = zeros(c.hidden, 2 * c.hidden);
  if (c.exit_gate) w.exit_gate = zeros(1, c.hidden);
  w.final_norm = zeros(1, c.hidden);
  for (std::int32_t i = 0; i < c.layers(); ++i) {
    ReferenceLayer layer;
    layer.q = zeros(c.q_width(), c.hidden);
    layer.k = layer.v = zeros(c.kv_width(), c.hidden);
    layer.out = zeros(c.hidden, c.q_width());
    layer.gate = layer.up = zeros(c.ffn, c.hidden);
    layer.down = zeros(c.hidden, c.ffn);
    layer.norm1 = layer.norm3 = zeros(1, c.hidden);
    if (c.block != BlockKind::pre) layer.norm2 = layer.norm4 = zeros(1, c.hidden);
    if (c.qk_norm) layer.q_norm = layer.k_norm = zeros(1, c.head_dim);
    if (c.qk_bias) layer.qk_bias = zeros(1, c.q_width() + c.kv_width());
    w.layers.push_back(std::move(layer));
  }
  return w;
}

std::vector<CheckpointTensor> checkpoint_tensors(const ModelConfig& c, ReferenceWeights& w) {
  std::vector<CheckpointTensor> list;
  const bool huginn = is_huginn(c);
  const std::string model = huginn ? "transformer." : "model.";
  list.push_back({model + (huginn ? "wte.weight" : "embed_tokens.weight"),
                  {c.vocab, c.hidden},
                  {w.embedding}});
  list.push_back({model + (huginn ? "ln_f.weight" : "norm.weight"), {c.hidden}, {w.final_norm}});
  if (!c.tied_head) list.push_back({"lm_head.weight", {c.vocab, c.hidden}, {w.head}});
  if (c.injection == Injection::concat) {
    list.push_back({model + "adapter.weight", {c.hidden, 2 * c.hidden}, {w.adapter}});
  }
  if (c.exit_gate) {
    list.push_back({model + "early_exit_gate.weight", {1, c.hidden}, {w.exit_gate}});
    list.push_back({model + "early_exit_gate.bias", {1}, {std::span(&w.exit_bias, 1)}});
  }
  for (std::int32_t i = 0; i < c.layers(); ++i) {
    ReferenceLayer& layer = w.layers[static_cast<std::size_t>(i)];
    if (!huginn) {
      add_plain_layer(c, layer, model + "layers." + std::to_string(i) + ".", list);
      continue;
    }
    const std::int32_t core = i - c.prelude_layers, coda = core - c.core_layers;
    const std::string part = core < 0   ? "prelude." + std::to_string(i)
                             : coda < 0 ? "core_block." + std::to_string(core)
                                        : "coda." + std::to_string(coda);
    add_huginn_layer(c, layer, model + part + ".", list);
  }
  return list;
}

ModelConfig read_checkpoint_config(const std::string& folder) {
  const Json json = Json::parse(read_bytes(fs::path(folder) / "config.json"));
  const std::string type = json.at("model_type");
  ModelConfig c;
  c.family = type;
  c.vocab = json.at("vocab_size");
  c.ffn = json.at("intermediate_size");
  c.max_loops = c.trained_loops = 64;
  c.context = json.value("max_position_embeddings", 128);
  c.tied_head = json.at("tie_word_embeddings");
  if (type == "huginn_raven") {
    const bool post = json.at("qk_bias");  // the two flavours of the goldens differ in this too
    c.family = post ? "huginn" : "huginn_llama";
    c.hidden = json.at("n_embd");
    c.heads = json.at("n_heads");
    c.kv_heads = json.at("num_key_value_heads");
    c.head_dim = json.at("head_dim");
    c.norm_eps = json.at("norm_eps");
    c.prelude_layers = json.at("n_layers_in_prelude");
    c.core_layers = json.at("n_layers_in_recurrent_block");
    c.coda_layers = json.at("n_layers_in_coda");
    c.default_loops = json.at("mean_recurrence");
    c.block = post ? BlockKind::sandwich_post : BlockKind::pre;
    c.rope_layout = post ? RopeLayout::interleaved : RopeLayout::half;
    c.rope_theta = json.at(post ? "rope_base" : "rope_theta");
    c.qk_bias = c.post_loop_norm = post;
    c.embedding_scale = json.at("init_values").at("embed_scale");
    c.injection = Injection::concat;
    c.initial_state = InitialState::free;
    return c;
  }
  c.hidden = json.at("hidden_size");
  c.heads = json.at("num_attention_heads");
  c.kv_heads = json.at("num_key_value_heads");
  c.head_dim = json.value("head_dim", c.hidden / c.heads);
  c.norm_eps = json.at("rms_norm_eps");
  c.core_layers = json.at("num_hidden_layers");
  c.rope_theta = json.at("rope_theta");
  if (json.contains("rope_scaling") && json["rope_scaling"].is_object()) {
    const Json& scaling = json["rope_scaling"];
    c.rope_scaling.factor = scaling.at("factor");
    c.rope_scaling.low_frequency_factor = scaling.at("low_freq_factor");
    c.rope_scaling.high_frequency_factor = scaling.at("high_freq_factor");
    c.rope_scaling.original_context = scaling.at("original_max_position_embeddings");
  }
  c.qk_norm = type == "qwen3";
  if (type == "ouro") {
    c.default_loops = json.at("total_ut_steps");
    c.block = BlockKind::sandwich_out;
    c.loop_norm = c.exit_gate = true;
  }
  if (type == "nanbeige") {
    c.default_loops = json.at("num_loops");
    c.loop_norm = !json.at("skip_loop_final_norm");
  }
  c.final_norm = !c.loop_norm;
  return c;
}

ReferenceWeights read_checkpoint(const std::string& folder, const ModelConfig& config) {
  ReferenceWeights weights = sized_weights(config);
  const std::map<std::string, Doubles> tensors = read_tensors(folder);
  for (const CheckpointTensor& tensor : checkpoint_tensors(config, weights)) {
    const Doubles& values = tensors.at(tensor.name);
    auto from = values.begin();
    for (const std::span<double> part : tensor.parts) {
      if (values.end() - from < std::ssize(part))
        throw std::runtime_error("size of " + tensor.name);
      std::copy_n(from, part.size(), part.begin());
      from += std::ssize(part);
    }
    if (from != values.end()) throw std::runtime_error("size of " + tensor.name);
  }
  return weights;
}

void write_checkpoint(const std::string& folder, const ModelConfig& config,
                      ReferenceWeights weights, WeightType type, std::int32_t shards) {
  const bool f32 = type == WeightType::f32, f16 = type == WeightType::f16;
  const char* const dtype = f32 ? "float32" : f16 ? "float16" : "bfloat16";
  fs::create_directories(folder);
  Json json = is_huginn(config) ? huginn_json(config, dtype) : common_json(config, dtype);
  if (config.family == "ouro") json["total_ut_steps"] = config.default_loops;
  if (config.family == "nanbeige") {
    json["num_loops"] = config.default_loops;
    json["skip_loop_final_norm"] = !config.loop_norm;
  }
  write_bytes(fs::path(folder) / "config.json", json.dump(1));

  const std::vector<CheckpointTensor> tensors = checkpoint_tensors(config, weights);
  Json index;
  for (std::int32_t shard = 0; shard < shards; ++shard) {
    std::string name = "model.safetensors";
    if (shards > 1) {
      name = "model-0000" + std::to_string(shard + 1) + "-of-0000" + std::to_string(shards) +
             ".safetensors";
    }
    Json header;
    std::string data;
    for (std::size_t i = static_cast<std::size_t>(shard); i < tensors.size();
         i += static_cast<std::size_t>(shards)) {
      const std::size_t begin = data.size();
      for (const std::span<double> part : tensors[i].parts) {
        for (const double value : part) encode(type, value, data);
      }
      header[tensors[i].name] = {{"dtype", f32   ? "F32"
                                           : f16 ? "F16"
                                                 : "BF16"},
                                 {"shape", tensors[i].shape},
                                 {"data_offsets", {begin, data.size()}}};
      index["weight_map"][tensors[i].name] = name;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const std::uint64_t length = text.size();
    char raw[8];
    std::memcpy(raw, &length, 8);
    write_bytes(fs::path(folder) / name, std::string(raw, 8) + text + data);
  }
  if (shards > 1) write_bytes(fs::path(folder) / "model.safetensors.index.json", index.dump(1));
}

void copy_checkpoint(const std::string& from, const std::string& to, const std::string& key,
                     bool value) {
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (entry.path().string().find(".safetensors") == std::string::npos) continue;
    fs::copy_file(entry.path(), fs::path(to) / entry.path().filename(),
                  fs::copy_options::overwrite_existing);
  }
  Json json = Json::parse(read_bytes(fs::path(from) / "config.json"));
  json[key] = value;
  write_bytes(fs::path(to) / "config.json", json.dump(1));
}

}  // namespace tinyloop
