// SPDX-License-Identifier: Apache-2.0
// Tiny models for tests; see the header. Scales are chosen so that logits are lively: greedy
// streams do not settle on one id and the number of loops changes them.
#include "tiny_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "model/checkpoint_folder.h"
#include "tinyloop/model/model_writer.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

struct Entry {
  TinyModel model;
  std::string_view name;
  std::uint64_t seed;  // picked for lively streams; tie and nan are m but for single values
};

constexpr Entry kEntries[] = {
    {TinyModel::m, "m", 16000},
    {TinyModel::m2, "m2", 16001},
    {TinyModel::tie, "tie", 16000},
    {TinyModel::nan, "nan", 16000},
    {TinyModel::odd, "odd", 16004},
    {TinyModel::ouro, "ouro", 3005},
    {TinyModel::nanbeige, "nanbeige", 16006},
    {TinyModel::huginn, "huginn", 5},
    {TinyModel::huginn_llama, "huginn_llama", 16008},
    {TinyModel::llama, "llama", 16009},
    {TinyModel::qwen3, "qwen3", 16010},
    {TinyModel::relaxed, "relaxed", 16011},
    {TinyModel::flat, "flat", 16011},
};

const Entry& entry_of(TinyModel which) {
  return *std::find_if(std::begin(kEntries), std::end(kEntries),
                       [&](const Entry& entry) { return entry.model == which; });
}

// Nearly normal with variance 1: four uniform numbers added, so that no library function could
// change a bit.
double noise(std::uint64_t seed, std::uint32_t tensor, std::uint32_t index) {
  const std::array<std::uint32_t, 4> words =
      philox(seed, {index, tensor, 0, static_cast<std::uint32_t>(NoiseUse::weights)});
  double sum = -2.0;
  for (const std::uint32_t word : words) sum += static_cast<double>(word) * 0x1p-32;
  return sum * 1.7320508075688772;
}

struct Spread {
  double mean = 0.0, deviation = 0.0;
};

Spread spread_of(const ModelConfig& config, const CheckpointTensor& tensor) {
  const auto contains = [&](std::string_view part) {
    return tensor.name.find(part) != std::string::npos;
  };
  const double hidden = std::sqrt(static_cast<double>(config.hidden));
  if (contains("gate.bias")) return {0.0, 0.0};
  if (contains("early_exit_gate")) return {0.0, 1.5 / hidden};
  if (contains("qk_bias")) return {0.0, 0.5};
  if (contains("layernorm_2")) return {0.25, 0.05};  // of what a branch adds (Ouro)
  if (contains("q_norm") || contains("k_norm")) return {1.5, 0.3};
  if (contains("norm") || contains("ln_f")) return {1.0, 0.2};
  if (contains("lm_head")) return {0.0, 4.0 / hidden};
  if (contains("embed_tokens") || contains("wte")) {
    return {0.0, config.tied_head ? 4.0 / hidden : 1.0 / config.embedding_scale};
  }
  // Sharp attention keeps positions apart. What a branch adds must outweigh a tied embedding and
  // must not outweigh a state that is normed after every loop.
  double gain = 1.0;
  if (contains("q_proj") || contains("k_proj")) gain = 2.5;
  if (contains("Wqkv")) gain = config.block == BlockKind::pre ? 2.0 : 1.2;
  if (contains("o_proj") || contains("down_proj")) {
    gain = config.tied_head ? 4.0 : config.loop_norm ? 0.4 : 1.0;
  }
  return {0.0, gain / std::sqrt(static_cast<double>(tensor.shape.back()))};
}

// The values of one tensor of a .tinyloop file by its name in model_tensors().
std::vector<float> values_of(const ReferenceWeights& w, const ModelConfig& config,
                             const std::string& name) {
  std::vector<float> values;
  const auto append = [&](const Doubles& from) {
    for (const double value : from) values.push_back(static_cast<float>(value));
  };
  if (name == "embedding") append(w.embedding);
  if (name == "head") append(w.head);
  if (name == "adapter") append(w.adapter);
  if (name == "exit_gate") append(w.exit_gate);
  if (name == "exit_bias") append({w.exit_bias});
  if (name == "final_norm") append(w.final_norm);
  for (std::int32_t i = 0; i < config.layers(); ++i) {
    const ReferenceLayer& layer = w.layers[static_cast<std::size_t>(i)];
    const std::pair<std::string_view, std::vector<const Doubles*>> parts[] = {
        {"qkv", {&layer.q, &layer.k, &layer.v}},
        {"out", {&layer.out}},
        {"gate_up", {&layer.gate, &layer.up}},
        {"down", {&layer.down}},
        {"norm1", {&layer.norm1}},
        {"norm2", {&layer.norm2}},
        {"norm3", {&layer.norm3}},
        {"norm4", {&layer.norm4}},
        {"q_norm", {&layer.q_norm}},
        {"k_norm", {&layer.k_norm}},
        {"qk_bias", {&layer.qk_bias}},
    };
    for (const auto& [part, sources] : parts) {
      if (name != fmt::format("layers.{}.{}", i, part)) continue;
      for (const Doubles* source : sources) append(*source);
    }
  }
  return values;
}

}  // namespace

std::string_view name_of(TinyModel which) { return entry_of(which).name; }

std::vector<TinyModel> all_tiny_models() {
  std::vector<TinyModel> models;
  for (const Entry& entry : kEntries) {
    if (entry.model != TinyModel::flat) models.push_back(entry.model);
  }
  return models;
}

ModelConfig tiny_config(TinyModel which) {
  ModelConfig c;
  c.family = "ouro";
  c.vocab = 64;
  c.hidden = 32;
  c.ffn = 64;
  c.heads = c.kv_heads = 2;
  c.head_dim = 16;
  c.context = 64;
  c.core_layers = 2;
  c.default_loops = 4;
  c.trained_loops = c.max_loops = 16;
  c.block = BlockKind::sandwich_out;
  c.loop_norm = c.exit_gate = true;
  c.final_norm = false;
  switch (which) {
    case TinyModel::m:
    case TinyModel::m2:
    case TinyModel::tie:
    case TinyModel::nan:
      return c;
    case TinyModel::odd:
      c.vocab = 71;
      c.hidden = 44;
      c.ffn = 75;
      c.head_dim = 24;
      return c;
    case TinyModel::ouro:
      c.heads = 4;
      c.context = 512;
      c.rope_theta = 1e6;
      c.trained_loops = 4;
      return c;
    default:
      break;
  }
  // All others have neither Ouro's blocks nor its gate.
  c.family = name_of(which);
  c.block = BlockKind::pre;
  c.loop_norm = c.exit_gate = false;
  c.final_norm = true;
  c.heads = 4;
  c.context = 512;
  switch (which) {
    case TinyModel::nanbeige:
      c.loop_norm = true;
      c.final_norm = false;
      c.default_loops = 2;
      c.norm_eps = 1e-5;
      c.rope_theta = 7e7;
      return c;
    case TinyModel::huginn:
    case TinyModel::huginn_llama:
      c.prelude_layers = 2;
      c.coda_layers = 1;
      c.head_dim = 8;
      c.injection = Injection::concat;
      c.initial_state = InitialState::free;
      c.initial_std = std::sqrt(0.4 / 32.0);
      if (which == TinyModel::huginn_llama) return c;
      c.kv_heads = 4;
      c.embedding_scale = std::sqrt(32.0);
      c.initial_std = std::sqrt(0.4);
      c.block = BlockKind::sandwich_post;
      c.rope_layout = RopeLayout::interleaved;
      c.rope_theta = 50000.0;
      c.qk_bias = c.post_loop_norm = c.tied_head = true;
      return c;
    case TinyModel::llama:
      c.tied_head = true;
      c.rope_scaling = {8.0, 1.0, 4.0, 64};
      break;
    case TinyModel::qwen3:
      c.qk_norm = true;
      break;
    default:  // relaxed and flat
      c.family = "llama";
      c.prelude_layers = c.coda_layers = 1;
      c.injection = Injection::relaxed;
      c.relaxed_beta = 0.25;
      c.default_loops = 3;
      return c;
  }
  c.default_loops = c.trained_loops = c.max_loops = 1;
  return c;
}

ReferenceWeights tiny_weights(TinyModel which) {
  const ModelConfig config = tiny_config(which);
  ReferenceWeights weights = sized_weights(config);
  std::uint32_t number = 0;
  for (const CheckpointTensor& tensor : checkpoint_tensors(config, weights)) {
    const Spread spread = spread_of(config, tensor);
    std::uint32_t index = 0;
    for (const std::span<double> part : tensor.parts) {
      for (double& value : part) {
        value = static_cast<float>(spread.mean +
                                   spread.deviation * noise(entry_of(which).seed, number, index++));
      }
    }
    ++number;
  }
  if (which == TinyModel::flat) {
    for (std::int32_t i = 0; i < config.core_layers; ++i) {
      ReferenceLayer& layer = weights.layers[static_cast<std::size_t>(config.prelude_layers + i)];
      std::fill(layer.out.begin(), layer.out.end(), 0.0);
      std::fill(layer.down.begin(), layer.down.end(), 0.0);
    }
  }
  const auto row = [&](Doubles& matrix, TokenId id) {
    return matrix.begin() + static_cast<std::ptrdiff_t>(id) * config.hidden;
  };
  if (which == TinyModel::tie) {
    std::copy_n(row(weights.head, kTieHigh), config.hidden, row(weights.head, kTieLow));
  }
  if (which == TinyModel::nan) {
    *row(weights.embedding, kNanId) = std::numeric_limits<double>::quiet_NaN();
  }
  return weights;
}

std::string write_tiny_model(const std::string& folder, TinyModel which, WeightType type) {
  const std::string path = fmt::format("{}/{}-{}.tinyloop", folder, name_of(which), name_of(type));
  const ModelConfig config = tiny_config(which);
  const ReferenceWeights weights = tiny_weights(which);
  const std::vector<WeightType> types(model_tensors(config).size(), type);
  ModelWriter writer(path, config, types);
  while (const ModelTensor* tensor = writer.next()) {
    const std::vector<float> values = values_of(weights, config, tensor->name);
    if (!tensor->matrix) {
      writer.append_vector(values);
      continue;
    }
    const std::int64_t k = tensor->k, panels = panels_of(tensor->n);
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      std::vector<float> rows(static_cast<std::size_t>(kPanel * k), 0.0f);
      const std::int64_t first = panel * kPanel * k;
      const std::int64_t count = std::min(kPanel * k, tensor->n * k - first);
      std::copy_n(values.begin() + first, count, rows.begin());
      writer.append_panel(rows);
    }
  }
  writer.finish();
  return path;
}

std::string write_tiny_checkpoint(const std::string& folder, TinyModel which, WeightType type) {
  const std::string path = folder + "/" + std::string(name_of(which)) + "-hf";
  write_checkpoint(path, tiny_config(which), tiny_weights(which), type,
                   which == TinyModel::nanbeige ? 2 : 1);
  return path;
}

}  // namespace tinyloop
