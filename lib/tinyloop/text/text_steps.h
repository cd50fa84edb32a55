// SPDX-License-Identifier: Apache-2.0
// What happens to a text before the model sees it: normaliser steps change it, pre-tokenizer steps
// cut it into pieces. Not about added tokens, which are cut out before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/text/regex.h"
#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Where a pattern matches.
class PatternFinder {
 public:
  PatternFinder(const TextPattern& pattern, std::string_view where);
  void find_all(std::string_view text, std::vector<Regex::Match>& matches) const;

 private:
  std::string text_;
  std::optional<Regex> regex_;
};

class Normalizer {
 public:
  Normalizer(std::span<const NormalizerStep> steps, std::string_view where);
  bool empty() const { return steps_.empty(); }
  // text: well-formed UTF-8. `glued`: it continues a text, so nothing is put before it.
  std::string apply(std::string_view text, bool glued) const;

 private:
  struct Step {
    NormalizerStep step;
    std::optional<PatternFinder> pattern;
  };
  std::vector<Step> steps_;
};

class PreTokenizer {
 public:
  PreTokenizer(std::span<const PreTokenizerStep> steps, std::string_view where);

  struct Piece {
    std::uint32_t begin = 0, end = 0;
  };
  // The resulting text; valid until the next call.
  struct Pieces {
    std::string_view text;
    std::span<const Piece> pieces;
  };
  // text: well-formed UTF-8, below 4 GiB. at_start: it is the beginning of all text; glued: nothing
  // is put before it.
  Pieces apply(std::string_view text, bool at_start, bool glued);

 private:
  struct Step {
    PreTokenizerStep step;
    std::optional<PatternFinder> pattern;
  };
  void split(const Step& step);
  void cut(Piece piece, SplitBehavior behavior, bool invert);
  void replace_spaces(const Step& step, bool at_start, bool glued);
  void put_spaces_before(bool glued);

  std::vector<Step> steps_;
  std::string_view text_;
  std::string made_;  // what text_ points into once it was changed
  std::vector<Piece> pieces_, next_;
  std::vector<Regex::Match> matches_;
  struct Part {
    Piece piece;
    bool match = false;
  };
  std::vector<Part> parts_;
};

}  // namespace tinyloop
