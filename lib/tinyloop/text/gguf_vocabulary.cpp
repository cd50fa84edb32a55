// SPDX-License-Identifier: Apache-2.0
// One function a kind, one row a pre-tokenizer.
#include "tinyloop/text/gguf_vocabulary.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/utf8.h"
#include "tinyloop/text/split_patterns.h"

namespace tinyloop {

namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kKind = "tokenizer.ggml.model";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kTemplate = "tokenizer.chat_template";
constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, which stands for a space

constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 24;

enum TokenType : std::int64_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user = 4,
  unused = 5,
  byte = 6
};

// GPT-4's expression and its descendants.
constexpr std::string_view kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen35 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDeepseekWords =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";
constexpr std::string_view kNumbers3 = "\\p{N}{1,3}";
constexpr std::string_view kHanKana =
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f"
    "\xe3\x82\xa0-\xe3\x83\xbf]+";
constexpr std::string_view kHanHangul =
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80"
    "\xea\xb0\x80-\xed\x9f\xbf]+";

struct PreRow {
  std::string_view name;
  bool nfc;  // the normaliser
  bool ignore_merges;
  bool begins;  // a sequence begins with the first token where nothing else is said
  std::initializer_list<std::string_view> patterns;  // each cuts the pieces of the one before
};

const PreRow* find_pre(std::string_view name) {
  static const PreRow rows[] = {
      {"gpt-2", false, false, false, {kByteLevelPattern}},
      {"mpt", true, false, false, {kByteLevelPattern}},
      {"smollm", false, false, false, {kDigits, kByteLevelPattern}},
      {"starcoder", false, false, false, {kDigits, kByteLevelPattern}},
      {"refact", false, false, false, {kDigits, kByteLevelPattern}},
      {"command-r", true, false, true, {kDigits, kByteLevelPattern}},
      {"llama-bpe", false, true, true, {kLlama3}},
      {"llama3", false, true, true, {kLlama3}},
      {"llama-v3", false, true, true, {kLlama3}},
      {"qwen2", true, false, false, {kQwen2}},
      {"qwen35", true, false, false, {kQwen35}},
      {"deepseek-r1-qwen", false, false, true, {kQwen2}},
      {"deepseek-coder",
       false,
       false,
       true,
       {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kHanHangul, kDigits}},
      {"deepseek-v3", false, false, true, {kNumbers3, kHanKana, kDeepseekWords}},
  };
  const auto* found = std::find_if(std::begin(rows), std::end(rows),
                                   [name](const PreRow& row) { return row.name == name; });
  return found == std::end(rows) ? nullptr : found;
}

class Reader {
 public:
  explicit Reader(const GgufMetadata& metadata) : metadata_(metadata) {}

  Vocabulary read() {
    const std::string_view kind = metadata_.text(kKind);
    if (kind != "gpt2" && kind != "llama") {
      metadata_.refuse(kKind, "which is not supported; gpt2 and llama are");
    }
    const bool byte_level = kind == "gpt2";
    vocabulary_.byte_level = byte_level;
    read_tokens();
    byte_level ? read_byte_level() : read_sentence_piece();
    if (metadata_.has(kTemplate)) {
      const std::string_view chat = metadata_.text(kTemplate);
      if (valid_utf8_prefix(chat) != chat.size()) fail(kTemplate, "is not UTF-8");
      vocabulary_.chat_template = chat;
    }
    vocabulary_.check(metadata_.where());
    return std::move(vocabulary_);
  }

 private:
  [[noreturn]] void fail(std::string_view key, std::string_view what) const {
    throw Error(ErrorKind::data, "{}: {}: {}", metadata_.where(), key, what);
  }

  void read_tokens() {
    if (metadata_.list_length(kTokens) > kMostTokens) metadata_.refuse(kTokens, "too many");
    texts_ = metadata_.texts(kTokens);
    if (texts_.empty()) metadata_.refuse(kTokens, "tokens are needed");
    types_ = metadata_.integers(kTypes);
    if (types_.size() != texts_.size()) {
      metadata_.refuse(kTypes, fmt::format("{} has {}", kTokens, texts_.size()));
    }
    vocabulary_.tokens.resize(texts_.size());
    for (std::size_t id = 0; id < texts_.size(); ++id) read_token(static_cast<TokenId>(id));
  }

  void read_token(TokenId id) {
    const auto place = static_cast<std::size_t>(id);
    const std::string_view text = texts_[place];
    const std::int64_t type = types_[place];
    if (type < normal || type > byte) {
      fail(kTypes, fmt::format("token {} has type {}; 1 to 6 are known", id, type));
    }
    if (type == unused) return;  // there to fill a gap
    if (valid_utf8_prefix(text) != text.size()) {
      fail(kTokens, fmt::format("token {} is not UTF-8", id));
    }
    if (text.empty()) {
      if (type == normal) return;  // never made of anything
      fail(kTokens, fmt::format("token {} is empty", id));
    }
    if (!ids_.emplace(text, id).second) {
      fail(kTokens, fmt::format("duplicate token \"{}\"", excerpt(text)));
    }
    VocabularyToken& token = vocabulary_.tokens[place];
    token.text = text;
    const bool mark = type == control || (type == unknown && vocabulary_.byte_level);
    if (mark || type == user) {
      AddedToken added;
      added.id = id;
      added.text = text;
      added.special = mark;
      vocabulary_.added.push_back(std::move(added));
      return;
    }
    token.of_model = true;
    if (!vocabulary_.byte_level) return;
    auto bytes = bytes_of_alphabet(text);
    token.of_model = bytes.has_value();
    if (bytes) token.text = std::move(*bytes);
  }

  std::optional<TokenId> id_at(std::string_view key) const {
    if (!metadata_.has(key)) return {};
    const std::int64_t id = metadata_.integer(key);
    if (id < 0 || id >= vocabulary_.size()) {
      metadata_.refuse(key, fmt::format("of {} tokens", vocabulary_.size()));
    }
    return static_cast<TokenId>(id);
  }

  // begins: what is meant where the file says nothing.
  void read_ends(bool begins) {
    vocabulary_.bos = id_at("tokenizer.ggml.bos_token_id");
    vocabulary_.eos = id_at("tokenizer.ggml.eos_token_id");
    constexpr std::string_view kBegins = "tokenizer.ggml.add_bos_token";
    constexpr std::string_view kEnds = "tokenizer.ggml.add_eos_token";
    const bool said = metadata_.has(kBegins);
    if (metadata_.flag_or(kBegins, begins)) {
      if (vocabulary_.bos) {
        vocabulary_.before = {*vocabulary_.bos};
      } else if (said) {
        metadata_.refuse(kBegins, "and tokenizer.ggml.bos_token_id is absent");
      }
    }
    if (metadata_.flag_or(kEnds, false)) {
      if (!vocabulary_.eos) metadata_.refuse(kEnds, "and tokenizer.ggml.eos_token_id is absent");
      vocabulary_.after = {*vocabulary_.eos};
    }
  }

  void read_byte_level() {
    const PreRow* pre = find_pre(metadata_.text(kPre));
    if (pre == nullptr) metadata_.refuse(kPre, "a pre-tokenizer that is not supported");
    if (metadata_.flag_or("tokenizer.ggml.add_space_prefix", false)) {
      metadata_.refuse("tokenizer.ggml.add_space_prefix", "which is not supported for gpt2");
    }
    vocabulary_.ignore_merges = pre->ignore_merges;
    if (pre->nfc) vocabulary_.normalizer.push_back({});
    for (const std::string_view pattern : pre->patterns) {
      PreTokenizerStep step;
      step.pattern = {true, std::string(pattern)};
      vocabulary_.pre_tokenizer.push_back(std::move(step));
    }
    vocabulary_.decoder.push_back({});
    for (const std::string_view merge : metadata_.texts(kMerges)) {
      const std::size_t space = merge.find(' ');
      if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
        fail(kMerges, fmt::format("\"{}\" is not two texts", excerpt(merge)));
      }
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      vocabulary_.merges.push_back(
          {id_of(left), id_of(right), id_of(std::string(left) + std::string(right))});
    }
    read_ends(pre->begins);
  }

  TokenId id_of(std::string_view text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) fail(kMerges, fmt::format("\"{}\" is no token", excerpt(text)));
    return found->second;
  }

  // SentencePiece merges the two neighbours whose union has the best score. The same as a list:
  // unions by falling score, of each all pairs that make it.
  void read_sentence_piece() {
    if (metadata_.flag_or("tokenizer.ggml.remove_extra_whitespaces", false)) {
      metadata_.refuse("tokenizer.ggml.remove_extra_whitespaces", "which is not supported");
    }
    const std::vector<double> scores = metadata_.numbers(kScores);
    if (scores.size() != texts_.size()) {
      metadata_.refuse(kScores, fmt::format("{} has {}", kTokens, texts_.size()));
    }
    vocabulary_.byte_fallback = true;
    vocabulary_.fuse_unknown = true;
    vocabulary_.unknown = id_at("tokenizer.ggml.unknown_token_id");
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      if (types_[id] == unknown && !vocabulary_.unknown) {
        vocabulary_.unknown = static_cast<TokenId>(id);
      }
      if (types_[id] == normal) add_merges(static_cast<TokenId>(id));
    }
    std::stable_sort(vocabulary_.merges.begin(), vocabulary_.merges.end(),
                     [&](const Merge& a, const Merge& b) {
                       return scores[static_cast<std::size_t>(a.result)] >
                              scores[static_cast<std::size_t>(b.result)];
                     });
    const bool prefix = metadata_.flag_or("tokenizer.ggml.add_space_prefix", true);
    if (prefix) {
      vocabulary_.normalizer.push_back({NormalizerKind::prepend, {}, std::string(kSpace)});
    }
    vocabulary_.normalizer.push_back({NormalizerKind::replace, {false, " "}, std::string(kSpace)});
    vocabulary_.decoder.push_back({DecoderKind::replace, std::string(kSpace), " ", 0, false});
    vocabulary_.decoder.push_back({DecoderKind::byte_fallback, "", "", 0, false});
    vocabulary_.decoder.push_back({DecoderKind::fuse, "", "", 0, false});
    if (prefix) vocabulary_.decoder.push_back({DecoderKind::strip, " ", "", 1, false});
    read_ends(true);
  }

  void add_merges(TokenId id) {
    const std::string_view text = texts_[static_cast<std::size_t>(id)];
    std::vector<Merge> ways;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) continue;  // inside a character
      const auto left = ids_.find(text.substr(0, cut)), right = ids_.find(text.substr(cut));
      if (left == ids_.end() || right == ids_.end()) continue;
      if (!is_of_text(left->second) || !is_of_text(right->second)) continue;
      ways.push_back({left->second, right->second, id});
    }
    std::sort(ways.begin(), ways.end(), [](const Merge& a, const Merge& b) {
      return std::tie(a.left, a.right) < std::tie(b.left, b.right);
    });
    std::move(ways.begin(), ways.end(), std::back_inserter(vocabulary_.merges));
  }

  bool is_of_text(TokenId id) const { return types_[static_cast<std::size_t>(id)] == normal; }

  const GgufMetadata& metadata_;
  Vocabulary vocabulary_;
  std::vector<std::string_view> texts_;
  std::vector<std::int64_t> types_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

}  // namespace

Vocabulary gguf_vocabulary(const GgufMetadata& metadata) { return Reader(metadata).read(); }

bool has_gguf_vocabulary(const GgufMetadata& metadata) { return metadata.has(kKind); }

Vocabulary read_gguf_vocabulary(const std::string& path) {
  return gguf_vocabulary(GgufFile::open(path).metadata());
}

}  // namespace tinyloop
