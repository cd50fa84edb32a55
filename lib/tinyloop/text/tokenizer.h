// SPDX-License-Identifier: Apache-2.0
// Text to ids, as Hugging Face's tokenizers do it, id for id: added tokens, normaliser,
// pre-tokenizer, then the model for each piece. Not about chat templates, nor about ids around a
// sequence.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Consecutive parts of a text; tokens may span the boundary between parts.
struct TextPart {
  std::string_view text;
  bool special = false;  // control tokens may be named here; else their names are plain text
};

// Holds working memory and a cache of frequent words: use one per thread.
class Tokenizer {
 public:
  // Throws Error(data) naming `where` if a step is not supported, such as a regular expression.
  Tokenizer(Vocabulary vocabulary, std::string_view where);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  const Vocabulary& vocabulary() const;

  // Accepts any bytes: invalid UTF-8 is kept byte by byte if the vocabulary has bytes (byte-level
  // or with byte fallback), else each ill-formed sequence becomes U+FFFD. Time is linear in the
  // length of the text. Throws Error(usage) beyond 4 GiB less one byte.
  std::vector<TokenId> encode(std::string_view text, bool special = false);
  std::vector<TokenId> encode(std::span<const TextPart> parts);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tinyloop
