// SPDX-License-Identifier: Apache-2.0
// Ids to text, each byte as soon as it is final. Not about where ids come from and text goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

struct DetokenizerOptions {
  bool special = false;  // control tokens are written by their names, not left out
  bool bytes = false;    // invalid UTF-8 is written as it is, not as U+FFFD
};

class Detokenizer {
 public:
  explicit Detokenizer(const Vocabulary& vocabulary, DetokenizerOptions options = {});

  // The text that becomes final with the next id, which is in the vocabulary; may be empty.
  // Never ends within a character that a further id may complete.
  std::string push(TokenId id);
  // The rest of the text; the next id starts a new text.
  std::string finish();

  // The byte offset of each token in a whole text, followed by the text's length: one value more
  // than there are ids. A character made of several tokens starts where the first does.
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
  std::string strip_;        // the character that is stripped at the beginning
  std::int64_t strip_count_ = 0;

  std::string waiting_;
  bool first_ = true;
  std::int64_t to_strip_ = 0;
};

}  // namespace tinyloop
