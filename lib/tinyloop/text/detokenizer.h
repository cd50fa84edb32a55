// SPDX-License-Identifier: Apache-2.0
// Ids to text, each byte as soon as it is certain. Not about where ids come from and text goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

struct DetokenizerOptions {
  bool special = false;  // control tokens are written by their names, not left out
  bool bytes = false;    // what is no UTF-8 is written as it is, not as U+FFFD
};

class Detokenizer {
 public:
  explicit Detokenizer(const Vocabulary& vocabulary, DetokenizerOptions options = {});

  // The text that is certain with the next id, which is one of the vocabulary's; may be empty.
  // Never ends within a character that a further id may complete.
  std::string push(TokenId id);
  // What is left; the next id begins a new text.
  std::string finish();

  // Where each token of a whole text begins in that text, in bytes, and how long the text is: one
  // value more than there are ids. What takes several tokens to write begins where the first does.
  struct Aligned {
    std::string text;
    std::vector<std::int64_t> offsets;
  };
  Aligned align(const std::vector<TokenId>& ids);

  std::int64_t vocabulary_size() const { return static_cast<std::int64_t>(texts_.size()); }

 private:
  struct Text {
    std::string bytes;        // as it stands in a text
    std::string first_bytes;  // as the first token of a text
    bool left_out = false;
  };
  void append(TokenId id);
  std::string take_certain(bool all);

  DetokenizerOptions options_;
  std::vector<Text> texts_;  // by id
  std::string strip_;        // the character that is taken away at the beginning
  std::int64_t strip_count_ = 0;

  std::string waiting_;
  bool first_ = true;
  std::int64_t to_strip_ = 0;
};

}  // namespace tinyloop
