// SPDX-License-Identifier: Apache-2.0
// All the data that turns text into ids and back: tokens, merges or scores, the steps before and
// after them, the chat template's text. Read from tokenizer.json (tokenizer_json) or from a model
// file. Data only: tokenizer and detokenizer use it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/token.h"

namespace tinyloop {

enum class VocabularyKind : std::uint8_t { bpe, unigram };

struct VocabularyToken {
  // The bytes that the token stands for; where it is not of the model, or has characters that are
  // no bytes in a byte-level vocabulary, its text. As it is before the decoder's steps.
  std::string text;
  bool of_model = false;  // the model may put it into a sequence; the others are added tokens
};

struct AddedToken {
  TokenId id = 0;
  std::string text;
  bool special = false;                 // not text: the model's control marks
  bool lstrip = false, rstrip = false;  // includes the spaces before or after it
  bool single_word = false;             // only if no letter is next to it
  bool normalized = false;              // looked for in the normalised text
  // Special, or looks like a mark of a chat template ("<|...|>"): text may name it only where it is
  // told to be no plain text.
  bool is_control() const;
};

struct Merge {
  TokenId left = 0, right = 0, result = 0;
};

struct TextPattern {
  bool regex = false;  // else the text itself
  std::string text;
};

enum class NormalizerKind : std::uint8_t { nfc, nfd, nfkc, nfkd, prepend, replace };
struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::nfc;
  TextPattern pattern;  // replace
  std::string content;  // prepend, replace
};

enum class PreTokenizerKind : std::uint8_t { split, byte_level, metaspace };
enum class SplitBehavior : std::uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};
enum class PrependScheme : std::uint8_t { always, first, never };
struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::split;
  TextPattern pattern;  // split
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;        // split: keep what the pattern matches
  bool prefix_space = false;  // byte_level
  std::string replacement;    // metaspace: one character
  PrependScheme prepend = PrependScheme::always;
  bool split = true;  // metaspace
};

enum class DecoderKind : std::uint8_t {
  byte_level,
  replace,
  byte_fallback,
  fuse,
  strip,
  metaspace
};
struct DecoderStep {
  DecoderKind kind = DecoderKind::byte_level;
  std::string pattern;      // replace; strip: one character; metaspace: the replacement
  std::string content;      // replace
  std::int64_t count = 0;   // strip: how many at the beginning of the text
  bool drop_first = false;  // metaspace: none in the first token
};

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::bpe;
  std::vector<VocabularyToken> tokens;  // by id
  std::vector<AddedToken> added;

  bool byte_level = false;     // the model's letters are bytes, not characters
  bool byte_fallback = false;  // a character that is no token: tokens <0x00> to <0xFF>
  bool fuse_unknown = false;
  bool ignore_merges = false;  // a piece that is a token is that token
  std::optional<TokenId> unknown;

  std::vector<Merge> merges;   // bpe: in order of priority
  std::vector<double> scores;  // unigram: one per token

  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<DecoderStep> decoder;

  std::optional<TokenId> bos, eos;
  // What the tokenizer's own post-processor puts around a sequence.
  std::vector<TokenId> before, after;
  std::string chat_template;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  const AddedToken* find_added(std::string_view text) const;  // nullptr: none
  std::vector<bool> control_ids() const;                      // by id

  // Adds tokens without a text until there are `size`: models may have more ids than their
  // vocabulary.
  void pad(std::int64_t size);

  // One block of bytes, the same for the same vocabulary.
  std::string serialize() const;
  // Throws Error(data) naming `where`: damaged bytes, ids out of range. The result can
  // be used without further checks.
  static Vocabulary parse(std::span<const std::byte> bytes, std::string_view where);
  // Throws Error(data) if parts contradict each other; parse() and the readers call it.
  void check(std::string_view where) const;
};

// The alphabet of byte-level vocabularies: each byte has a visible character.
const std::array<char32_t, 256>& byte_alphabet();
// The bytes that a text in this alphabet stands for; no value if a character is not of it.
std::optional<std::string> bytes_of_alphabet(std::string_view text);
// The byte that a token such as "<0x0A>" stands for.
std::optional<unsigned char> fallback_byte(std::string_view text);

}  // namespace tinyloop
