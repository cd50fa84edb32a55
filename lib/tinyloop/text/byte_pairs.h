// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text: letters, bytes or characters, are merged in the order of
// the merges. Not about how a text is cut into pieces.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tinyloop/text/pair_table.h"
#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

class BytePairs {
 public:
  // The vocabulary must outlive this.
  explicit BytePairs(const Vocabulary& vocabulary);

  // Appends the ids of `piece`; takes n log n time in its length, whatever its content.
  void encode(std::string_view piece, std::vector<TokenId>& ids);

 private:
  struct Symbol {
    TokenId id = 0;  // -1: merged into the one before
    std::int32_t previous = -1, next = -1;
  };
  struct Candidate {
    std::uint64_t order = 0;  // rank of the merge, then place
    TokenId result = 0;
  };
  // The next letter's id, -1 if it is not a token, and its length.
  TokenId letter(std::string_view text, std::size_t& bytes) const;
  void add_letters(std::string_view piece);
  void add(TokenId id);
  void propose(std::int32_t place);
  void merge_all();

  const Vocabulary& vocabulary_;
  std::array<TokenId, 256> byte_ids_{};                  // of a letter of one byte; -1: none
  std::array<TokenId, 256> fallback_ids_{};              // of <0x00> to <0xFF>; -1: none
  PairTable letter_ids_;                                 // of other letters, by code point
  PairTable merges_;                                     // two ids to rank and result
  std::unordered_map<std::string_view, TokenId> whole_;  // ignore_merges only
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;  // a heap
};

}  // namespace tinyloop
