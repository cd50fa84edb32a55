// SPDX-License-Identifier: Apache-2.0
// The .tinyloop file: a safetensors file with packed weights, the configuration as JSON in its
// metadata and a fingerprint; see tl-model(5). Mapped, never copied: opening touches the header
// only. Or the same weights in memory, without a file (random_model). Knows host memory; moving
// weights to a device is the engine's business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/tensor_file.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/model/packed_matrix.h"

namespace tinyloop {

// One packed matrix of the file, y = x W^T with W [n][k].
struct WeightView {
  WeightType type = WeightType::f32;
  std::int64_t n = 0, k = 0;
  std::span<const std::byte> data, scales;  // sizes as packed_matrix.h says
  bool present() const { return !data.empty(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(data.size() + scales.size()); }
};

// Norm weights and biases are kept in f32; empty = absent.
using VectorView = std::span<const float>;

struct LayerWeights {
  WeightView qkv;                         // n = q_width + 2 kv_width (rows q | k | v), k = hidden
  WeightView out;                         // n = hidden, k = q_width
  WeightView gate_up;                     // n = 2 ffn (rows gate | up), k = hidden
  WeightView down;                        // n = hidden, k = ffn
  VectorView norm1, norm2, norm3, norm4;  // [hidden]; norm2 and norm4 only in the sandwich blocks
  VectorView q_norm, k_norm;              // [head_dim], qk_norm only
  VectorView qk_bias;                     // [q_width + kv_width], qk_bias only
};

// All members of LayerWeights by their names in the file: to iterate over a layer's weights, use
// these.
struct LayerMatrix {
  std::string_view name;
  WeightView LayerWeights::*weight;
};
struct LayerVector {
  std::string_view name;
  VectorView LayerWeights::*weight;
};
inline constexpr LayerMatrix kLayerMatrices[] = {{"qkv", &LayerWeights::qkv},
                                                 {"out", &LayerWeights::out},
                                                 {"gate_up", &LayerWeights::gate_up},
                                                 {"down", &LayerWeights::down}};
inline constexpr LayerVector kLayerVectors[] = {
    {"norm1", &LayerWeights::norm1},    {"norm2", &LayerWeights::norm2},
    {"norm3", &LayerWeights::norm3},    {"norm4", &LayerWeights::norm4},
    {"q_norm", &LayerWeights::q_norm},  {"k_norm", &LayerWeights::k_norm},
    {"qk_bias", &LayerWeights::qk_bias}};

// A tensor as it stands in the file.
struct StoredTensor {
  TensorPlan plan;
  std::string hash;  // XXH3-128 of its bytes, 32 hex digits
};

class Model {
 public:
  // Opens and checks: metadata, configuration, that every tensor the configuration requires is
  // present with the right shape and type and that there is no other, and the fingerprint over
  // configuration and table of tensor hashes. Does not read the weights; verify() does. Throws
  // Error(io) or Error(data) naming file and tensor.
  static Model open(const std::string& path);
  // A model in memory, which it keeps alive: `tensors` are those of stored_tensors() for each of
  // model_tensors(config), in that order, with their bytes in `memory`. `identity` replaces
  // the tensors' hashes in the fingerprint: it must differ for different weights.
  static Model in_memory(const ModelConfig& config, std::span<const TensorView> tensors,
                         std::shared_ptr<const void> memory, const std::string& identity);

  const ModelConfig& config() const { return config_; }
  const std::string& path() const { return path_; }                // empty: in memory
  const std::string& fingerprint() const { return fingerprint_; }  // 32 hex digits

  const WeightView& embedding() const { return embedding_; }  // n = vocab, k = hidden
  const WeightView& head() const { return head_; }            // the embedding if tied
  // n = hidden, k = 2 hidden; injection concat only.
  const WeightView& adapter() const { return adapter_; }
  // f32, n = 1, k = hidden; exit_gate only.
  const WeightView& exit_gate() const { return exit_gate_; }
  float exit_bias() const { return exit_bias_; }
  VectorView final_norm() const { return final_norm_; }  // [hidden]
  // prelude, then core, then coda.
  const std::vector<LayerWeights>& layers() const { return layers_; }

  // Vocabulary::serialize()'s bytes; empty: the file has none. Not part of the fingerprint, since
  // ids and logits do not depend on it.
  std::span<const std::byte> vocabulary() const { return vocabulary_; }

  // Reads every byte and compares the hash of each tensor with the stored one; throws Error(data)
  // naming the tensor. A model in memory has no hashes and always passes.
  void verify() const;

 private:
  // Points the views at the tensors; null: there is no such tensor.
  using FindTensor = std::function<const TensorView*(const std::string& name)>;
  void bind(const FindTensor& find);

  std::shared_ptr<TensorFile> file_;    // null: in memory
  std::shared_ptr<const void> memory_;  // null: in a file
  std::string path_;
  ModelConfig config_;
  std::vector<StoredTensor> stored_;
  std::string fingerprint_;
  std::span<const std::byte> vocabulary_;
  WeightView embedding_, head_, adapter_, exit_gate_;
  float exit_bias_ = 0.0f;
  VectorView final_norm_;
  std::vector<LayerWeights> layers_;
};

// What a .tinyloop file must hold for a configuration, in file order; shared by Model::open and the
// writer so that they cannot disagree. Names: "embedding", "head", "adapter", "exit_gate",
// "exit_bias", "final_norm", "layers.<i>.qkv|out|gate_up|down|norm1..4|q_norm|k_norm|qk_bias"; a
// quantised matrix has a second tensor NAME.scales.
struct ModelTensor {
  std::string name;
  bool matrix = false;  // packed matrix [n][k]; else an f32 vector of n values
  std::int64_t n = 0, k = 0;
  std::int32_t layer = -1;  // -1: of no layer
};
std::vector<ModelTensor> model_tensors(const ModelConfig& config);

// How a tensor stands in the file when it is stored as `type` (vectors: f32): itself and, for a
// quantised matrix, its scales.
std::vector<TensorPlan> stored_tensors(const ModelTensor& tensor, WeightType type);

// XXH3-128 over the configuration's text and the table of stored tensors in file order, 32 hex
// digits.
std::string model_fingerprint(std::string_view config_json, std::span<const StoredTensor> tensors);

// The tensor, the last one, and the metadata key of its hash.
inline constexpr std::string_view kVocabularyTensor = "vocabulary";

inline constexpr std::string_view kModelFormat = "tinyloop 1";  // metadata "format"

}  // namespace tinyloop
