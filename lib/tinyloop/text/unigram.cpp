// SPDX-License-Identifier: Apache-2.0
// Viterbi's search over a trie, with the ties and the treatment of unknown characters that Hugging
// Face's tokenizers have. (That library parses some scores of many digits off by one bit, so
// of two equally likely ways it may choose the other.)
#include "tinyloop/text/unigram.h"

#include <algorithm>
#include <limits>

#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

// How much less likely than every token a character is that is none.
constexpr double kUnknownPenalty = 10.0;

}  // namespace

Unigram::Unigram(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  fallback_ids_.fill(-1);
  const std::vector<bool> control = vocabulary.control_ids();
  double lowest = std::numeric_limits<double>::infinity();
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const VocabularyToken& token = vocabulary.tokens[static_cast<std::size_t>(id)];
    if (!token.of_model) continue;
    lowest = std::min(lowest, vocabulary.scores[static_cast<std::size_t>(id)]);
    if (const auto byte = fallback_byte(token.text)) fallback_ids_[*byte] = id;
    if (!control[static_cast<std::size_t>(id)]) trie_.add(token.text, id);
  }
  unknown_score_ = lowest - kUnknownPenalty;
}

// Characters that are no tokens, one after another.
void Unigram::add_unknown(std::string_view text, std::vector<TokenId>& ids) const {
  const auto id_of = [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)]; };
  if (vocabulary_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) >= 0; })) {
    for (const char c : text) ids.push_back(id_of(c));
  } else {
    ids.push_back(*vocabulary_.unknown);
  }
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& ids) {
  const TokenId unknown = *vocabulary_.unknown;
  nodes_.assign(piece.size() + 1, {});
  for (std::size_t at = 0; at < piece.size();) {
    const double so_far = nodes_[at].score;
    const std::size_t character = first_utf8_char(piece.substr(at)).bytes;
    bool single = false;
    const auto offer = [&](std::size_t length, TokenId id, double score) {
      Node& end = nodes_[at + length];
      if (end.id < 0 || so_far + score > end.score) end = {so_far + score, at, id};
    };
    trie_.prefixes(piece.substr(at), [&](std::size_t length, TokenId id) {
      offer(length, id, vocabulary_.scores[static_cast<std::size_t>(id)]);
      if (length == character) single = true;
    });
    if (!single) offer(character, unknown, unknown_score_);
    at += character;
  }
  ends_.clear();
  for (std::size_t end = piece.size(); end > 0; end = nodes_[end].begin) ends_.push_back(end);
  std::reverse(ends_.begin(), ends_.end());
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const TokenId id = nodes_[ends_[i]].id;
    if (id != unknown) {
      ids.push_back(id);
    } else {
      while (vocabulary_.fuse_unknown && i + 1 < ends_.size() &&
             nodes_[ends_[i + 1]].id == unknown) {
        ++i;
      }
      add_unknown(piece.substr(begin, ends_[i] - begin), ids);
    }
    begin = ends_[i];
  }
}

}  // namespace tinyloop
