// SPDX-License-Identifier: Apache-2.0
// What of a folder is read, and where its files contradict themselves or are not what their names
// say. Which keys mean what is in test_hf_families, the values in test_import_hf.
#include <doctest/doctest.h>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/model/model.h"
#include "unit/file_bytes.h"
#include "unit/hf_folder.h"

namespace tinyloop {
namespace {

const char* const kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n";

TEST_CASE("a head of its own beside the claim that the embedding is the head is refused") {
  const TemporaryFolder folder;
  const auto convert = [&](const HfModel& model) {
    model.write(folder.file("hf"));
    import_checkpoint(folder.file("hf"), folder.file("m.tinyloop"), {});
  };
  HfModel llama = hf_llama();
  llama.keys["tie_word_embeddings"] = "true";
  CHECK_ERROR(convert(llama), data,
              "model.safetensors: tensor lm_head.weight differs from model.embed_tokens.weight, "
              "which tie_word_embeddings of ");
  HfModel last = llama;  // all of it but the last value is the embedding
  for (std::int64_t i = 0; i < 19 * 20 - 1; ++i) {
    last.replaced[{"lm_head.weight", i}] = hf_value(last.tensor("model.embed_tokens.weight"), i);
  }
  CHECK_ERROR(convert(last), data, "lm_head.weight differs");
  HfModel other_shape = llama;
  other_shape.tensor("lm_head.weight").shape = {18, 20};
  CHECK_ERROR(convert(other_shape), data, "lm_head.weight differs");
  for (const bool said : {true, false}) {  // Huginn's head is tied if nothing is said
    HfModel huginn = hf_huginn(false);
    huginn.tensor("lm_head.weight").shape = {19, 20};
    if (!said) huginn.keys.erase("tie_embeddings");
    CHECK_ERROR(convert(huginn), data,
                "lm_head.weight differs from transformer.wte.weight, which tie_embeddings of ");
    huginn.remove("lm_head.weight");
    CHECK_NOTHROW(convert(huginn));
    CHECK(Model::open(folder.file("m.tinyloop")).config().tied_head);
  }
}

TEST_CASE("a head that is missing is not made up") {
  const TemporaryFolder folder;
  const auto read = [&](const HfModel& model) {
    model.write(folder.path());
    return import_config(folder.path(), {});
  };
  for (HfModel model : {hf_llama(), hf_qwen3(), hf_ouro(), hf_nanbeige()}) {
    model.keys.erase("tie_word_embeddings");
    CHECK_FALSE(read(model).tied_head);
    model.remove("lm_head.weight");
    CHECK_ERROR(read(model), data,
                "tie_word_embeddings is absent, and tensor lm_head.weight is missing");
    model.keys["tie_word_embeddings"] = "false";
    CHECK_ERROR(read(model), data,
                "tie_word_embeddings is false, and tensor lm_head.weight is missing");
    model.keys["tie_word_embeddings"] = "true";
    CHECK(read(model).tied_head);
  }
}

TEST_CASE("a Git LFS pointer is told as such") {
  const TemporaryFolder folder;
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    hf_llama().write(folder.path());
    write_file(folder.file(name), kPointer);
    CHECK_ERROR(import_config(folder.path(), {}), data,
                std::string(name) + ": is a Git LFS pointer, not the file itself");
    std::filesystem::remove(folder.file(name));
  }
  write_file(folder.file("config.json"), hf_llama().config());
  write_file(folder.file("model.safetensors.index.json"), kPointer);
  CHECK_ERROR(import_config(folder.path(), {}), data, "index.json: is a Git LFS pointer");
  write_file(folder.file("m.tinyloop"), kPointer);
  CHECK_ERROR(Model::open(folder.file("m.tinyloop")), data, "m.tinyloop: is a Git LFS pointer");
}

TEST_CASE("a link that leads nowhere is an error, not a file that is absent") {
  const TemporaryFolder folder;
  hf_llama().write(folder.path());
  std::filesystem::create_symlink("gone", folder.file("generation_config.json"));
  CHECK_ERROR(import_config(folder.path(), {}), io, "generation_config.json: No such file");
  std::filesystem::remove(folder.file("generation_config.json"));
  CHECK_NOTHROW(import_config(folder.path(), {}));
  std::filesystem::rename(folder.file("model.safetensors"), folder.file("s.safetensors"));
  write_file(folder.file("model.safetensors.index.json"), R"({"weight_map":{}})");
  std::filesystem::create_symlink("gone", folder.file("model.safetensors"));
  CHECK_ERROR(import_config(folder.path(), {}), io, "model.safetensors: No such file");
}

TEST_CASE("a fault in config.json is named with its line and column") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const std::string& message) {
    CAPTURE(text.substr(0, 100));
    write_file(folder.file("config.json"), text);
    CHECK_ERROR(import_config(folder.path(), {}), data, "config.json" + message);
  };
  refused("{\n \"a\": 1,\n \"b\": Infinity\n}", ":3:7: not valid JSON: Infinity and NaN");
  refused("{\n \"b\": -Infinity}", ":2:8: not valid JSON: Infinity and NaN");
  refused("{\"b\": [1, NaN]}", ":1:11: not valid JSON: Infinity and NaN");
  refused("{\n\n  // why\n}", ":3:3: not valid JSON: JSON has no comments");
  refused("{\"a\": 1 /* why */}", ":1:9: not valid JSON: JSON has no comments");
  refused("{\"a\": 1 # why\n}", ":1:9: not valid JSON: JSON has no comments");
  refused("{\"a\": 1,\n}", ":2:1: not valid JSON: trailing comma");
  refused("{\"a\": [1, ]}", ":1:11: not valid JSON: trailing comma");
  refused("", ":1:1: not valid JSON: unexpected end of text");
  refused("{\n", ":2:1: not valid JSON: unexpected end of text");
  refused("{}x", ":1:3: not valid JSON: unexpected character");
  refused("{\"a\": 'b'}", ":1:7: not valid JSON: unexpected character");
  refused("{\"a\":\xff}", ":1:6: not valid JSON: unexpected character");
  refused(std::string("{}\n\0", 4), ":2:1: not valid JSON: a NUL byte");
  refused("{\"a\":\n [-1e999]}", ":2:3: not valid JSON: a number too large");
  refused(std::string(3'000'000, '['), ": is nested deeper than 100 levels");
  refused("{\"rope_theta\": 1,\n\"rope_theta\": 2}", ": duplicate key \"rope_theta\"");
  refused("{\"a\": [{\"\\u001b\": 1, \"\\u001b\": 1}]}", ": duplicate key \"\\u001b\"");
}

TEST_CASE("beside an index a single file is what is read, and that is said") {
  const TemporaryFolder folder;
  hf_llama().write(folder.file("hf"));
  const std::string out = folder.file("m.tinyloop");
  const ImportReport alone = import_checkpoint(folder.file("hf"), out, {});
  CHECK(alone.warnings.empty());
  write_file(folder.file("hf/model.safetensors.index.json"),
             R"({"weight_map":{"lm_head.weight":"other.safetensors"}})");
  const ImportReport both = import_checkpoint(folder.file("hf"), out, {});
  CHECK(both.fingerprint == alone.fingerprint);
  CHECK(both.warnings == std::vector<std::string>{
                             folder.file("hf") +
                             ": using model.safetensors, ignoring model.safetensors.index.json"});
}

}  // namespace
}  // namespace tinyloop
