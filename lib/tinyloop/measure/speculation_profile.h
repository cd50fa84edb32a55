// SPDX-License-Identifier: Apache-2.0
// The verdict on whether speculation pays, as a small JSON file: written by tl-bench-spec, followed
// by `--speculative auto`. Measures nothing.
#pragma once

#include <cstdint>
#include <string>

#include "tinyloop/schedule/speculation.h"

namespace tinyloop {

struct SpeculationProfile {
  std::string fingerprint;  // of the model file
  std::string machine;      // processor and device with its threads, as the tools name them
  std::int32_t loops = 0;
  std::string kv;           // storage mode
  std::string date;         // of the measurement, ISO 8601
  bool speculate = false;   // the verdict
  Speculation speculation;  // the best one, whatever the verdict
  double speedup = 0.0;     // of it over plain decoding
  double threshold = 0.0;   // used for the verdict

  std::string json() const;
  // Throws Error(io) or Error(data) naming the path.
  static SpeculationProfile read(const std::string& path);
  void write(const std::string& path) const;
};

}  // namespace tinyloop
