// SPDX-License-Identifier: Apache-2.0
// The looped transformer in double precision, straight from the papers' formulas: what the engine
// is measured against. Not fast, and nothing of engine, cpu or kv is used: each call computes the
// whole sequence from its ids.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "tinyloop/model/loop_plan.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/token.h"

namespace tinyloop {

class Model;

using Doubles = std::vector<double>;  // a matrix [n][k] row by row, or a vector; empty = absent

struct ReferenceLayer {
  Doubles q, k, v;                     // [q_width][hidden], [kv_width][hidden] twice
  Doubles out;                         // [hidden][q_width]
  Doubles gate, up;                    // [ffn][hidden]
  Doubles down;                        // [hidden][ffn]
  Doubles norm1, norm2, norm3, norm4;  // [hidden]
  Doubles q_norm, k_norm;              // [head_dim]
  Doubles qk_bias;                     // [q_width + kv_width]
};

struct ReferenceWeights {
  Doubles embedding;  // [vocab][hidden]
  Doubles head;       // [vocab][hidden]; empty where tied
  Doubles adapter;    // [hidden][2 hidden]
  Doubles exit_gate;  // [hidden]
  double exit_bias = 0.0;
  Doubles final_norm;                  // [hidden]
  std::vector<ReferenceLayer> layers;  // prelude, core, coda
};

// The weights as the file holds them, rounding and quantisation included.
ReferenceWeights reference_weights(const Model& model);

struct ReferenceOptions {
  std::int32_t loops = 0;   // 0 = the model's default
  std::int64_t window = 0;  // position p sees p - window + 1 .. p; 0 = all
  // K and V pass through this mode's rounding before they are read; none = exact.
  std::optional<StorageMode> kv;
  Doubles initial_states;  // [positions][hidden] where the state is free; empty = zeros
  // Loop r uses the K/V slot r mod shared_planes and overwrites what an earlier loop of the same
  // position left there; 0 = every loop has its own. Then the answer depends on which positions run
  // together, see `chunks`.
  std::int32_t shared_planes = 0;
  std::vector<std::int64_t> chunks;  // positions that run together, in order; empty = all at once
  // The state of the first loop whose cumulative exit probability reaches this goes to coda and
  // head (Ouro).
  std::optional<double> exit_threshold;
  // Positions from here on run no loop after their exit; the slots they never wrote hold the K/V of
  // the exit loop.
  std::int64_t stops_from = std::numeric_limits<std::int64_t>::max();
};

struct ReferenceResult {
  std::int32_t loops = 0, hidden = 0, vocab = 0;
  Doubles logits;  // [positions][vocab]
  Doubles
      states;  // [loops][positions][hidden]: what is handed on after each loop, before a beta blend
  Doubles gates;  // [loops][positions]: sigmoid(gate(state)); empty without a gate
  std::vector<std::int32_t> exit_loops;  // [positions]: 0-based loop whose state went to the head

  std::span<const double> logits_at(std::int64_t position) const;
  std::span<const double> state_at(std::int32_t loop, std::int64_t position) const;
  double gate_at(std::int32_t loop, std::int64_t position) const;
  std::int64_t positions() const { return static_cast<std::int64_t>(exit_loops.size()); }
};

ReferenceResult run_reference(const ModelConfig& config, const ReferenceWeights& weights,
                              std::span<const TokenId> ids, const ReferenceOptions& options);

// Greedy continuation of `count` ids, ties to the lowest id; the whole sequence is computed anew
// for every id.
std::vector<TokenId> reference_greedy(const ModelConfig& config, const ReferenceWeights& weights,
                                      std::span<const TokenId> prompt, std::int64_t count,
                                      const ReferenceOptions& options);

// The lowest of the ids with the greatest logit.
TokenId greatest_id(std::span<const double> logits);

}  // namespace tinyloop
