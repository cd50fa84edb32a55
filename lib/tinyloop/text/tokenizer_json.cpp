// SPDX-License-Identifier: Apache-2.0
// The model, the added tokens and the files beside it; the steps are in tokenizer_json_steps.
#include "tinyloop/text/tokenizer_json.h"

#include <filesystem>
#include <unordered_map>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/text_file.h"
#include "tinyloop/text/json_node.h"
#include "tinyloop/text/tokenizer_json_steps.h"

namespace tinyloop {

namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;
constexpr std::int64_t kLargestTemplate = std::int64_t{1} << 20;
constexpr std::int64_t kMaxId = (1 << 24) - 1;
constexpr int kDeepest = 100;
constexpr std::size_t kMaxWithout = 65536;  // ids without a token that even a small file may have

Json parse_object(std::string_view text, const std::string& where) {
  Json json;
  // The JSON reader takes a NUL for the end and leaves the rest unread.
  // What is built of a text and gone through calls itself for each level.
  const auto not_too_deep = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) {
      throw Error(ErrorKind::data, "{}: is nested deeper than {} levels", where, kDeepest);
    }
    return true;
  };
  if (text.find('\0') == std::string_view::npos) json = Json::parse(text, not_too_deep, false);
  if (!json.is_object()) throw Error(ErrorKind::data, "{}: is not a JSON object", where);
  return json;
}

class Reader {
 public:
  Reader(const Json& json, const std::string& where) : root_(json, where) {}

  Vocabulary read() {
    root_.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                "post_processor", "decoder", "model"});
    root_.refuse_unless_empty("truncation");
    root_.refuse_unless_empty("padding");
    if (const auto node = root_.find("normalizer")) read_normalizer(*node, vocabulary_);
    if (const auto node = root_.find("pre_tokenizer")) read_pre_tokenizer(*node, vocabulary_);
    read_model(root_.at("model"));
    if (const auto node = root_.find("added_tokens")) {
      for (const JsonNode& token : node->elements()) read_added(token);
    }
    if (const auto node = root_.find("post_processor")) read_post_processor(*node, vocabulary_);
    read_decoder(root_.at("decoder"), vocabulary_);
    if (vocabulary_.before.size() == 1) vocabulary_.bos = vocabulary_.before.front();
    if (vocabulary_.after.size() == 1) vocabulary_.eos = vocabulary_.after.front();
    return std::move(vocabulary_);
  }

 private:
  TokenId id_of(const JsonNode& node, const std::string& text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) node.refuse(fmt::format("\"{}\" is not a token", excerpt(text)));
    return found->second;
  }

  void put(const JsonNode& node, TokenId id, const std::string& text) {
    const auto place = static_cast<std::size_t>(id);
    if (place >= vocabulary_.tokens.size()) {
      // A small file must not ask for much memory.
      if (place > kMaxWithout + 4 * ids_.size() + 4 * expected_) {
        node.refuse(
            fmt::format("id {} of \"{}\" leaves too many ids without a token", id, excerpt(text)));
      }
      vocabulary_.tokens.resize(place + 1);
      taken_.resize(place + 1, false);
    }
    if (taken_[place]) node.refuse(fmt::format("duplicate id {}", id));
    taken_[place] = true;
    if (!ids_.emplace(text, id).second) {
      node.refuse(fmt::format("duplicate token \"{}\"", excerpt(text)));
    }
    VocabularyToken& token = vocabulary_.tokens[place];
    token = {text, true};
    if (!vocabulary_.byte_level) return;
    // What has other characters is never made of bytes: an added token.
    auto bytes = bytes_of_alphabet(text);
    token.of_model = bytes.has_value();
    if (bytes) token.text = std::move(*bytes);
  }

  void read_model(const JsonNode& node) {
    const auto given = node.find("type");
    const std::string type = given ? given->text() : node.find("merges") ? "BPE" : "";
    if (type == "BPE") {
      read_bpe(node);
    } else if (type == "Unigram") {
      read_unigram(node);
    } else {
      node.refuse_type(type);
    }
  }

  void read_bpe(const JsonNode& node) {
    node.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
               "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      node.refuse_unless_empty(key);
    }
    vocabulary_.kind = VocabularyKind::bpe;
    vocabulary_.fuse_unknown = node.flag_or("fuse_unk", false);
    vocabulary_.byte_fallback = node.flag_or("byte_fallback", false);
    vocabulary_.ignore_merges = node.flag_or("ignore_merges", false);
    if (vocabulary_.byte_level && vocabulary_.byte_fallback) {
      node.refuse("byte_fallback beside ByteLevel is not supported");
    }
    const JsonNode vocab = node.at("vocab");
    if (!vocab.is_object()) vocab.refuse("expected an object");
    expected_ = vocab.json().size();
    for (const auto& item : vocab.json().items()) {
      const JsonNode::Json& id = item.value();
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::uint64_t{kMaxId}) {
        vocab.refuse(
            fmt::format("\"{}\": expected an id from 0 to {}", excerpt(item.key()), kMaxId));
      }
      put(vocab, id.get<TokenId>(), item.key());
    }
    for (const JsonNode& merge : node.at("merges").elements()) {
      const auto [left, right] = merge_of(merge);
      vocabulary_.merges.push_back(
          {id_of(merge, left), id_of(merge, right), id_of(merge, left + right)});
    }
    if (const auto unknown = node.find("unk_token")) {
      vocabulary_.unknown = id_of(*unknown, unknown->text());
    }
  }

  // "a b" or ["a", "b"]
  static std::pair<std::string, std::string> merge_of(const JsonNode& node) {
    if (node.is_list()) {
      if (node.json().size() != 2) node.refuse("expected two strings");
      const std::vector<JsonNode> parts = node.elements();
      return {parts[0].text(), parts[1].text()};
    }
    const std::string& text = node.text();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      node.refuse("expected two strings separated by one space");
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }

  void read_unigram(const JsonNode& node) {
    node.only({"type", "unk_id", "vocab", "byte_fallback"});
    vocabulary_.kind = VocabularyKind::unigram;
    vocabulary_.fuse_unknown = true;
    vocabulary_.byte_fallback = node.flag_or("byte_fallback", false);
    if (vocabulary_.byte_level) node.refuse("Unigram behind ByteLevel is not supported");
    const std::vector<JsonNode> entries = node.at("vocab").elements();
    for (std::size_t id = 0; id < entries.size(); ++id) {
      if (!entries[id].is_list() || entries[id].json().size() != 2) {
        entries[id].refuse("expected a string and a score");
      }
      const std::vector<JsonNode> parts = entries[id].elements();
      if (id > static_cast<std::size_t>(kMaxId)) node.refuse("there are too many tokens");
      put(entries[id], static_cast<TokenId>(id), parts[0].text());
      vocabulary_.scores.push_back(parts[1].number());
    }
    vocabulary_.unknown =
        static_cast<TokenId>(node.at("unk_id").integer(0, vocabulary_.size() - 1));
  }

  void read_added(const JsonNode& node) {
    node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.id = static_cast<TokenId>(node.at("id").integer(0, kMaxId));
    token.text = node.text("content");
    if (token.text.empty()) node.at("content").refuse("it is empty");
    token.single_word = node.flag_or("single_word", false);
    token.lstrip = node.flag_or("lstrip", false);
    token.rstrip = node.flag_or("rstrip", false);
    token.special = node.flag_or("special", false);
    token.normalized = node.flag_or("normalized", !token.special);
    const auto found = ids_.find(token.text);
    if (found == ids_.end()) {
      put(node, token.id, token.text);
      vocabulary_.tokens[static_cast<std::size_t>(token.id)] = {token.text, false};
      if (vocabulary_.kind == VocabularyKind::unigram) {
        vocabulary_.scores.resize(vocabulary_.tokens.size(), 0.0);
      }
    } else if (found->second != token.id) {
      node.refuse(fmt::format("token \"{}\" has id {} in the model and {} here",
                              excerpt(token.text), found->second, token.id));
    }
    vocabulary_.added.push_back(std::move(token));
  }

  JsonNode root_;
  Vocabulary vocabulary_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<bool> taken_;
  std::size_t expected_ = 0;  // tokens of the model
};

// "<s>" or {"content": "<s>", ...}
void read_mark(const JsonNode& config, const std::string& key, const Vocabulary& vocabulary,
               std::optional<TokenId>& id) {
  const auto given = config.find(key);
  if (!given) return;
  const std::string& text = given->is_object() ? given->text("content") : given->text();
  if (const AddedToken* token = vocabulary.find_added(text)) {
    id = token->id;
    return;
  }
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.tokens[i].text == text) {
      id = static_cast<TokenId>(i);
      return;
    }
  }
  given->refuse(fmt::format("\"{}\" is not a token", excerpt(text)));
}

void read_config(const JsonNode& config, Vocabulary& vocabulary) {
  read_mark(config, "bos_token", vocabulary, vocabulary.bos);
  read_mark(config, "eos_token", vocabulary, vocabulary.eos);
  const auto given = config.find("chat_template");
  if (!given) return;
  if (!given->is_list()) {
    vocabulary.chat_template = given->text();
    return;
  }
  for (const JsonNode& named : given->elements()) {
    if (named.text("name") == "default") vocabulary.chat_template = named.text("template");
  }
}

}  // namespace

Vocabulary parse_tokenizer_json(std::string_view text, const std::string& where,
                                std::string_view config, const std::string& config_where) {
  const Json json = parse_object(text, where);
  Vocabulary vocabulary = Reader(json, where).read();
  if (!config.empty()) {
    const Json config_json = parse_object(config, config_where);
    read_config(JsonNode(config_json, config_where), vocabulary);
  }
  vocabulary.check(where);
  return vocabulary;
}

Vocabulary read_tokenizer_json(const std::string& path) {
  const auto beside = [&](const char* name) {
    return std::filesystem::path(path).replace_filename(name).string();
  };
  std::error_code unknown;  // then it is not there
  const std::string config_path = beside("tokenizer_config.json");
  const std::string template_path = beside("chat_template.jinja");
  const std::string text = read_text_file(path, kLargestFile);
  std::string config;
  if (std::filesystem::exists(config_path, unknown)) {
    config = read_text_file(config_path, kLargestFile);
    if (config.empty()) throw Error(ErrorKind::data, "{}: is not a JSON object", config_path);
  }
  Vocabulary vocabulary = parse_tokenizer_json(text, path, config, config_path);
  if (std::filesystem::exists(template_path, unknown)) {
    vocabulary.chat_template = read_text_file(template_path, kLargestTemplate);
  }
  return vocabulary;
}

}  // namespace tinyloop
