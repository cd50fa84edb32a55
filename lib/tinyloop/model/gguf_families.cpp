// SPDX-License-Identifier: Apache-2.0
// Keys and names as llama.cpp's gguf-py has them (gguf/constants.py); those of ouro as the files
// that are published for it. Not the vocabulary: that is text/gguf_vocabulary.
#include "tinyloop/model/gguf_families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/model/gguf_blocks.h"

namespace tinyloop {

namespace {

constexpr std::int32_t kGreatestLoops = 64;

constexpr NameRow kLayer[] = {
    {"norm1", "attn_norm.weight"},
    {"norm2", "post_attention_norm.weight"},
    {"norm3", "ffn_norm.weight"},
    {"norm4", "post_ffw_norm.weight"},
    {"qkv", "attn_q.weight attn_k.weight attn_v.weight"},
    {"q_norm", "attn_q_norm.weight"},
    {"k_norm", "attn_k_norm.weight"},
    {"out", "attn_output.weight"},
    {"gate_up", "ffn_gate.weight ffn_up.weight"},
    {"down", "ffn_down.weight"},
};
constexpr NameRow kOther[] = {
    {"embedding", "token_embd.weight"},
    {"final_norm", "output_norm.weight"},
    {"head", "output.weight"},
};
constexpr FamilyNames kNames = {"blk.", "blk.", "blk.", false, kLayer, kOther};

constexpr GgufFamily kFamilies[] = {
    {"llama", false, false, false, true},
    {"qwen3", false, false, true, false},
    {"nanbeige", true, false, false, true},
    {"ouro", true, true, false, true},
};

// Behind the architecture's name; any other key that is set may change the math.
constexpr std::string_view kKnownKeys[] = {"vocab_size",
                                           "context_length",
                                           "embedding_length",
                                           "block_count",
                                           "feed_forward_length",
                                           "attention.head_count",
                                           "attention.head_count_kv",
                                           "attention.key_length",
                                           "attention.value_length",
                                           "attention.layer_norm_rms_epsilon",
                                           "rope.dimension_count",
                                           "rope.freq_base"};
constexpr std::string_view kLoopKeys[] = {"num_loops", "skip_loop_final_norm"};

// A family's keys without its name in front.
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string_view family)
      : metadata_(metadata), prefix_(fmt::format("{}.", family)) {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return metadata_.has(full(key)); }
  double number(std::string_view key) const { return metadata_.number(full(key)); }
  std::int64_t integer(std::string_view key) const { return metadata_.integer(full(key)); }
  bool flag_or(std::string_view key, bool fallback) const {
    return metadata_.flag_or(full(key), fallback);
  }
  [[noreturn]] void refuse(std::string_view key, std::string_view reason) const {
    metadata_.refuse(full(key), reason);
  }

  // A count or width; validate() has the finer limits.
  std::int32_t count(std::string_view key) const {
    const std::int64_t value = integer(key);
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
      refuse(key, "which is out of range");
    }
    return static_cast<std::int32_t>(value);
  }
  std::int32_t count_or(std::string_view key, std::int32_t fallback) const {
    return has(key) ? count(key) : fallback;
  }

  // Refuses what could change the math and is not among the keys that are read.
  void refuse_unknown(bool looped) const {
    const auto among = [](auto& known, std::string_view key) {
      return std::find(std::begin(known), std::end(known), key) != std::end(known);
    };
    for (const auto& [name, value] : metadata_.values()) {
      if (!name.starts_with(prefix_) || !metadata_.is_set(name)) continue;
      const std::string_view key = std::string_view(name).substr(prefix_.size());
      if (among(kKnownKeys, key) || (looped && among(kLoopKeys, key))) continue;
      if (key == "attention.causal") continue;  // true: it is set
      if (key == "rope.scaling.type" && metadata_.text(name) == "none") continue;
      // Where nothing is scaled it says nothing.
      if (key == "rope.scaling.finetuned" || key == "rope.scaling.original_context_length") {
        if (!has("rope.scaling.type") || metadata_.text(full("rope.scaling.type")) == "none") {
          continue;
        }
      }
      metadata_.refuse(name, "which is not supported");
    }
    if (!flag_or("attention.causal", true)) refuse("attention.causal", "which is not supported");
  }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

// What rope_type llama3 divides the frequency of pair i by.
double llama3_factor(const RopeScaling& scaling, double theta, std::int32_t head_dim,
                     std::int32_t pair) {
  const double frequency = std::pow(theta, -2.0 * pair / head_dim);
  const double turns = static_cast<double>(scaling.original_context) * frequency /
                       (2.0 * std::numbers::pi);  // in the original context
  if (turns > scaling.high_frequency_factor) return 1.0;
  if (turns < scaling.low_frequency_factor) return scaling.factor;
  const double share = (turns - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return 1.0 / ((1.0 - share) / scaling.factor + share);
}

// The tensor has one factor a pair and not the four numbers that made them: those that all
// published models of this kind have are tried.
void read_rope_factors(const GgufMetadata& metadata, const GgufTensor& tensor,
                       ModelConfig& config) {
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorKind::data, "{}: tensor {}: {}", metadata.where(), tensor.name, what);
  };
  const std::int64_t pairs = config.head_dim / 2;
  if (tensor.type != BlockType::f32 || tensor.shape != std::vector<std::int64_t>{pairs}) {
    fail(fmt::format("its type is {} and its shape [{}]; F32 and [{}] are needed",
                     name_of(tensor.type), fmt::join(tensor.shape, ", "), pairs));
  }
  std::vector<float> factors(static_cast<std::size_t>(pairs));
  read_blocks(tensor.type, tensor.bytes, factors);
  config.rope_scaling = {factors.back(), 1.0, 4.0, 8192};
  for (std::int32_t i = 0; i < pairs; ++i) {
    const double wanted = llama3_factor(config.rope_scaling, config.rope_theta, config.head_dim, i);
    const double found = factors[static_cast<std::size_t>(i)];
    if (!(std::fabs(found - wanted) <= 1e-4 * wanted)) {
      fail(
          fmt::format("factor {} is {}, where llama3's scaling by {} with low 1, high 4 and an "
                      "original context of 8192 has {:.6g}; others are not supported",
                      i, found, factors.back(), wanted));
    }
  }
}

std::int32_t head_dim_of(const Keys& keys, const ModelConfig& config) {
  if (!keys.has("attention.key_length") &&
      (config.heads == 0 || config.hidden % config.heads != 0)) {
    keys.refuse("embedding_length",
                fmt::format("which the {} heads do not divide (and attention.key_length is absent)",
                            config.heads));
  }
  const std::int32_t head_dim = keys.has("attention.key_length")
                                    ? keys.count("attention.key_length")
                                    : config.hidden / config.heads;
  for (const char* same : {"attention.value_length", "rope.dimension_count"}) {
    if (keys.count_or(same, head_dim) != head_dim) {
      keys.refuse(same,
                  fmt::format("where heads have {} dimensions; that is not supported", head_dim));
    }
  }
  return head_dim;
}

void read_loops(const Keys& keys, ModelConfig& config) {
  const std::int64_t loops = keys.integer("num_loops");
  if (loops < 1 || loops > 4096) keys.refuse("num_loops", "1 to 4096 are needed");
  config.default_loops = config.trained_loops = static_cast<std::int32_t>(loops);
  config.max_loops = std::max(kGreatestLoops, config.default_loops);
  config.loop_norm = !keys.flag_or("skip_loop_final_norm", false);
  config.final_norm = !config.loop_norm;
}

void add_ids(const GgufMetadata& metadata, ModelConfig& config) {
  const auto id_of = [&](std::string_view key) {
    const std::int64_t id = metadata.integer(key);
    if (id < 0 || id >= config.vocab) {
      metadata.refuse(key, fmt::format("of {} ids", config.vocab));
    }
    return static_cast<TokenId>(id);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (!metadata.has(key)) continue;
    const TokenId id = id_of(key);
    auto& ends = config.end_ids;
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  constexpr std::string_view kBegin = "tokenizer.ggml.bos_token_id";
  if (metadata.has(kBegin)) config.begin_id = id_of(kBegin);
}

}  // namespace

const GgufFamily& gguf_family_of(const GgufMetadata& metadata) {
  if (metadata.has("general.type") && metadata.text("general.type") != "model") {
    metadata.refuse("general.type", "a model is needed");
  }
  const std::string_view name = metadata.text("general.architecture");
  for (const GgufFamily& family : kFamilies) {
    if (family.architecture == name) return family;
  }
  metadata.refuse("general.architecture", fmt::format("which is unknown; known are {}",
                                                      fmt::join(known_architectures(), ", ")));
}

ModelConfig gguf_config(const GgufFamily& family, const GgufMetadata& metadata,
                        const FindGgufTensor& find) {
  const Keys keys(metadata, family.architecture);
  keys.refuse_unknown(family.looped);
  ModelConfig config;
  config.family = family.architecture;
  config.hidden = keys.count("embedding_length");
  config.ffn = keys.count("feed_forward_length");
  config.heads = keys.count("attention.head_count");
  config.kv_heads = keys.count_or("attention.head_count_kv", config.heads);
  config.head_dim = head_dim_of(keys, config);
  config.context = keys.integer("context_length");
  config.norm_eps = keys.number("attention.layer_norm_rms_epsilon");
  config.core_layers = keys.count("block_count");
  config.rope_theta = keys.has("rope.freq_base") ? keys.number("rope.freq_base") : 10000.0;
  config.qk_norm = family.qk_norm;
  config.tied_head = find("output.weight") == nullptr;
  if (family.sandwich) config.block = BlockKind::sandwich_out;
  if (family.looped) read_loops(keys, config);

  const GgufTensor* embedding = find("token_embd.weight");
  if (embedding == nullptr) {
    throw Error(ErrorKind::data, "{}: tensor token_embd.weight is missing", metadata.where());
  }
  const std::int64_t rows = embedding->shape.front();
  if (rows > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorKind::data, "{}: tensor token_embd.weight has {} rows, too many",
                metadata.where(), rows);
  }
  config.vocab = static_cast<std::int32_t>(rows);
  if (keys.count_or("vocab_size", config.vocab) != config.vocab) {
    keys.refuse("vocab_size", fmt::format("tensor token_embd.weight has {} rows", rows));
  }
  if (const GgufTensor* factors = find(kRopeFactors)) {
    read_rope_factors(metadata, *factors, config);
  }
  add_ids(metadata, config);
  return config;
}

const FamilyNames& gguf_names() { return kNames; }

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const GgufFamily& family : kFamilies) names.emplace_back(family.architecture);
  return names;
}

}  // namespace tinyloop
