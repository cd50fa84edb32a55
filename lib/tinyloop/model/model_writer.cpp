// SPDX-License-Identifier: Apache-2.0
// Packs panels, hashes what it writes and puts hashes and fingerprint into the header at the end.
// Not a converter: it takes floats in the order of model_tensors().
#include "tinyloop/model/model_writer.h"

#include <xxhash.h>

#include <cassert>
#include <map>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/hash_state.h"
#include "tinyloop/files/tensor_file.h"

namespace tinyloop {

namespace {

// XXH3-128 of bytes that come in pieces.
class Hash {
 public:
  Hash() { reset(); }
  void reset() { XXH3_128bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  HashState state_ = make_hash_state();
};

std::string hashes_text(std::span<const StoredTensor> stored) {
  std::string text;
  for (const StoredTensor& tensor : stored) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", tensor.plan.name, tensor.hash);
  }
  return text;
}

}  // namespace

struct ModelWriter::State {
  std::string config_json, vocabulary;
  std::vector<ModelTensor> tensors;
  std::vector<WeightType> types;
  std::vector<StoredTensor> stored;
  std::unique_ptr<TensorFileWriter> file;

  std::size_t current = 0;         // of tensors
  std::size_t current_stored = 0;  // of stored
  std::int64_t panel = 0;          // of the current matrix
  Hash hash;
  std::vector<std::byte> data, scales;  // one packed panel
  std::vector<std::byte> all_scales;    // of the current matrix: they follow its data

  void append(std::span<const std::byte> bytes) {
    file->append(bytes);
    hash.add(bytes);
  }
  void end_stored() {
    stored[current_stored++].hash = hash.text();
    hash.reset();
  }
};

ModelWriter::ModelWriter(const std::string& path, const ModelConfig& config,
                         std::span<const WeightType> types, std::string vocabulary)
    : state_(std::make_unique<State>()) {
  validate(config, path);
  State& state = *state_;
  state.config_json = to_json(config);
  state.tensors = model_tensors(config);
  assert(types.size() == state.tensors.size());
  state.types.assign(types.begin(), types.end());
  std::vector<TensorPlan> plans;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const ModelTensor& tensor = state.tensors[i];
    if (!tensor.matrix || tensor.name == "exit_gate") state.types[i] = WeightType::f32;
    for (TensorPlan& plan : stored_tensors(tensor, state.types[i])) {
      plans.push_back(plan);
      state.stored.push_back({std::move(plan), std::string(32, '0')});
    }
  }
  std::map<std::string, std::string> metadata{{"format", std::string(kModelFormat)},
                                              {"config", state.config_json},
                                              {"fingerprint", std::string(32, '0')},
                                              {"hashes", hashes_text(state.stored)}};
  state.vocabulary = std::move(vocabulary);
  if (!state.vocabulary.empty()) {
    plans.push_back({std::string(kVocabularyTensor),
                     TensorType::u8,
                     {static_cast<std::int64_t>(state.vocabulary.size())}});
    Hash hash;
    hash.add(std::as_bytes(std::span(state.vocabulary)));
    metadata.emplace(kVocabularyTensor, hash.text());
  }
  state.file = std::make_unique<TensorFileWriter>(path, std::move(plans), std::move(metadata));
}

ModelWriter::~ModelWriter() = default;

const ModelTensor* ModelWriter::next() const {
  return state_->current < state_->tensors.size() ? &state_->tensors[state_->current] : nullptr;
}

WeightType ModelWriter::next_type() const { return state_->types[state_->current]; }

ModelWriter::Panel ModelWriter::append_panel(std::span<const float> rows,
                                             std::span<const float> weights) {
  State& state = *state_;
  const ModelTensor& tensor = state.tensors[state.current];
  const WeightType type = state.types[state.current];
  assert(tensor.matrix);
  state.data.resize(packed_data_bytes(type, kPanel, tensor.k));
  state.scales.resize(packed_scale_bytes(type, kPanel, tensor.k));
  pack_panel(type, tensor.k, rows, state.data, state.scales, weights);
  return append_packed(state.data, state.scales);
}

ModelWriter::Panel ModelWriter::append_packed(std::span<const std::byte> data,
                                              std::span<const std::byte> scales) {
  State& state = *state_;
  const ModelTensor& tensor = state.tensors[state.current];
  const WeightType type = state.types[state.current];
  assert(tensor.matrix && data.size() == packed_data_bytes(type, kPanel, tensor.k));
  state.append(data);
  state.all_scales.insert(state.all_scales.end(), scales.begin(), scales.end());
  if (++state.panel == panels_of(tensor.n)) {
    state.end_stored();
    if (is_quantised(type)) {
      state.append(state.all_scales);
      state.end_stored();
    }
    state.all_scales.clear();
    state.panel = 0;
    ++state.current;
  }
  return {data, scales};
}

void ModelWriter::append_vector(std::span<const float> values) {
  State& state = *state_;
  const ModelTensor& tensor = state.tensors[state.current];
  assert(!tensor.matrix && static_cast<std::int64_t>(values.size()) == tensor.n);
  state.append(std::as_bytes(values));
  state.end_stored();
  ++state.current;
}

std::string ModelWriter::finish() {
  State& state = *state_;
  assert(state.current == state.tensors.size());
  if (!state.vocabulary.empty()) state.file->append(std::as_bytes(std::span(state.vocabulary)));
  const std::string fingerprint = model_fingerprint(state.config_json, state.stored);
  state.file->set_metadata("fingerprint", fingerprint);
  state.file->set_metadata("hashes", hashes_text(state.stored));
  state.file->finish();
  return fingerprint;
}

std::int64_t ModelWriter::file_bytes() const { return state_->file->file_bytes(); }

}  // namespace tinyloop
