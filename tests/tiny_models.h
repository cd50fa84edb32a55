// SPDX-License-Identifier: Apache-2.0
// The tiny models of the acceptance cases and one of each family, with random weights from fixed
// seeds. Nothing is trained and no file is kept in the repository: tests write the models where
// they need them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/reference_model.h"
#include "tinyloop/model/model_config.h"
#include "tinyloop/model/packed_matrix.h"
#include "tinyloop/token.h"

namespace tinyloop {

enum class TinyModel {
  m,    // Ouro's math: vocab 64, hidden 32, 2 heads of 16, 2 looped layers, up to 16 loops, context
        // 64
  m2,   // m's shapes, other weights
  tie,  // m with two equal rows in the head
  nan,  // m with a NaN in the embedding of kNanId
  odd,  // heads of 24, sizes that 16 and 32 do not divide
  ouro,          // grouped heads, trained for 4 loops, so that more of them warn
  nanbeige,      // pre-norm blocks, a norm between the loops, heads wider than the hidden state
  huginn,        // prelude, core, coda, adapter, free initial state, interleaved RoPE, q/k bias
  huginn_llama,  // the same frame with Llama's blocks
  llama,         // one loop, tied head, llama3 RoPE scaling
  qwen3,         // one loop, q/k norm
  flat,          // relaxed with looped layers that add nothing: all loop counts agree
  relaxed,       // training-free looping of layers 1..2 of a Llama of 4 layers, beta 0.25
};

// The ids whose rows of the head are equal in `tie`; after kTiePrompt, at 4 loops, they are the
// best ids.
inline constexpr TokenId kTieLow = 20, kTieHigh = 53, kTiePrompt = 32;
inline constexpr TokenId kNanId = 7;

std::string_view name_of(TinyModel which);  // "m", "huginn_llama", ...
std::vector<TinyModel> all_tiny_models();   // but for flat, where loops are of no use

ModelConfig tiny_config(TinyModel which);
// The weights, representable in f32; the NaN included.
ReferenceWeights tiny_weights(TinyModel which);

// Writes FOLDER/NAME-TYPE.tinyloop and returns its path; an existing file is replaced.
std::string write_tiny_model(const std::string& folder, TinyModel which, WeightType type);

// Writes the Hugging Face checkpoint FOLDER/NAME-hf (f32, f16 or bf16) and returns its path.
// `relaxed` gives the plain Llama that becomes it with layers 1..2 looped.
std::string write_tiny_checkpoint(const std::string& folder, TinyModel which, WeightType type);

}  // namespace tinyloop
