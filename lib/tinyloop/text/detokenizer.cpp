// SPDX-License-Identifier: Apache-2.0
// The decoder's steps are done once for each token; per text only its start and
// characters of several tokens remain.
#include "tinyloop/text/detokenizer.h"

#include <string_view>
#include <utility>

#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

std::string replaced(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  while (true) {
    const std::size_t at = text.find(pattern);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += content;
    text.remove_prefix(at + pattern.size());
  }
}

}  // namespace

Detokenizer::Detokenizer(const Vocabulary& vocabulary, DetokenizerOptions options)
    : options_(options) {
  const std::vector<bool> control = vocabulary.control_ids();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    Text text{vocabulary.tokens[id].text, vocabulary.tokens[id].text,
              control[id] && !options.special};
    for (const DecoderStep& step : vocabulary.decoder) {
      switch (step.kind) {
        case DecoderKind::replace:
          text.bytes = replaced(text.bytes, step.pattern, step.content);
          text.first_bytes = replaced(text.first_bytes, step.pattern, step.content);
          break;
        case DecoderKind::byte_fallback:
          if (const auto byte = fallback_byte(text.bytes)) {
            text.bytes = text.first_bytes = static_cast<char>(*byte);
          }
          break;
        case DecoderKind::metaspace:
          text.bytes = replaced(text.bytes, step.pattern, " ");
          text.first_bytes = replaced(text.first_bytes, step.pattern, step.drop_first ? "" : " ");
          break;
        case DecoderKind::strip:
          strip_ = step.pattern;
          strip_count_ = step.count;
          break;
        case DecoderKind::byte_level:  // the vocabulary has bytes already
        case DecoderKind::fuse:
          break;
      }
    }
    texts_.push_back(std::move(text));
  }
  to_strip_ = strip_count_;
}

void Detokenizer::append(TokenId id) {
  const Text& text = texts_[static_cast<std::size_t>(id)];
  if (text.left_out) return;
  waiting_ += std::exchange(first_, false) ? text.first_bytes : text.bytes;
}

// Everything in front that no further byte can change; all: nothing further comes.
std::string Detokenizer::take_certain(bool all) {
  std::string_view rest = waiting_;
  while (to_strip_ > 0) {
    if (rest.starts_with(strip_)) {
      rest.remove_prefix(strip_.size());
      --to_strip_;
    } else if (!all && std::string_view(strip_).starts_with(rest)) {
      break;
    } else {
      to_strip_ = 0;
    }
  }
  std::string out;
  while (!rest.empty() && to_strip_ == 0) {
    const std::size_t valid = valid_utf8_prefix(rest);
    out += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Char next = first_utf8_char(rest);
    if (next.cut && !all) break;
    out += options_.bytes ? rest.substr(0, next.bytes) : kReplacement;
    rest.remove_prefix(next.bytes);
  }
  waiting_.erase(0, waiting_.size() - rest.size());
  return out;
}

std::string Detokenizer::push(TokenId id) {
  append(id);
  return take_certain(false);
}

std::string Detokenizer::finish() {
  std::string out = take_certain(true);
  first_ = true;
  to_strip_ = strip_count_;
  return out;
}

Detokenizer::Aligned Detokenizer::align(const std::vector<TokenId>& ids) {
  Aligned result;
  // What is waiting belongs to the text from where it will be written, which is where the text ends
  // now: a token that completes a character begins where that character does.
  for (const TokenId id : ids) {
    result.offsets.push_back(static_cast<std::int64_t>(result.text.size()));
    result.text += push(id);
  }
  result.text += finish();
  result.offsets.push_back(static_cast<std::int64_t>(result.text.size()));
  return result;
}

}  // namespace tinyloop
