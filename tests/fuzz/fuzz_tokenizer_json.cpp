// SPDX-License-Identifier: Apache-2.0
// Fuzz target for what vocabularies are read from: any bytes give a vocabulary that survives
// storing and whose parts can be used, or a message. Not about which ids a text becomes.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/fuzz_require.h"
#include "tinyloop/error.h"
#include "tinyloop/text/chat_template.h"
#include "tinyloop/text/detokenizer.h"
#include "tinyloop/text/tokenizer_json.h"
#ifdef TL_HAVE_TOKENIZER
#include "tinyloop/text/tokenizer.h"
#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace tinyloop;

constexpr std::string_view kText = "It's <s> 12\xc3\xa9 \xff the\r\n  word\xe2\x96\x81 <0x41>";

void use(const Vocabulary& vocabulary) {
  Detokenizer detokenizer(vocabulary);
  std::vector<TokenId> all;
  for (TokenId id = 0; id < vocabulary.size(); ++id) all.push_back(id);
  const Detokenizer::Aligned aligned = detokenizer.align(all);
  require(aligned.offsets.back() == static_cast<std::int64_t>(aligned.text.size()),
          "the last offset is the text's end");
  try {
    ChatTemplate::choose("auto", vocabulary).apply({{"user", "x"}});
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::usage, "a template that is not known is an error of use");
  }
#ifdef TL_HAVE_TOKENIZER
  Tokenizer tokenizer(vocabulary, "it");
  for (const bool special : {false, true}) {
    for (const TokenId id : tokenizer.encode(kText, special)) {
      require(id >= 0 && id < vocabulary.size(), "ids are those of the vocabulary");
    }
  }
#endif
}

}  // namespace

// The first byte chooses: tokenizer.json, tokenizer_config.json beside a good one, or the bytes of
// a model file.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    Vocabulary vocabulary;
    if (data[0] % 3 == 0) {
      vocabulary = parse_tokenizer_json(content, "it");
    } else if (data[0] % 3 == 1) {
      vocabulary = parse_tokenizer_json(
          R"({"model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1}, "merges": []},
              "decoder": {"type": "Fuse"}})",
          "it", content, "it");
    } else {
      vocabulary = Vocabulary::parse(std::as_bytes(std::span(content)), "it");
    }
    const std::string bytes = vocabulary.serialize();
    const Vocabulary again = Vocabulary::parse(std::as_bytes(std::span(bytes)), "it");
    require(again.serialize() == bytes, "a vocabulary survives storing");
    use(again);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::data, "damage is an error of kind data");
    const std::string_view message = error.what();
    require(message.starts_with("it"), "a message names the file");
    require(message.size() < 5000, "messages are bounded");
    require_plain(message);
  }
  return 0;
}
