// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding over a linked list and a heap. The order of merges and the treatment of
// letters that are not tokens follow Hugging Face's tokenizers in every detail: that
// program made the ids that models were trained on.
#include "tinyloop/text/byte_pairs.h"

#include <algorithm>
#include <utility>

#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

BytePairs::BytePairs(const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), merges_(vocabulary.merges.size()) {
  byte_ids_.fill(-1);
  fallback_ids_.fill(-1);
  const std::vector<bool> control = vocabulary.control_ids();
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const VocabularyToken& token = vocabulary.tokens[static_cast<std::size_t>(id)];
    if (!token.of_model || token.text.empty()) continue;
    if (vocabulary.ignore_merges && !control[static_cast<std::size_t>(id)]) {
      whole_[token.text] = id;
    }
    if (const auto byte = fallback_byte(token.text)) fallback_ids_[*byte] = id;
    if (token.text.size() == 1) byte_ids_[static_cast<unsigned char>(token.text[0])] = id;
    if (vocabulary.byte_level || token.text.size() > 4) continue;
    const Utf8Char first = first_utf8_char(token.text);
    if (first.valid && first.bytes == token.text.size()) {
      letter_ids_.set(first.value, static_cast<std::uint64_t>(id));
    }
  }
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const Merge& merge = vocabulary.merges[rank];
    merges_.set(pair_key(merge.left, merge.right),
                rank << 32 | static_cast<std::uint32_t>(merge.result));
  }
}

TokenId BytePairs::letter(std::string_view text, std::size_t& bytes) const {
  bytes = 1;
  const auto first = static_cast<unsigned char>(text.front());
  if (vocabulary_.byte_level || first < 0x80) return byte_ids_[first];
  const Utf8Char next = first_utf8_char(text);
  bytes = next.bytes;
  const std::uint64_t* found = letter_ids_.find(next.value);
  return found == nullptr ? -1 : static_cast<TokenId>(*found);
}

void BytePairs::add(TokenId id) {
  const auto place = static_cast<std::int32_t>(symbols_.size());
  symbols_.push_back({id, place - 1, -1});
  if (place > 0) symbols_[static_cast<std::size_t>(place - 1)].next = place;
}

void BytePairs::add_letters(std::string_view piece) {
  bool unknown = false;  // one is waiting: more may become part of it
  std::size_t bytes = 0;
  for (; !piece.empty(); piece.remove_prefix(bytes)) {
    const TokenId id = letter(piece, bytes);
    if (id >= 0) {
      if (std::exchange(unknown, false)) add(*vocabulary_.unknown);
      add(id);
      continue;
    }
    if (vocabulary_.byte_fallback) {
      const std::string_view all = piece.substr(0, bytes);
      const auto id_of = [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)]; };
      if (std::all_of(all.begin(), all.end(), [&](char c) { return id_of(c) >= 0; })) {
        for (const char c : all) add(id_of(c));
        continue;
      }
    }
    if (!vocabulary_.unknown) continue;
    if (unknown && !vocabulary_.fuse_unknown) add(*vocabulary_.unknown);
    unknown = true;
  }
  if (unknown) add(*vocabulary_.unknown);
}

// The merge of the symbol at `place` with its next one, if there is such a merge.
void BytePairs::propose(std::int32_t place) {
  const Symbol& symbol = symbols_[static_cast<std::size_t>(place)];
  if (symbol.next < 0) return;
  const TokenId right = symbols_[static_cast<std::size_t>(symbol.next)].id;
  const std::uint64_t* found = merges_.find(pair_key(symbol.id, right));
  if (found == nullptr) return;
  candidates_.push_back({(*found & ~std::uint64_t{0xffffffff}) | static_cast<std::uint32_t>(place),
                         static_cast<TokenId>(*found & 0xffffffff)});
}

void BytePairs::merge_all() {
  const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
  const auto push = [&](std::int32_t place) {
    const std::size_t before = candidates_.size();
    propose(place);
    if (candidates_.size() > before) {
      std::push_heap(candidates_.begin(), candidates_.end(), later);
    }
  };
  candidates_.clear();
  for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) propose(static_cast<std::int32_t>(i));
  std::make_heap(candidates_.begin(), candidates_.end(), later);
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end(), later);
    const Candidate first = candidates_.back();
    candidates_.pop_back();
    const auto place = static_cast<std::int32_t>(first.order & 0xffffffff);
    Symbol& left = symbols_[static_cast<std::size_t>(place)];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    // What stood here may have been merged since; only the result is compared, as there.
    const std::uint64_t* found = merges_.find(pair_key(left.id, right.id));
    if (found == nullptr || static_cast<TokenId>(*found & 0xffffffff) != first.result) continue;
    left.id = first.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = place;
    if (left.previous >= 0) push(left.previous);
    push(place);
  }
}

void BytePairs::encode(std::string_view piece, std::vector<TokenId>& ids) {
  if (vocabulary_.ignore_merges) {
    const auto found = whole_.find(piece);
    if (found != whole_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  symbols_.clear();
  add_letters(piece);
  merge_all();
  for (const Symbol& symbol : symbols_) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

}  // namespace tinyloop
