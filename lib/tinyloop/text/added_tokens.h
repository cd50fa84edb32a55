// SPDX-License-Identifier: Apache-2.0
// Finds added tokens in a text: from left to right, the longest that starts at a place. Not
// about what lies between them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/text/regex.h"
#include "tinyloop/text/token_trie.h"
#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Up to where, from the end of the one before, a part of the text goes.
struct PartEnd {
  std::size_t end = 0;
  bool special = false;  // control tokens may be named there
};

class AddedTokens {
 public:
  // Uses the tokens of `tokens` with a name; `names` has the text to look for, one per token.
  AddedTokens(std::vector<AddedToken> tokens, std::span<const std::string> names);

  bool empty() const { return tokens_.empty(); }

  // Calls take(begin, end, id) for all of `text` in order; no id: text between tokens, never
  // empty. A control token is found only within one part; in a part that is not special its name
  // is plain text. parts: they cover the text; none: all of it is special.
  using Take = std::function<void(std::size_t, std::size_t, std::optional<TokenId>)>;
  void split(std::string_view text, std::span<const PartEnd> parts, const Take& take) const;

 private:
  bool word_beside(std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;
  TokenTrie trie_;             // to places in tokens_
  std::optional<Regex> word_;  // where a token asks for it
};

}  // namespace tinyloop
