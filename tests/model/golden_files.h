// SPDX-License-Identifier: Apache-2.0
// Reads golden vectors (golden.json and .npy files) for tests, with readers of its own.
// The checkpoints beside them are read by checkpoint_folder. The format is described in
// tests/model/golden/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/reference_model.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/token.h"

namespace tinyloop {

struct GoldenRun {   // an empty vector: not stored
  std::string name;  // of family, case and prompt, for messages
  std::vector<TokenId> prompt, greedy;
  Doubles margins;  // greatest minus second logit of each greedy step
  std::vector<std::pair<TokenId, double>> top_logits;  // best five after the prompt
  Doubles prompt_logits;                               // [prompt][vocab]
  Doubles decode_logits;                               // [greedy][vocab]
  Doubles loop_states;  // [loops][hidden], last position of the prompt
  double float_error_prompt = 0.0, float_error_decode = 0.0;  // what float32 arithmetic costs
  Doubles gates;                                              // [loops][prompt]
  std::vector<std::int32_t> exit_prompt, exit_greedy;         // loops whose states went to the head
  Doubles latent_changes;  // [loops]: |x_r - x_{r-1}| / |x_r|, last position of the prompt
  Doubles divergences;     // [loops]: KL(previous || current), the first one against uniform
};

struct GoldenCase {
  std::string folder, name;
  std::int32_t loops = 1;
  std::optional<LoopedRange> looped;
  std::int32_t shared_planes = 0;
  std::optional<double> exit_threshold;
  bool skip_compute = false;
  bool skip_loop_norm = false;
  std::string initial_states_file;  // "" = zeros
  Doubles initial_states;           // [positions][hidden]
  std::vector<GoldenRun> runs;

  bool plain() const {
    return shared_planes == 0 && !exit_threshold;
  }  // needs neither sharing nor exits
};

// Folders that hold golden families: the repository's own first, then the full set where it lies
// beside the repository.
std::vector<std::string> golden_roots();

// All cases below a root of all families that are supported, in alphabetical order of folders.
std::vector<GoldenCase> read_golden_cases(const std::string& root);

}  // namespace tinyloop
