// SPDX-License-Identifier: Apache-2.0
// The most likely way to write one piece of text with scored tokens. Not about how a text
// is cut into pieces.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tinyloop/text/token_trie.h"
#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

class Unigram {
 public:
  // The vocabulary must outlive this. It never uses control tokens.
  explicit Unigram(const Vocabulary& vocabulary);

  // Appends the ids of `piece`, well-formed UTF-8; time grows with its length.
  void encode(std::string_view piece, std::vector<TokenId>& ids);

 private:
  struct Node {  // the best way to write the text up to here
    double score = 0.0;
    std::size_t begin = 0;  // of its last token
    TokenId id = -1;        // of its last token; -1: none yet
  };
  void add_unknown(std::string_view text, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  TokenTrie trie_;
  std::array<TokenId, 256> fallback_ids_{};
  double unknown_score_ = 0.0;
  std::vector<Node> nodes_;
  std::vector<std::size_t> ends_;
};

}  // namespace tinyloop
