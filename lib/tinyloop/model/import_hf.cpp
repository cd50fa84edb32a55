// SPDX-License-Identifier: Apache-2.0
// Opens a Hugging Face checkpoint and finds the tensors that its configuration needs. Not the names
// and keys of families, which are rows in hf_families, nor the conversion: convert_weights.
#include "tinyloop/model/import_hf.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/model/hf_checkpoint.h"
#include "tinyloop/model/hf_families.h"
#include "tinyloop/model/hf_json.h"

namespace tinyloop {

namespace {

constexpr std::size_t kForgetEvery = std::size_t{16} << 20;  // bytes of a source

// Everything that is known before a weight is read.
struct Source {
  HfCheckpoint checkpoint;
  const Family* family = nullptr;
  ModelConfig config;
};

void add_end_ids(const HfJson& json, ModelConfig& config) {
  for (const std::int64_t id : json.integers("eos_token_id")) {
    if (id < 0 || id >= config.vocab) json.refuse("eos_token_id", "which is not in the vocabulary");
    const auto token = static_cast<TokenId>(id);
    if (std::find(config.end_ids.begin(), config.end_ids.end(), token) == config.end_ids.end()) {
      config.end_ids.push_back(token);
    }
  }
}

Source open_source(const std::string& folder, const std::optional<LoopedRange>& looped) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) && std::filesystem::exists(folder, ignored)) {
    throw Error(ErrorKind::io,
                "{}: is neither a folder with config.json and the weights nor a GGUF file", folder);
  }
  const HfJson json = HfJson::read(folder + "/config.json");
  // Before the weights, which a family that is not known may keep in another form.
  family_of(json, [](std::string_view) { return false; });
  Source source{HfCheckpoint::open(folder), nullptr, {}};
  const HasTensor has_tensor = [&source](std::string_view name) {
    return source.checkpoint.has(name);
  };
  source.family = &family_of(json, has_tensor);
  ModelConfig& config = source.config;
  config = source.family->config(json, has_tensor);
  if (looped) loop_layers(*looped, config);
  add_end_ids(json, config);
  const std::string generation = folder + "/generation_config.json";
  if (is_listed(generation)) add_end_ids(HfJson::read(generation), config);
  if (json.has("bos_token_id")) {
    const std::int64_t id = json.integer("bos_token_id");
    if (id < 0 || id >= config.vocab) json.refuse("bos_token_id", "which is not in the vocabulary");
    config.begin_id = static_cast<TokenId>(id);
  }
  validate(config, json.path());
  return source;
}

ForeignTensor as_foreign(const HfTensor& tensor) {
  const TensorView& view = *tensor.view;
  ForeignTensor foreign{&tensor.file->file(), view.name, view.shape, BlockType::f32, view.bytes};
  switch (view.type) {
    case TensorType::f32:
      break;
    case TensorType::f16:
      foreign.type = BlockType::f16;
      break;
    case TensorType::bf16:
      foreign.type = BlockType::bf16;
      break;
    default:
      throw Error(ErrorKind::data,
                  "{}: tensor {}: type {} is not supported, only F32, F16 and BF16",
                  tensor.file->path(), view.name, safetensors_name(view.type));
  }
  return foreign;
}

// A head of its own beside the claim that there is none would be lost.
void check_tied_head(const Source& source) {
  const auto& tensors = source.checkpoint.tensors();
  const auto head = tensors.find("lm_head.weight");
  if (!source.config.tied_head || head == tensors.end()) return;
  const std::vector<ModelTensor> ours = model_tensors(source.config);
  const auto embedding = std::find_if(ours.begin(), ours.end(),
                                      [](const ModelTensor& t) { return t.name == "embedding"; });
  const std::string name =
      sources_of(*source.family->names, source.config, *embedding).front().name;
  const HfTensor& tied = tensors.find(name)->second;
  const TensorView &a = *head->second.view, &b = *tied.view;
  bool equal = a.type == b.type && a.shape == b.shape && a.bytes.size() == b.bytes.size();
  for (std::size_t at = 0; equal && at < a.bytes.size(); at += kForgetEvery) {
    const std::size_t size = std::min(kForgetEvery, a.bytes.size() - at);
    equal = std::memcmp(a.bytes.data() + at, b.bytes.data() + at, size) == 0;
    head->second.file->forget(a.bytes.subspan(at, size));
    tied.file->forget(b.bytes.subspan(at, size));
  }
  if (equal) return;
  throw Error(ErrorKind::data,
              "{}: tensor lm_head.weight differs from {}, which {} of {}/config.json makes the "
              "head",
              head->second.file->path(), name,
              name.starts_with("model.") ? "tie_word_embeddings" : "tie_embeddings",
              source.checkpoint.folder());
}

std::vector<WeightJob> plan_jobs(const Source& source, const std::optional<WeightType>& type) {
  const HfCheckpoint& checkpoint = source.checkpoint;
  std::set<std::string, std::less<>> used;
  const auto find = [&](const std::string& name) -> std::optional<ForeignTensor> {
    const auto found = checkpoint.tensors().find(name);
    if (found == checkpoint.tensors().end()) return {};
    used.insert(name);
    return as_foreign(found->second);
  };
  std::vector<WeightJob> jobs =
      plan_weights(source.config, *source.family->names, type, checkpoint.folder(), find);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (used.contains(name) || is_ignored(source.config, name)) continue;
    refuse_extra(tensor.file->file(), name, source.config);
  }
  return jobs;
}

}  // namespace

ModelConfig import_config(const std::string& folder, const std::optional<LoopedRange>& looped) {
  return open_source(folder, looped).config;
}

ImportReport import_checkpoint(const std::string& folder, const std::string& out,
                               const ImportOptions& options) {
  const Source source = open_source(folder, options.looped);
  for (const TensorFile& file : source.checkpoint.files()) refuse_to_replace(out, file.path());
  const std::vector<WeightJob> jobs = plan_jobs(source, options.type);
  check_tied_head(source);
  ImportReport report = convert_weights(source.config, jobs, out, options);
  if (source.checkpoint.also_indexed()) {
    report.warnings.push_back(
        fmt::format("{}: using model.safetensors, ignoring model.safetensors.index.json", folder));
  }
  return report;
}

std::vector<std::string> known_families() { return known_model_types(); }

}  // namespace tinyloop
