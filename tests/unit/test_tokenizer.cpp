// SPDX-License-Identifier: Apache-2.0
// Text to ids and back: what PyPI's tokenizers made of the same texts (tests/text), and what it
// cannot say: bytes that are no UTF-8, parts of a text that may name control tokens, long runs.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/text/detokenizer.h"
#include "tinyloop/text/tokenizer.h"
#include "tinyloop/text/tokenizer_json.h"

namespace tinyloop {
namespace {

using Json = nlohmann::json;

const std::string kFolder = TL_SOURCE_ROOT "/tests/text/";
const std::vector<std::string> kNames = {"byte_level", "byte_level_prefix", "sentencepiece",
                                         "unknowns",   "metaspace",         "unigram"};

Vocabulary vocabulary_of(const std::string& name) {
  return read_tokenizer_json(kFolder + name + ".json");
}

std::string text_of(const Vocabulary& vocabulary, const std::vector<TokenId>& ids,
                    DetokenizerOptions options) {
  Detokenizer detokenizer(vocabulary, options);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

TEST_CASE("ids and texts are those that tokenizers made") {
  std::ifstream golden(kFolder + "golden.jsonl");
  std::int64_t cases = 0;
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
  for (std::string line; std::getline(golden, line); ++cases) {
    const Json wanted = Json::parse(line);
    if (wanted["tokenizer"] != name) {
      name = wanted["tokenizer"].get<std::string>();
      tokenizer = std::make_unique<Tokenizer>(vocabulary_of(name), name);
    }
    CAPTURE(line);
    const auto text = wanted["text"].get<std::string>();
    const std::vector<TokenId> ids = tokenizer->encode(text, true);
    CHECK(ids == wanted["special"].get<std::vector<TokenId>>());
    CHECK(tokenizer->encode(text) == wanted["plain"].get<std::vector<TokenId>>());
    CHECK(text_of(tokenizer->vocabulary(), ids, {.special = true}) == wanted["shown"]);
    CHECK(text_of(tokenizer->vocabulary(), ids, {}) == wanted["skipped"]);
  }
  CHECK(cases == 288);
}

TEST_CASE("a vocabulary comes back from its bytes and makes the same ids") {
  for (const std::string& name : kNames) {
    const Vocabulary vocabulary = vocabulary_of(name);
    const std::string bytes = vocabulary.serialize();
    const Vocabulary again = Vocabulary::parse(std::as_bytes(std::span(bytes)), "it");
    CHECK(again.serialize() == bytes);
    Tokenizer first(vocabulary, "it"), second(again, "it");
    const std::string text = "It's <|im_end|> 12 words\n\xf0\x9f\x91\xa8 caf\xc3\xa9";
    CHECK(first.encode(text) == second.encode(text));
    CHECK(first.encode(text, true) == second.encode(text, true));
  }
}

TEST_CASE("no cut or altered vocabulary is taken for another one") {
  const std::string bytes = vocabulary_of("unknowns").serialize();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut = bytes.substr(0, length);
    CHECK_THROWS_AS(Vocabulary::parse(std::as_bytes(std::span(cut)), "it"), Error);
  }
  const std::string longer = bytes + '\0';
  CHECK_THROWS_WITH_AS(Vocabulary::parse(std::as_bytes(std::span(longer)), "it"),
                       "it: the vocabulary is damaged: it has trailing bytes", Error);
  std::string other = bytes;
  other[0] = 'T';
  CHECK_THROWS_AS(Vocabulary::parse(std::as_bytes(std::span(other)), "it"), Error);
}

TEST_CASE("control tokens are found only where they may be named") {
  Tokenizer tokenizer(vocabulary_of("byte_level"), "it");
  const TokenId end = tokenizer.vocabulary().find_added("<|im_end|>")->id;
  const auto count = [&](const std::vector<TextPart>& parts) {
    const std::vector<TokenId> ids = tokenizer.encode(parts);
    return std::count(ids.begin(), ids.end(), end);
  };
  const std::string mark = "<|im_end|>";
  CHECK(count({{mark, true}}) == 1);
  CHECK(count({{mark, false}}) == 0);
  CHECK(count({{"a" + mark, false}, {mark, true}, {mark + "b", false}}) == 1);
  // Not across a border, and what is cut off by one does not hide the next.
  CHECK(count({{"<|im", false}, {"_end|>", true}}) == 0);
  CHECK(count({{"<|im", true}, {"_end|>", true}}) == 0);
  CHECK(count({{"x<|im", false}, {"_end|>" + mark, true}}) == 1);
  CHECK(count({{"\xff", false}, {mark, true}, {"\xff" + mark, false}, {mark, true}}) == 2);
  // Where nothing is named, borders leave no trace.
  CHECK(tokenizer.encode(std::vector<TextPart>{{"the wo", false}, {"rd was", false}}) ==
        tokenizer.encode("the word was"));
}

TEST_CASE("bytes that are no UTF-8 come back where the vocabulary has bytes") {
  const std::string damaged = "caf\xc3 \xff\xfe\xe2\x82 the \xf0\x9f\x91 word\xed\xa0\x80\xc3";
  for (const std::string name : {"byte_level", "sentencepiece"}) {
    CAPTURE(name);
    Tokenizer tokenizer(vocabulary_of(name), "it");
    const std::vector<TokenId> ids = tokenizer.encode(damaged);
    CHECK(text_of(tokenizer.vocabulary(), ids, {.bytes = true}) == damaged);
    CHECK(text_of(tokenizer.vocabulary(), ids, {}) ==
          "caf\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd the \xef\xbf\xbd "
          "word\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  }
  Tokenizer without(vocabulary_of("metaspace"), "it");
  CHECK(without.encode("a\xff\xff z") == without.encode("a\xef\xbf\xbd\xef\xbf\xbd z"));
}

TEST_CASE("long runs are no trouble, and what is cached makes no difference") {
  for (const std::string& name : kNames) {
    Tokenizer tokenizer(vocabulary_of(name), "it");
    for (const std::string unit : {"a", " ", "\n", "\xcc\x81\xcc\x96", "<"}) {
      std::string run;
      while (run.size() < 300000) run += unit;
      const std::vector<TokenId> once = tokenizer.encode(run);
      CHECK(tokenizer.encode(run) == once);
      CHECK(!once.empty() != (name == "unknowns" && (unit == " " || unit == "\n")));
    }
    const std::vector<TokenId> first = tokenizer.encode("the word the word");
    CHECK(tokenizer.encode("the word the word") == first);
  }
}

TEST_CASE("a merge waits for those before it, whatever it makes") {
  // By hand: of "aaa" the first two are merged, of "aab" too, so "ab" finds nothing.
  const std::string json = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "aa": 2, "ab": 3,
      "aaab": 4}, "merges": ["a a", "a b", ["aa", "ab"]]}, "decoder": {"type": "Fuse"}})";
  Tokenizer tokenizer(parse_tokenizer_json(json, "it"), "it");
  CHECK(tokenizer.encode("aaa") == std::vector<TokenId>{2, 0});
  CHECK(tokenizer.encode("aab") == std::vector<TokenId>{2, 1});
  CHECK(tokenizer.encode("aaab") == std::vector<TokenId>{4});
  CHECK(tokenizer.encode("aaaaab") == std::vector<TokenId>{2, 4});
  CHECK(tokenizer.encode("cac") == std::vector<TokenId>{0});  // no unknown token
}

}  // namespace
}  // namespace tinyloop
