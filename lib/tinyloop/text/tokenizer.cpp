// SPDX-License-Identifier: Apache-2.0
// Takes a text through added tokens, normaliser, pre-tokenizer and model, with a cache of
// earlier pieces.
#include "tinyloop/text/tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/utf8.h"
#include "tinyloop/text/added_tokens.h"
#include "tinyloop/text/byte_pairs.h"
#include "tinyloop/text/text_steps.h"
#include "tinyloop/text/unigram.h"

namespace tinyloop {

namespace {

// The ids of a short piece, in one line of the processor's cache.
struct alignas(64) Known {
  static constexpr std::size_t kMaxText = 30, kMaxIds = 8;
  std::uint8_t length = 0, count = 0;  // length 0: free
  char text[kMaxText] = {};
  TokenId ids[kMaxIds] = {};
};
constexpr std::size_t kKnown = std::size_t{1} << 15;

std::vector<AddedToken> chosen(const Vocabulary& vocabulary, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : vocabulary.added) {
    // What control tokens are must not depend on what a normaliser makes of the text around them.
    if ((token.normalized && !token.is_control()) == normalized) tokens.push_back(token);
  }
  return tokens;
}

std::vector<std::string> names_of(const std::vector<AddedToken>& tokens,
                                  const Normalizer* normalizer) {
  std::vector<std::string> names;
  for (const AddedToken& token : tokens) {
    names.push_back(normalizer == nullptr ? token.text : normalizer->apply(token.text, false));
  }
  return names;
}

}  // namespace

struct Tokenizer::State {
  State(Vocabulary given, std::string_view where)
      : vocabulary(std::move(given)),
        normalizer(vocabulary.normalizer, where),
        pre_tokenizer(vocabulary.pre_tokenizer, where),
        raw_tokens(chosen(vocabulary, false), names_of(chosen(vocabulary, false), nullptr)),
        normalized_tokens(chosen(vocabulary, true),
                          names_of(chosen(vocabulary, true), &normalizer)),
        known(kKnown) {
    if (vocabulary.kind == VocabularyKind::bpe) {
      byte_pairs.emplace(vocabulary);
    } else {
      unigram.emplace(vocabulary);
    }
  }

  bool keeps_bytes() const { return vocabulary.byte_level || vocabulary.byte_fallback; }

  void encode_piece(std::string_view piece) {
    if (piece.size() > Known::kMaxText) return encode_new(piece);
    Known& slot = known[XXH3_64bits(piece.data(), piece.size()) % kKnown];
    if (slot.length == piece.size() && std::memcmp(slot.text, piece.data(), slot.length) == 0) {
      ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
      return;
    }
    const std::size_t before = ids.size();
    encode_new(piece);
    const std::size_t count = ids.size() - before;
    if (count > Known::kMaxIds) return;
    slot.length = static_cast<std::uint8_t>(piece.size());
    slot.count = static_cast<std::uint8_t>(count);
    std::memcpy(slot.text, piece.data(), piece.size());
    std::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), slot.ids);
  }
  void encode_new(std::string_view piece) {
    if (byte_pairs) {
      byte_pairs->encode(piece, ids);
    } else {
      unigram->encode(piece, ids);
    }
  }

  // What lies between added tokens.
  void encode_plain(std::string_view text, bool at_start, bool glued) {
    const auto pieces = [&](std::string_view plain, bool start, bool glue) {
      const PreTokenizer::Pieces cut = pre_tokenizer.apply(plain, start, glue);
      for (const auto& [begin, end] : cut.pieces) {
        encode_piece(cut.text.substr(begin, end - begin));
      }
    };
    if (normalizer.empty() && normalized_tokens.empty()) return pieces(text, at_start, glued);
    std::string changed;
    if (!normalizer.empty()) {
      changed = normalizer.apply(text, glued);
      check_length(changed.size());
      text = changed;
    }
    normalized_tokens.split(
        text, {}, [&](std::size_t begin, std::size_t end, std::optional<TokenId> id) {
          if (id) {
            ids.push_back(*id);
          } else {
            pieces(text.substr(begin, end - begin), at_start && begin == 0, glued && begin == 0);
          }
        });
  }

  void encode_bytes(std::string_view bytes) {
    for (const char& c : bytes) {
      const std::string_view byte(&c, 1);
      if (vocabulary.byte_level) {
        byte_pairs->encode(byte, ids);
      } else {
        ids.push_back(fallback_id(static_cast<unsigned char>(c)));
      }
    }
  }
  TokenId fallback_id(unsigned char byte) {
    if (fallback_ids.empty()) {
      fallback_ids.assign(256, vocabulary.unknown.value_or(0));
      for (TokenId id = 0; id < vocabulary.size(); ++id) {
        const VocabularyToken& token = vocabulary.tokens[static_cast<std::size_t>(id)];
        const auto value = token.of_model ? fallback_byte(token.text) : std::nullopt;
        if (value) fallback_ids[*value] = id;
      }
    }
    return fallback_ids[byte];
  }

  static void check_length(std::size_t bytes) {
    if (bytes > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorKind::usage, "a text of {} bytes exceeds the limit of 4 GiB", bytes);
    }
  }

  void encode(std::string_view text, std::span<const PartEnd> all_parts) {
    check_length(text.size());
    ids.clear();
    std::vector<PartEnd> parts;
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view valid = text.substr(at, valid_utf8_prefix(text.substr(at)));
      while (!all_parts.empty() && all_parts.front().end <= at) all_parts = all_parts.subspan(1);
      parts.assign(all_parts.begin(), all_parts.end());
      for (PartEnd& part : parts) part.end -= at;
      raw_tokens.split(valid, parts,
                       [&](std::size_t begin, std::size_t end, std::optional<TokenId> id) {
                         if (id) {
                           ids.push_back(*id);
                         } else {
                           encode_plain(valid.substr(begin, end - begin), at == 0 && begin == 0,
                                        at > 0 && begin == 0);
                         }
                       });
      at += valid.size();
      while (at < text.size()) {
        const Utf8Char next = first_utf8_char(text.substr(at));
        if (next.valid) break;
        encode_bytes(text.substr(at, next.bytes));
        at += next.bytes;
      }
    }
  }

  Vocabulary vocabulary;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  AddedTokens raw_tokens, normalized_tokens;
  std::optional<BytePairs> byte_pairs;
  std::optional<Unigram> unigram;
  std::vector<TokenId> fallback_ids;
  std::vector<Known> known;
  std::vector<TokenId> ids;
};

Tokenizer::Tokenizer(Vocabulary vocabulary, std::string_view where)
    : state_(std::make_unique<State>(std::move(vocabulary), where)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

const Vocabulary& Tokenizer::vocabulary() const { return state_->vocabulary; }

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool special) {
  const TextPart part{text, special};
  return encode(std::span(&part, 1));
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextPart> parts) {
  std::string joined;
  std::vector<PartEnd> ends;
  for (const TextPart& part : parts) {
    joined += state_->keeps_bytes() ? std::string(part.text) : replace_ill_formed_utf8(part.text);
    ends.push_back({joined.size(), part.special});
  }
  state_->encode(joined, ends);
  return std::move(state_->ids);
}

}  // namespace tinyloop
