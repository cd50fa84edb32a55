// SPDX-License-Identifier: Apache-2.0
// The ways to speculate on one sequence, by name. All give the answer of plain decoding; they
// differ in which rows share a pass. What chooses among them is decode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/prompt/prompt.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/schedule/request.h"

namespace tinyloop {

struct Speculation {
  enum class Kind { plain, block, tree, wavefront };
  Kind kind = Kind::plain;
  std::int32_t draft_loops = 2;  // d: loops after which the next token is guessed
  // Wavefront only: numbers of loops, ascending and above draft_loops, after which a row guesses
  // again.
  std::vector<std::int32_t> later_draft_loops = {};
  std::int32_t drafts = 4;            // k: block only, guesses of a round
  std::int32_t width = 2, depth = 4;  // tree only: guesses at each position, positions of a round

  // "off", "block:d=2,k=4", "tree:d=2,width=2,depth=4", "wavefront:d=2", "wavefront:d=1+2"; what is
  // left out has the
  // default above. Throws Error(usage) naming what is wrong, but not where `text` comes from.
  static Speculation parse(std::string_view text);
  std::string name() const;                          // what parse() takes, everything spelled out
  std::vector<std::int32_t> proposal_loops() const;  // draft_loops and the later ones
  // Rows that are alive at once.
  std::int32_t rows(std::int32_t loops) const;
  // Slots that the forward pass must have for it.
  std::int32_t slots(std::int32_t loops, const ExitRule& exit) const;
};

// Throws Error(usage) naming the settings where the speculation cannot keep the stream what it is,
// or cannot work.
void check(const Speculation& speculation, const ModelConfig& config, const LoopPlan& plan,
           const ExitRule& exit, std::int32_t shared_planes);

// As decode(), by a schedule each; with a tree the prompt's cache may afterwards hold a branch of
// itself.
Answer speculate_block(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                       const DecodeRequest& request, const Speculation& speculation);
Answer speculate_tree(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                      const DecodeRequest& request, const Speculation& speculation);
Answer speculate_wavefront(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                           const DecodeRequest& request, const Speculation& speculation);

}  // namespace tinyloop
