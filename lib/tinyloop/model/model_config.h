// SPDX-License-Identifier: Apache-2.0
// The one configuration that describes every model family, its JSON form and its validation.
// Not the import of foreign configurations: that is import_hf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/token.h"

namespace tinyloop {

// The positions of a transformer block's norms; A is attention, M the gated MLP, n the RMS norms.
enum class BlockKind {
  pre,            // x += A(n1 x);             x += M(n3 x)                 Llama, Qwen3, Nanbeige
  sandwich_out,   // x += n2 A(n1 x);          x += n4 M(n3 x)              Ouro (arXiv 2510.25741)
  sandwich_post,  // x = n2(x + A(n1 x));      x = n4(x + M(n3 x))          Huginn (arXiv
                  // 2502.05171)
};

enum class RopeLayout {
  half,         // pairs (j, j + head_dim/2)
  interleaved,  // pairs (2j, 2j + 1)
};

enum class Injection {
  none,
  concat,   // x = adapter [x ; e] before every loop, e = prelude output (Huginn)
  relaxed,  // x = x + alpha/loops (g(x) - x), then beta g(x0) + (1-beta) x at the end:
            // training-free looping of a plain model's layers (arXiv 2605.23872)
};

enum class InitialState {
  embedding,  // the prelude's output (the embedding if there is no prelude)
  free,       // zero, noise or given by the caller; needs injection concat
};

struct RopeScaling {  // rope_type llama3; factor 1 = none
  double factor = 1.0, low_frequency_factor = 1.0, high_frequency_factor = 1.0;
  std::int64_t original_context = 0;

  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::string family;  // "ouro", "nanbeige", "huginn", "huginn_llama", "llama", "qwen3", ...
  std::int32_t vocab = 0, hidden = 0, ffn = 0;
  std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t context = 0;  // maximum number of positions
  double norm_eps = 1e-6;

  std::int32_t prelude_layers = 0, core_layers = 0,
               coda_layers = 0;    // core is applied `loops` times
  std::int32_t default_loops = 1;  // used by default
  std::int32_t trained_loops = 1;  // beyond it: a warning
  std::int32_t max_loops = 1;      // beyond it: refused

  BlockKind block = BlockKind::pre;
  RopeLayout rope_layout = RopeLayout::half;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool qk_bias =
      false;  // added to q and k before rope: [2][heads * head_dim] (k part: kv_heads * head_dim)
  bool qk_norm = false;  // RMS norm per head on q and k before rope (Qwen3)

  double embedding_scale = 1.0;
  bool tied_head = false;  // the head is the embedding matrix
  Injection injection = Injection::none;
  InitialState initial_state = InitialState::embedding;
  double initial_std = 0.0;  // element-wise standard deviation of a noise state
  double relaxed_alpha = 1.0, relaxed_beta = 0.0;

  bool loop_norm =
      false;  // final norm after every loop, its result enters the next loop (Ouro, Nanbeige)
  bool post_loop_norm = false;  // final norm once between the last loop and the coda (Huginn)
  bool final_norm = true;       // final norm before the head (false where loop_norm already did it)
  bool exit_gate = false;       // a linear gate hidden -> 1 after every loop (Ouro)

  std::vector<TokenId> end_ids;  // any of them ends a generation
  TokenId begin_id = -1;         // -1: none known

  std::int32_t layers() const { return prelude_layers + core_layers + coda_layers; }
  std::int32_t q_width() const { return heads * head_dim; }
  std::int32_t kv_width() const { return kv_heads * head_dim; }
};

// Throws Error(data) naming the field and its value if the configuration cannot be run: dimensions
// out of range (1 .. 2^24, products below 2^40), heads not a multiple of kv_heads, odd head_dim,
// loops, eps, theta, ids outside the vocabulary, combinations that the forward pass does not know.
// `where` is the file named in the message.
void validate(const ModelConfig& config, std::string_view where);

// A JSON object with one key per field, in a fixed order and spelling, so that equal configurations
// give equal text.
std::string to_json(const ModelConfig& config);

// The reverse; unknown or missing keys and wrong types throw Error(data) naming the key. Validates.
ModelConfig config_from_json(std::string_view json, std::string_view where);

}  // namespace tinyloop
