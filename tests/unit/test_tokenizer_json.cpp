// SPDX-License-Identifier: Apache-2.0
// What tokenizer.json may say, and that everything else is refused by name and place.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/text/tokenizer_json.h"

namespace tinyloop {
namespace {

using Json = nlohmann::json;

Json good() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\d+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
              "vocab": {"a": 0, "\u0120": 1, "\u0120a": 2}, "merges": ["\u0120 a"]}})");
}

std::string refusal(const std::string& pointer, const std::string& value) {
  Json json = good();
  json[Json::json_pointer(pointer)] = Json::parse(value);
  try {
    parse_tokenizer_json(json.dump(), "it.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "taken";
}

TEST_CASE("what is known is read") {
  const Vocabulary read = parse_tokenizer_json(good().dump(), "it.json");
  CHECK(read.size() == 4);
  CHECK(read.byte_level);
  CHECK(read.tokens[2].text == " a");
  CHECK(read.tokens[2].of_model);
  CHECK(!read.tokens[3].of_model);
  CHECK(read.merges.size() == 1);
  CHECK(read.before == std::vector<TokenId>{3});
  CHECK(read.bos == 3);
  CHECK(!read.eos);
  CHECK(read.pre_tokenizer.size() == 1);  // ByteLevel without a prefix has nothing to do
  CHECK(read.normalizer.size() == 1);
}

TEST_CASE("what is not known is refused by name and place") {
  CHECK(refusal("/normalizer/type", "\"BertNormalizer\"") ==
        "it.json: normalizer: type \"BertNormalizer\" is not supported");
  CHECK(refusal("/pre_tokenizer/pretokenizers/0/type", "\"CharDelimiterSplit\"") ==
        "it.json: pre_tokenizer.pretokenizers[0]: type \"CharDelimiterSplit\" is not supported");
  CHECK(refusal("/pre_tokenizer/pretokenizers/0/behavior", "\"Removd\"") ==
        "it.json: pre_tokenizer.pretokenizers[0].behavior: \"Removd\" is not supported");
  CHECK(refusal("/pre_tokenizer/pretokenizers/0/new", "1") ==
        "it.json: pre_tokenizer.pretokenizers[0]: key \"new\" is not supported");
  CHECK(refusal("/pre_tokenizer/pretokenizers/2", R"({"type": "Digits"})") ==
        "it.json: pre_tokenizer.pretokenizers[2]: type \"Digits\" behind ByteLevel is not "
        "supported");
  CHECK(refusal("/decoder/type", "\"WordPiece\"") ==
        "it.json: decoder: type \"WordPiece\" does not fit the pre-tokenizer");
  CHECK(refusal("/decoder", "null") == "it.json: decoder is missing");
  CHECK(refusal("/model/type", "\"WordLevel\"") ==
        "it.json: model: type \"WordLevel\" is not supported");
  CHECK(refusal("/model/dropout", "0.1") == "it.json: model.dropout: is not supported");
  CHECK(refusal("/model/end_of_word_suffix", "\"</w>\"") ==
        "it.json: model.end_of_word_suffix: is not supported");
  CHECK(refusal("/post_processor/type", "\"BertProcessing\"") ==
        "it.json: post_processor: type \"BertProcessing\" is not supported");
  CHECK(refusal("/truncation", R"({"max_length": 5})") == "it.json: truncation: is not supported");
  CHECK(refusal("/more", "1") == "it.json: key \"more\" is not supported");
  CHECK(refusal("/model/byte_fallback", "true") ==
        "it.json: model: byte_fallback beside ByteLevel is not supported");
}

TEST_CASE("what contradicts itself is refused") {
  CHECK(refusal("/model/merges/0", "\"a b\"") == "it.json: model.merges[0]: \"b\" is not a token");
  CHECK(refusal("/model/merges/0", "\"a\"") ==
        "it.json: model.merges[0]: expected two strings separated by one space");
  CHECK(refusal("/model/vocab/b", "1") == "it.json: model.vocab: duplicate id 1");
  CHECK(refusal("/model/vocab/b", "-1").find("an id from 0 to") != std::string::npos);
  CHECK(refusal("/model/vocab/b", "1e99").find("an id from 0 to") != std::string::npos);
  CHECK(refusal("/added_tokens/0/id", "16000000") ==
        "it.json: added_tokens[0]: id 16000000 of \"<s>\" leaves too many ids without a token");
  CHECK(refusal("/model/unk_token", "\"x\"") == "it.json: model.unk_token: \"x\" is not a token");
  CHECK(refusal("/added_tokens/0/content", "\"a\"") ==
        "it.json: added_tokens[0]: token \"a\" has id 0 in the model and 3 here");
  CHECK(refusal("/post_processor/special_tokens/<s>/ids/0", "4").find("from 0 to 3") !=
        std::string::npos);
  CHECK_THROWS_WITH(parse_tokenizer_json("[]", "it.json"), "it.json: is not a JSON object");
}

TEST_CASE("what lies beside the file is read with it") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
  };
  write("tokenizer.json", good().dump());
  write("tokenizer_config.json",
        R"({"bos_token": null, "eos_token": {"content": "<s>"}, "chat_template": "one"})");
  Vocabulary read = read_tokenizer_json(folder.file("tokenizer.json"));
  CHECK(read.eos == 3);
  CHECK(read.chat_template == "one");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "two"}]})");
  CHECK(read_tokenizer_json(folder.file("tokenizer.json")).chat_template == "two");
  write("chat_template.jinja", "three");
  CHECK(read_tokenizer_json(folder.file("tokenizer.json")).chat_template == "three");
  write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  CHECK_THROWS_WITH(
      read_tokenizer_json(folder.file("tokenizer.json")),
      (folder.file("tokenizer_config.json") + ": eos_token: \"</s>\" is not a token").c_str());
}

TEST_CASE("deep nesting is refused before anything is built of it") {
  for (const int levels : {60, 20000}) {
    std::string normalizer = R"({"type":"NFC"})", opened, closed;
    for (int i = 0; i < levels; ++i) {
      opened += R"({"type":"Sequence","normalizers":[)";
      closed += "]}";
    }
    Json json = good();
    json["normalizer"] = "HERE";
    std::string text = json.dump();
    const std::string here = "\"HERE\"";
    text.replace(text.find(here), here.size(), opened + normalizer + closed);
    CHECK_THROWS_WITH_AS(parse_tokenizer_json(text, "it.json"),
                         "it.json: is nested deeper than 100 levels", Error);
  }
}

}  // namespace
}  // namespace tinyloop
