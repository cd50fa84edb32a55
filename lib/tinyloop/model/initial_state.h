// SPDX-License-Identifier: Apache-2.0
// The initial state of a row's first loop, for families that do not fix it (Huginn): zero, seeded
// noise or given rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/model/model_config.h"

namespace tinyloop {

// "zero", "seed:N" or the path of a little-endian float32 .npy file [positions][hidden].
class InitialStates {
 public:
  // Throws Error(usage) if the model has no free initial state and `text` is not empty, on a
  // malformed text, or a file of the wrong shape. Empty text = "seed:0".
  static InitialStates parse(std::string_view text, const ModelConfig& config);

  // Throws Error(usage) naming the position if a file holds no row for it.
  void check(std::int64_t position) const;
  // Writes the state of an absolute position to out [hidden]. Noise is keyed by (seed, position,
  // channel). Throws as check() does.
  void fill(std::int64_t position, std::span<float> out) const;
  // The part of every cache's identity: "zero", "seed:0", "file:<hash>", or "" if the model fixes
  // the state.
  const std::string& identity() const { return identity_; }

 private:
  std::string identity_;
  bool noise_ = false;
  std::uint64_t seed_ = 0;
  double std_ = 0.0;
  std::int32_t hidden_ = 0;
  std::vector<float> rows_;
};

}  // namespace tinyloop
