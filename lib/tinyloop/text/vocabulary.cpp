// SPDX-License-Identifier: Apache-2.0
// The vocabulary as bytes and back, and its validation.
#include "tinyloop/text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "tinyloop/error.h"
#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

constexpr std::string_view kMagic = "tinyloop vocabulary 1\n";
// More than any vocabulary has, so that ids and sums of them stay far from what overflows.
constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 24;

// Numbers in groups of seven bits, the least first; texts with their length before them.
class Writer {
 public:
  explicit Writer(std::string_view begin) : out_(begin) {}
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(0x80 | (value & 0x7f));
    out_ += static_cast<char>(value);
  }
  void id(TokenId value) { number(static_cast<std::uint64_t>(value)); }
  void optional_id(const std::optional<TokenId>& value) {
    number(value ? static_cast<std::uint64_t>(*value) + 1 : 0);
  }
  void raw(std::string_view value) { out_ += value; }
  void text(std::string_view value) {
    number(value.size());
    raw(value);
  }
  void real(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int i = 0; i < 64; i += 8) out_ += static_cast<char>(bits >> i);
  }
  template <typename Enum>
  void choice(Enum value) {
    number(static_cast<std::uint64_t>(value));
  }
  void flags(std::initializer_list<bool> values) {
    std::uint64_t bits = 0, bit = 1;
    for (const bool value : values) {
      if (value) bits |= bit;
      bit <<= 1;
    }
    number(bits);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view where) : where_(where) {
    rest_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  [[noreturn]] void damaged(std::string_view cause) const {
    throw Error(ErrorKind::data, "{}: the vocabulary is damaged: {}", where_, cause);
  }
  std::string_view bytes(std::uint64_t count) {
    if (count > rest_.size()) damaged("it is truncated");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes(1)[0]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    damaged("a number is too long");
  }
  // Of things that take at least one byte each.
  std::size_t count() {
    const std::uint64_t value = number();
    if (value > rest_.size() || value > kMaxTokens) damaged("it has fewer parts than declared");
    return static_cast<std::size_t>(value);
  }
  TokenId id() {
    const std::uint64_t value = number();
    if (value >= kMaxTokens) damaged("an id is too large");
    return static_cast<TokenId>(value);
  }
  std::optional<TokenId> optional_id() {
    const std::uint64_t value = number();
    if (value > kMaxTokens) damaged("an id is too large");
    if (value == 0) return {};
    return static_cast<TokenId>(value - 1);
  }
  std::string text() { return std::string(bytes(number())); }
  double real() {
    std::uint64_t bits = 0;
    const std::string_view raw = bytes(8);
    for (std::size_t i = 0; i < 8; ++i) {
      bits |= std::uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    }
    return std::bit_cast<double>(bits);
  }
  template <typename Enum>
  Enum choice(Enum last) {
    const std::uint64_t value = number();
    if (value > static_cast<std::uint64_t>(last)) damaged("unknown step");
    return static_cast<Enum>(value);
  }
  void flags(std::initializer_list<bool*> values) {
    std::uint64_t bits = number();
    for (bool* value : values) {
      *value = (bits & 1) != 0;
      bits >>= 1;
    }
    if (bits != 0) damaged("unknown flag");
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view where_, rest_;
};

template <typename T, typename Put>
void write_list(Writer& out, const std::vector<T>& list, Put put) {
  out.number(list.size());
  for (const T& element : list) put(element);
}

template <typename T, typename Take>
void read_list(Reader& in, std::vector<T>& list, Take take) {
  const std::size_t count = in.count();
  for (std::size_t i = 0; i < count; ++i) list.push_back(take());
}

}  // namespace

bool AddedToken::is_control() const {
  const auto between = [&](std::string_view first, std::string_view last) {
    return text.size() > first.size() + last.size() && text.starts_with(first) &&
           text.ends_with(last);
  };
  // The second bar is U+FF5C.
  return special || between("<|", "|>") || between("<\xef\xbd\x9c", "\xef\xbd\x9c>");
}

const AddedToken* Vocabulary::find_added(std::string_view text) const {
  const auto found = std::find_if(added.begin(), added.end(),
                                  [&](const AddedToken& token) { return token.text == text; });
  return found == added.end() ? nullptr : &*found;
}

std::vector<bool> Vocabulary::control_ids() const {
  std::vector<bool> control(tokens.size(), false);
  for (const AddedToken& token : added) {
    if (token.is_control()) control[static_cast<std::size_t>(token.id)] = true;
  }
  return control;
}

void Vocabulary::pad(std::int64_t wanted) {
  if (wanted <= size()) return;
  tokens.resize(static_cast<std::size_t>(wanted));
  if (kind == VocabularyKind::unigram) scores.resize(tokens.size(), 0.0);
}

std::string Vocabulary::serialize() const {
  Writer out(kMagic);
  out.choice(kind);
  out.flags({byte_level, byte_fallback, fuse_unknown, ignore_merges});
  out.optional_id(unknown);
  out.optional_id(bos);
  out.optional_id(eos);
  write_list(out, before, [&](TokenId id) { out.id(id); });
  write_list(out, after, [&](TokenId id) { out.id(id); });
  out.text(chat_template);
  write_list(out, normalizer, [&](const NormalizerStep& step) {
    out.choice(step.kind);
    out.flags({step.pattern.regex});
    out.text(step.pattern.text);
    out.text(step.content);
  });
  write_list(out, pre_tokenizer, [&](const PreTokenizerStep& step) {
    out.choice(step.kind);
    out.flags({step.pattern.regex, step.invert, step.prefix_space, step.split});
    out.text(step.pattern.text);
    out.choice(step.behavior);
    out.text(step.replacement);
    out.choice(step.prepend);
  });
  write_list(out, decoder, [&](const DecoderStep& step) {
    out.choice(step.kind);
    out.flags({step.drop_first});
    out.text(step.pattern);
    out.text(step.content);
    out.number(static_cast<std::uint64_t>(step.count));
  });
  write_list(out, added, [&](const AddedToken& token) {
    out.id(token.id);
    out.text(token.text);
    out.flags({token.special, token.lstrip, token.rstrip, token.single_word, token.normalized});
  });
  write_list(out, tokens, [&](const VocabularyToken& token) {
    out.number(2 * token.text.size() + (token.of_model ? 1 : 0));
  });
  for (const VocabularyToken& token : tokens) out.raw(token.text);
  write_list(out, merges, [&](const Merge& merge) {
    out.id(merge.left);
    out.id(merge.right);
    out.id(merge.result);
  });
  write_list(out, scores, [&](double score) { out.real(score); });
  return out.take();
}

Vocabulary Vocabulary::parse(std::span<const std::byte> bytes, std::string_view where) {
  Reader in(bytes, where);
  if (in.bytes(std::min<std::uint64_t>(kMagic.size(), bytes.size())) != kMagic) {
    throw Error(ErrorKind::data, "{}: the vocabulary has an unknown format", where);
  }
  Vocabulary v;
  v.kind = in.choice(VocabularyKind::unigram);
  in.flags({&v.byte_level, &v.byte_fallback, &v.fuse_unknown, &v.ignore_merges});
  v.unknown = in.optional_id();
  v.bos = in.optional_id();
  v.eos = in.optional_id();
  read_list(in, v.before, [&] { return in.id(); });
  read_list(in, v.after, [&] { return in.id(); });
  v.chat_template = in.text();
  read_list(in, v.normalizer, [&] {
    NormalizerStep step;
    step.kind = in.choice(NormalizerKind::replace);
    in.flags({&step.pattern.regex});
    step.pattern.text = in.text();
    step.content = in.text();
    return step;
  });
  read_list(in, v.pre_tokenizer, [&] {
    PreTokenizerStep step;
    step.kind = in.choice(PreTokenizerKind::metaspace);
    in.flags({&step.pattern.regex, &step.invert, &step.prefix_space, &step.split});
    step.pattern.text = in.text();
    step.behavior = in.choice(SplitBehavior::contiguous);
    step.replacement = in.text();
    step.prepend = in.choice(PrependScheme::never);
    return step;
  });
  read_list(in, v.decoder, [&] {
    DecoderStep step;
    step.kind = in.choice(DecoderKind::metaspace);
    in.flags({&step.drop_first});
    step.pattern = in.text();
    step.content = in.text();
    step.count = static_cast<std::int64_t>(in.number());
    return step;
  });
  read_list(in, v.added, [&] {
    AddedToken token;
    token.id = in.id();
    token.text = in.text();
    in.flags({&token.special, &token.lstrip, &token.rstrip, &token.single_word, &token.normalized});
    return token;
  });
  std::vector<std::uint64_t> lengths;
  read_list(in, lengths, [&] { return in.number(); });
  v.tokens.reserve(lengths.size());
  for (const std::uint64_t length : lengths) {
    v.tokens.push_back({std::string(in.bytes(length / 2)), length % 2 == 1});
  }
  read_list(in, v.merges, [&] {
    Merge merge;
    merge.left = in.id();
    merge.right = in.id();
    merge.result = in.id();
    return merge;
  });
  read_list(in, v.scores, [&] { return in.real(); });
  if (!in.at_end()) in.damaged("it has trailing bytes");
  v.check(where);
  return v;
}

void Vocabulary::check(std::string_view where) const {
  const auto fail = [&](std::string_view cause) {
    throw Error(ErrorKind::data, "{}: the vocabulary contradicts itself: {}", where, cause);
  };
  const auto need_id = [&](TokenId id, std::string_view what) {
    if (id < 0 || id >= size()) {
      fail(fmt::format("{} has id {}, there are {} tokens", what, id, size()));
    }
  };
  const auto need = [&](bool holds, std::string_view cause) {
    if (!holds) fail(cause);
  };
  need(!tokens.empty(), "it has no tokens");
  for (const auto& [id, what] :
       {std::pair{unknown, "the unknown token"}, std::pair{bos, "the first token of a sequence"},
        std::pair{eos, "the last token of a sequence"}}) {
    if (id) need_id(*id, what);
  }
  for (const std::vector<TokenId>* ids : {&before, &after}) {
    for (const TokenId id : *ids) need_id(id, "a token around a sequence");
  }
  for (const AddedToken& token : added) need_id(token.id, "an added token");
  for (const Merge& merge : merges) {
    for (const TokenId id : {merge.left, merge.right, merge.result}) need_id(id, "a merge");
  }
  for (const double score : scores) need(std::isfinite(score), "a score is not finite");
  const bool unigram = kind == VocabularyKind::unigram;
  need(unigram ? scores.size() == tokens.size() : scores.empty(),
       "the numbers of scores and tokens differ");
  need(!unigram || merges.empty(), "it has both scores and merges");
  need(!unigram || unknown.has_value(), "it has scores but no unknown token");
  const auto one_character = [](const std::string& text) {
    if (text.empty()) return false;
    const Utf8Char first = first_utf8_char(text);
    return first.valid && first.bytes == text.size();
  };
  for (const NormalizerStep& step : normalizer) {
    need(step.kind != NormalizerKind::replace || !step.pattern.text.empty(),
         "a normaliser replaces an empty text");
    need(valid_utf8_prefix(step.content) == step.content.size(), "a text is not UTF-8");
  }
  for (const PreTokenizerStep& step : pre_tokenizer) {
    need(step.kind != PreTokenizerKind::split || !step.pattern.text.empty(),
         "a pre-tokenizer splits at an empty text");
    need(step.kind != PreTokenizerKind::metaspace || one_character(step.replacement),
         "the replacement for a space is not one character");
  }
  for (const DecoderStep& step : decoder) {
    need(step.kind != DecoderKind::replace || !step.pattern.empty(),
         "a decoder replaces an empty text");
    need((step.kind != DecoderKind::metaspace && step.kind != DecoderKind::strip) ||
             one_character(step.pattern),
         "a decoder strips something other than one character");
    need(step.count >= 0, "a count is negative");
  }
}

const std::array<char32_t, 256>& byte_alphabet() {
  // The bytes that are visible in Latin-1 stand for themselves, the others for U+0100 and on.
  static const std::array<char32_t, 256> alphabet = [] {
    std::array<char32_t, 256> made{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      made[byte] = visible ? byte : next++;
    }
    return made;
  }();
  return alphabet;
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> made;
    for (std::size_t i = 0; i < 256; ++i) made.emplace(byte_alphabet()[i], static_cast<char>(i));
    return made;
  }();
  std::string out;
  while (!text.empty()) {
    const Utf8Char next = first_utf8_char(text);
    const auto found = bytes.find(next.value);
    if (!next.valid || found == bytes.end()) return {};
    out += found->second;
    text.remove_prefix(next.bytes);
  }
  return out;
}

std::optional<unsigned char> fallback_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return {};
  unsigned value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'A' || c > 'F')) return {};
    value = 16 * value + static_cast<unsigned>(digit ? c - '0' : c - 'A' + 10);
  }
  return static_cast<unsigned char>(value);
}

}  // namespace tinyloop
