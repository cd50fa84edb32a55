// SPDX-License-Identifier: Apache-2.0
// Opens a .tinyloop file: every claim of its header is checked before a view is handed out; weights
// are not read. A model in memory is bound the same way. Not the writer (model_writer), but the
// table of tensors that both go by is here.
#include "tinyloop/model/model.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"

namespace tinyloop {

namespace {

constexpr std::size_t kHashDigits = 32;
constexpr std::uintptr_t kAlignment = 64;

bool is_padding(const TensorView& tensor) {
  return tensor.name.starts_with(".pad") && tensor.type == TensorType::u8 &&
         tensor.bytes.size() < kAlignment;
}

bool is_vocabulary(const TensorView& tensor) {
  return tensor.name == kVocabularyTensor && tensor.type == TensorType::u8 &&
         tensor.shape.size() == 1;
}

std::string hash_text(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

TensorType stored_type(WeightType type) {
  switch (type) {
    case WeightType::f32:
      return TensorType::f32;
    case WeightType::f16:
      return TensorType::f16;
    case WeightType::bf16:
      return TensorType::bf16;
    case WeightType::q8:
      return TensorType::i8;
    case WeightType::q4:
    case WeightType::q4_1:
      return TensorType::u8;
  }
  return TensorType::f32;
}

// The type of a matrix by its tensor and, of four bits, by that of its scales: null if there is
// none.
std::optional<WeightType> weight_type(const TensorView& data, const TensorView* scales) {
  if (data.type == stored_type(WeightType::q4)) {
    return scales != nullptr && scales->shape.size() == 4 ? WeightType::q4_1 : WeightType::q4;
  }
  for (const WeightType type :
       {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q8}) {
    if (stored_type(type) == data.type) return type;
  }
  return {};
}

const std::string& metadata_of(const TensorFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw Error(ErrorKind::data,
                "{}: is an incomplete .tinyloop file: '{}' is missing from its metadata",
                file.path(), key);
  }
  return found->second;
}

void check_format(const TensorFile& file) {
  const auto found = file.metadata().find("format");
  if (found == file.metadata().end() || !found->second.starts_with("tinyloop ")) {
    throw Error(ErrorKind::data,
                "{}: is a safetensors file but not a .tinyloop file; tl-convert makes one from a "
                "Hugging Face folder",
                file.path());
  }
  if (found->second != kModelFormat) {
    throw Error(ErrorKind::data, "{}: has format {}, this program reads \"{}\"", file.path(),
                json_string(found->second.substr(0, 40)), kModelFormat);
  }
}

// Half bytes once stood for -8..7; what those files hold means another thing now.
void refuse_linear_q4(const TensorFile& file, const TensorView& view) {
  if (view.type != TensorType::u8 || view.shape.size() != 5) return;
  throw Error(ErrorKind::data,
              "{}: tensor {}: is of the former type q4, whose half bytes are integers, not of a "
              "codebook; convert the model again",
              file.path(), view.name);
}

// Compares the file's tensors with what the configuration asks for; the hashes are left empty.
std::vector<StoredTensor> check_tensors(const TensorFile& file, const ModelConfig& config) {
  std::vector<StoredTensor> stored;
  std::set<std::string_view> names;
  for (const ModelTensor& tensor : model_tensors(config)) {
    const TensorView& view = file.at(tensor.name);
    const std::optional<WeightType> type = weight_type(view, file.find(tensor.name + ".scales"));
    const bool only_f32 = !tensor.matrix || tensor.name == "exit_gate";
    if (!type || (only_f32 && *type != WeightType::f32)) {
      throw Error(ErrorKind::data, "{}: tensor {}: type {} is not allowed", file.path(),
                  tensor.name, safetensors_name(view.type));
    }
    refuse_linear_q4(file, view);
    for (TensorPlan& plan : stored_tensors(tensor, *type)) {
      const TensorView& part = file.at(plan.name);
      if (part.type != plan.type || part.shape != plan.shape) {
        throw Error(ErrorKind::data,
                    "{}: tensor {}: is {} [{}], but the configuration needs {} [{}]", file.path(),
                    plan.name, safetensors_name(part.type), fmt::join(part.shape, ", "),
                    safetensors_name(plan.type), fmt::join(plan.shape, ", "));
      }
      names.insert(part.name);
      stored.push_back({std::move(plan), {}});
    }
  }
  std::size_t at = 0, pads = 0;
  for (const TensorView& tensor : file.tensors()) {
    if (is_padding(tensor) && tensor.name == fmt::format(".pad{}", pads)) {
      ++pads;
      continue;
    }
    if (is_vocabulary(tensor) && at == stored.size()) continue;
    if (!names.contains(tensor.name)) {
      throw Error(ErrorKind::data, "{}: tensor {}: not part of the configuration", file.path(),
                  tensor.name);
    }
    if (tensor.name != stored[at++].plan.name) {
      throw Error(ErrorKind::data, "{}: tensor {}: is out of order", file.path(), tensor.name);
    }
    if (reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % kAlignment != 0) {
      throw Error(ErrorKind::data, "{}: tensor {}: does not start at a multiple of {} bytes",
                  file.path(), tensor.name, kAlignment);
    }
  }
  return stored;
}

// Takes "name:hash name:hash ..." apart; the names must be those of `stored`, in order.
void read_hashes(std::string_view text, std::vector<StoredTensor>& stored, std::string_view where) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  for (StoredTensor& tensor : stored) {
    const std::string_view name = text.substr(0, tensor.plan.name.size());
    const std::string_view hash = text.substr(std::min(name.size() + 1, text.size()), kHashDigits);
    if (name != tensor.plan.name || hash.size() != kHashDigits || text[name.size()] != ':' ||
        !std::all_of(hash.begin(), hash.end(), is_digit)) {
      throw Error(ErrorKind::data, "{}: tensor {}: its hash is missing from the metadata", where,
                  tensor.plan.name);
    }
    tensor.hash = hash;
    text.remove_prefix(name.size() + 1 + kHashDigits);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  if (!text.empty()) throw Error(ErrorKind::data, "{}: the metadata has too many hashes", where);
}

// Where a layer's tensor goes, by the last part of its name.
auto named(const auto& members, std::string_view name) {
  return std::ranges::find(members, name, [](const auto& member) { return member.name; })->weight;
}

}  // namespace

Model Model::open(const std::string& path) {
  Model model;
  model.path_ = path;
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    throw Error(ErrorKind::io,
                "{}: is a folder; tl-convert makes a .tinyloop file from a Hugging Face folder",
                path);
  }
  model.file_ = std::make_shared<TensorFile>(TensorFile::open(path));
  const TensorFile& file = *model.file_;
  check_format(file);
  const std::string& config_json = metadata_of(file, "config");
  model.config_ = config_from_json(config_json, path);
  model.stored_ = check_tensors(file, model.config_);
  read_hashes(metadata_of(file, "hashes"), model.stored_, path);
  model.fingerprint_ = metadata_of(file, "fingerprint");
  if (model.fingerprint_ != model_fingerprint(config_json, model.stored_)) {
    throw Error(ErrorKind::data, "{}: has been altered: its fingerprint does not match its header",
                path);
  }
  if (const TensorView* vocabulary = file.find(kVocabularyTensor)) {
    model.vocabulary_ = vocabulary->bytes;
    metadata_of(file, std::string(kVocabularyTensor));
  }
  model.bind([&](const std::string& name) { return file.find(name); });
  return model;
}

Model Model::in_memory(const ModelConfig& config, std::span<const TensorView> tensors,
                       std::shared_ptr<const void> memory, const std::string& identity) {
  Model model;
  model.config_ = config;
  model.memory_ = std::move(memory);
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& tensor : tensors) {
    by_name.emplace(tensor.name, &tensor);
    model.stored_.push_back({{tensor.name, tensor.type, tensor.shape}, identity});
  }
  model.fingerprint_ = model_fingerprint(to_json(config), model.stored_);
  model.bind([&](const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  });
  return model;
}

void Model::bind(const FindTensor& find) {
  const auto at = [&find](const std::string& name) -> const TensorView& { return *find(name); };
  layers_.resize(static_cast<std::size_t>(config_.layers()));
  const std::map<std::string_view, WeightView Model::*> others = {
      {"embedding", &Model::embedding_},
      {"head", &Model::head_},
      {"adapter", &Model::adapter_},
      {"exit_gate", &Model::exit_gate_}};
  const auto matrix_of = [&](const ModelTensor& tensor) {
    const TensorView& data = at(tensor.name);
    WeightView view;
    view.type = weight_type(data, find(tensor.name + ".scales")).value();
    view.n = tensor.n;
    view.k = tensor.k;
    view.data = data.bytes;
    if (is_quantised(view.type)) view.scales = at(tensor.name + ".scales").bytes;
    return view;
  };
  for (const ModelTensor& tensor : model_tensors(config_)) {
    const std::string_view part = std::string_view(tensor.name).substr(tensor.name.rfind('.') + 1);
    if (tensor.layer >= 0) {
      LayerWeights& layer = layers_[static_cast<std::size_t>(tensor.layer)];
      if (tensor.matrix) {
        layer.*named(kLayerMatrices, part) = matrix_of(tensor);
      } else {
        layer.*named(kLayerVectors, part) = at(tensor.name).as<float>();
      }
    } else if (tensor.matrix) {
      this->*others.at(part) = matrix_of(tensor);
    } else if (part == "exit_bias") {
      exit_bias_ = at(tensor.name).as<float>().front();
    } else {
      final_norm_ = at(tensor.name).as<float>();
    }
  }
  if (config_.tied_head) head_ = embedding_;
}

void Model::verify() const {
  if (!file_) return;
  for (const StoredTensor& tensor : stored_) {
    const std::span<const std::byte> bytes = file_->at(tensor.plan.name).bytes;
    if (hash_text(XXH3_128bits(bytes.data(), bytes.size())) != tensor.hash) {
      throw Error(ErrorKind::data, "{}: tensor {}: has been altered: its hash differs", path(),
                  tensor.plan.name);
    }
  }
  if (!vocabulary_.empty() && hash_text(XXH3_128bits(vocabulary_.data(), vocabulary_.size())) !=
                                  metadata_of(*file_, std::string(kVocabularyTensor))) {
    throw Error(ErrorKind::data, "{}: the vocabulary has been altered: its hash differs", path());
  }
  for (const TensorView& tensor : file_->tensors()) {
    const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
    if (is_padding(tensor) && !std::all_of(tensor.bytes.begin(), tensor.bytes.end(), is_zero)) {
      throw Error(ErrorKind::data, "{}: tensor {}: has been altered: its padding is not zero",
                  path(), tensor.name);
    }
  }
}

std::vector<ModelTensor> model_tensors(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden, ffn = config.ffn;
  const std::int64_t q_width = config.q_width(), kv_width = config.kv_width();
  std::vector<ModelTensor> tensors;
  std::int32_t layer = -1;
  std::string prefix;
  const auto matrix = [&](const char* name, std::int64_t n, std::int64_t k) {
    tensors.push_back({prefix + name, true, n, k, layer});
  };
  const auto vector = [&](const char* name, std::int64_t n) {
    tensors.push_back({prefix + name, false, n, 0, layer});
  };
  matrix("embedding", config.vocab, hidden);
  if (config.injection == Injection::concat) matrix("adapter", hidden, 2 * hidden);
  const bool sandwich = config.block != BlockKind::pre;
  for (layer = 0; layer < config.layers(); ++layer) {
    prefix = fmt::format("layers.{}.", layer);
    vector("norm1", hidden);
    matrix("qkv", q_width + 2 * kv_width, hidden);
    if (config.qk_bias) vector("qk_bias", q_width + kv_width);
    if (config.qk_norm) vector("q_norm", config.head_dim);
    if (config.qk_norm) vector("k_norm", config.head_dim);
    matrix("out", hidden, q_width);
    if (sandwich) vector("norm2", hidden);
    vector("norm3", hidden);
    matrix("gate_up", 2 * ffn, hidden);
    matrix("down", hidden, ffn);
    if (sandwich) vector("norm4", hidden);
  }
  layer = -1;
  prefix.clear();
  vector("final_norm", hidden);
  if (config.exit_gate) matrix("exit_gate", 1, hidden);
  if (config.exit_gate) vector("exit_bias", 1);
  if (!config.tied_head) matrix("head", config.vocab, hidden);
  return tensors;
}

std::vector<TensorPlan> stored_tensors(const ModelTensor& tensor, WeightType type) {
  if (!tensor.matrix) return {{tensor.name, TensorType::f32, {tensor.n}}};
  const std::int64_t panels = panels_of(tensor.n), groups = groups_of(tensor.k);
  const TensorType stored = stored_type(type);
  if (!is_quantised(type)) return {{tensor.name, stored, {panels, tensor.k, kPanel}}};
  TensorPlan scales = {tensor.name + ".scales", TensorType::f16, {panels, groups, kPanel}};
  if (type == WeightType::q4_1) scales.shape = {panels, groups, 2, kPanel};
  if (is_four_bits(type)) {  // two values a byte
    return {{tensor.name, stored, {panels, groups, 4, kPanel * 4}}, scales};
  }
  return {{tensor.name, stored, {panels, groups, 8, kPanel, 4}}, scales};
}

std::string model_fingerprint(std::string_view config_json, std::span<const StoredTensor> tensors) {
  std::string text = fmt::format("{}\n{}\n", kModelFormat, config_json);
  for (const StoredTensor& tensor : tensors) {
    text += fmt::format("{} {} [{}] {}\n", tensor.plan.name, safetensors_name(tensor.plan.type),
                        fmt::join(tensor.plan.shape, ","), tensor.hash);
  }
  return hash_text(XXH3_128bits(text.data(), text.size()));
}

}  // namespace tinyloop
