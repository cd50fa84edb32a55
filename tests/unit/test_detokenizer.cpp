// SPDX-License-Identifier: Apache-2.0
// Text comes as soon as it is certain, and never within a character.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tinyloop/text/detokenizer.h"
#include "tinyloop/text/tokenizer_json.h"

namespace tinyloop {
namespace {

// One token a byte, 'a' and 'b' first, then those of "é" and of U+1F680, one ill-formed, a mark.
Vocabulary bytes_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.byte_level = true;
  for (const char* text : {"a", "b", "\xc3", "\xa9", "\xf0", "\x9f", "\x9a", "\x80", "\xff"}) {
    vocabulary.tokens.push_back({text, true});
  }
  vocabulary.tokens.push_back({"<|end|>", false});
  vocabulary.added.push_back({9, "<|end|>", true, false, false, false, false});
  vocabulary.decoder.push_back({});
  vocabulary.check("it");
  return vocabulary;
}

std::vector<std::string> pushed(Detokenizer& detokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> texts;
  for (const TokenId id : ids) texts.push_back(detokenizer.push(id));
  texts.push_back(detokenizer.finish());
  return texts;
}

using Texts = std::vector<std::string>;
const std::string kRocket = "\xf0\x9f\x9a\x80", kUnknown = "\xef\xbf\xbd";

TEST_CASE("a character of several tokens comes with its last one") {
  Detokenizer detokenizer(bytes_vocabulary());
  CHECK(pushed(detokenizer, {0, 2, 3, 1}) == Texts{"a", "", "\xc3\xa9", "b", ""});
  CHECK(pushed(detokenizer, {4, 5, 6, 7}) == Texts{"", "", "", kRocket, ""});
}

TEST_CASE("what can no longer become a character is replaced at once, or kept as it is") {
  Detokenizer replacing(bytes_vocabulary()), keeping(bytes_vocabulary(), {.bytes = true});
  CHECK(pushed(replacing, {2, 0, 8, 4, 5}) ==
        Texts{"", kUnknown + "a", kUnknown, "", "", kUnknown});
  CHECK(pushed(keeping, {2, 0, 8, 4, 5}) == Texts{"",
                                                  "\xc3"
                                                  "a",
                                                  "\xff", "", "", "\xf0\x9f"});
}

TEST_CASE("control tokens are left out, also within a character, or shown") {
  Detokenizer skipping(bytes_vocabulary()), showing(bytes_vocabulary(), {.special = true});
  CHECK(pushed(skipping, {2, 9, 3, 9}) == Texts{"", "", "\xc3\xa9", "", ""});
  CHECK(pushed(showing, {2, 9, 0}) == Texts{"", kUnknown + "<|end|>", "a", ""});
}

TEST_CASE("offsets say where the text of each token begins") {
  Detokenizer detokenizer(bytes_vocabulary());
  const Detokenizer::Aligned aligned = detokenizer.align({0, 2, 3, 8, 9, 4, 5, 6, 7, 1});
  CHECK(aligned.text == "a\xc3\xa9" + kUnknown + kRocket + "b");
  CHECK(aligned.offsets == std::vector<std::int64_t>{0, 1, 1, 3, 6, 6, 6, 6, 6, 10, 11});
  CHECK(detokenizer.align({}).offsets == std::vector<std::int64_t>{0});
}

TEST_CASE("a space at the beginning is taken away once a text") {
  const Vocabulary vocabulary =
      read_tokenizer_json(TL_SOURCE_ROOT "/tests/text/sentencepiece.json");
  const auto id_of = [&](std::string_view text) {
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      if (vocabulary.tokens[i].text == text) return static_cast<TokenId>(i);
    }
    FAIL("no such token");
    return TokenId{0};
  };
  const TokenId space = id_of("\xe2\x96\x81"), byte_space = id_of("<0x20>"), x = id_of("t");
  const TokenId c3 = id_of("<0xC3>"), a9 = id_of("<0xA9>");
  Detokenizer detokenizer(vocabulary);
  CHECK(pushed(detokenizer, {space, space, x}) == Texts{"", " ", "t", ""});
  CHECK(pushed(detokenizer, {byte_space, x, space}) == Texts{"", "t", " ", ""});
  CHECK(pushed(detokenizer, {x, c3, a9}) == Texts{"t", "", "\xc3\xa9", ""});
  CHECK(pushed(detokenizer, {}) == Texts{""});
}

}  // namespace
}  // namespace tinyloop
