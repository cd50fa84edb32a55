// SPDX-License-Identifier: Apache-2.0
// Looks at every byte that a name may begin with; names are short.
#include "tinyloop/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

// Unicode's White_Space.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

// Where the last character of `text`, well-formed and not empty, begins.
std::size_t last_char(std::string_view text) {
  std::size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

std::size_t before_spaces(std::string_view text, std::size_t begin, std::size_t floor) {
  while (begin > floor) {
    const std::size_t last = last_char(text.substr(0, begin));
    if (!is_space(first_utf8_char(text.substr(last)).value)) break;
    begin = last;
  }
  return begin;
}

std::size_t behind_spaces(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    const Utf8Char next = first_utf8_char(text.substr(end));
    if (!is_space(next.value)) break;
    end += next.bytes;
  }
  return end;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::span<const std::string> names)
    : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    trie_.add(names[i], static_cast<std::int32_t>(i));
    if (tokens_[i].single_word && !word_) word_.emplace("\\w|\\x{200c}|\\x{200d}", "added tokens");
  }
}

bool AddedTokens::word_beside(std::string_view text, std::size_t begin, std::size_t end) const {
  const auto is_word = [&](std::size_t at) {
    std::vector<Regex::Match> matches;
    word_->find_all(text.substr(at, first_utf8_char(text.substr(at)).bytes), matches);
    return !matches.empty();
  };
  return (begin > 0 && is_word(last_char(text.substr(0, begin)))) ||
         (end < text.size() && is_word(end));
}

void AddedTokens::split(std::string_view text, std::span<const PartEnd> parts,
                        const Take& take) const {
  std::size_t done = 0;  // handed over
  std::size_t part = 0;  // where `at` is
  for (std::size_t at = 0; !tokens_.empty() && at < text.size();) {
    if (!trie_.may_begin(text[at])) {
      ++at;
      continue;
    }
    while (part < parts.size() && parts[part].end <= at) ++part;
    const AddedToken* token = nullptr;
    std::size_t begin = at, end = at;
    trie_.prefixes(text.substr(at), [&](std::size_t length, std::int32_t place) {
      const AddedToken& found = tokens_[static_cast<std::size_t>(place)];
      if (found.is_control() && part < parts.size() && at + length > parts[part].end) return;
      token = &found;
      end = at + length;
    });
    if (token == nullptr) {
      ++at;
      continue;
    }
    at = end;
    if (token->is_control() && part < parts.size() && !parts[part].special) continue;
    if (token->single_word && word_beside(text, begin, end)) continue;
    if (token->lstrip) begin = before_spaces(text, begin, done);
    if (token->rstrip) end = behind_spaces(text, end);
    if (done < begin) take(done, begin, {});
    take(begin, end, token->id);
    // The next search begins behind the name, not behind the spaces.
    done = end;
  }
  if (done < text.size()) take(done, text.size(), {});
}

}  // namespace tinyloop
