// SPDX-License-Identifier: Apache-2.0
// Writes a .tinyloop file panel by panel: the counterpart of Model::open, which shares its table of
// tensors. Knows packed weights only; where they come from (a foreign checkpoint, a test) is the
// caller's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/model/model.h"

namespace tinyloop {

class ModelWriter {
 public:
  // Validates the configuration and begins the file. types: how to store each tensor of
  // model_tensors(config), in their order; ignored for vectors and the exit gate, which are f32.
  // vocabulary: as Vocabulary::serialize() has it; empty: none is stored.
  ModelWriter(const std::string& path, const ModelConfig& config, std::span<const WeightType> types,
              std::string vocabulary = {});
  ~ModelWriter();
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  // The tensor whose values come next; nullptr when all are there.
  const ModelTensor* next() const;
  WeightType next_type() const;

  // Appends one panel of the next matrix: 16 rows [16][k] of finite floats, absent rows zero.
  // Returns the packed panel, valid until the next call, for whoever wants to compare.
  struct Panel {
    std::span<const std::byte> data, scales;
  };
  Panel append_panel(std::span<const float> rows, std::span<const float> weights = {});
  // The same for a panel that the caller has packed, of exactly one panel's bytes.
  Panel append_packed(std::span<const std::byte> data, std::span<const std::byte> scales);
  // Appends the next vector as a whole.
  void append_vector(std::span<const float> values);

  // Writes fingerprint and hashes and gives the file its name; returns the fingerprint.
  std::string finish();
  std::int64_t file_bytes() const;  // of the whole file, known from the start

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tinyloop
