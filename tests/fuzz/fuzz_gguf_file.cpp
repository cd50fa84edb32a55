// SPDX-License-Identifier: Apache-2.0
// Fuzz target for GGUF files: any bytes give metadata that can be asked, tensors inside the file
// and a vocabulary and a configuration that can be used, or a message.
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_require.h"
#include "tinyloop/error.h"
#include "tinyloop/files/gguf_file.h"
#include "tinyloop/model/gguf_blocks.h"
#include "tinyloop/model/gguf_families.h"
#include "tinyloop/text/gguf_vocabulary.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace tinyloop;

// What may fail, and how.
template <typename Function>
void attempt(Function function) {
  try {
    function();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(error.kind() == ErrorKind::data, "damage is an error of kind data");
    require(message.starts_with("it: "), "a message names the file");
    require(message.size() < 5000, "messages are bounded");
    require_plain(message);
  }
}

void ask(const GgufMetadata& metadata) {
  for (const auto& [key, value] : metadata.values()) {
    const std::string name = key;
    metadata.is_set(name);
    attempt([&] { metadata.flag(name); });
    attempt([&] { metadata.integer(name); });
    attempt([&] { metadata.number(name); });
    attempt([&] { metadata.text(name); });
    attempt([&] { metadata.texts(name); });
    attempt([&] { metadata.integers(name); });
    attempt([&] { metadata.numbers(name); });
    attempt([&] { metadata.refuse(name, "as it is"); });
  }
}

void check(std::span<const std::byte> file) {
  const GgufHeader header = parse_gguf(file, "it");
  ask(header.metadata);
  std::set<std::string_view> names;
  const std::byte* next = file.data();
  for (const GgufTensor& tensor : header.tensors) {
    require(names.insert(tensor.name).second, "names differ");
    require(tensor.bytes.data() >= next, "tensors follow each other");
    next = tensor.bytes.data() + tensor.bytes.size();
    require(next <= file.data() + file.size(), "tensors are inside the file");
    const auto blocks = tensor.bytes.size() / static_cast<std::size_t>(block_bytes(tensor.type));
    require(blocks * static_cast<std::size_t>(block_bytes(tensor.type)) == tensor.bytes.size(),
            "tensors are whole blocks");
    std::vector<float> values(blocks * static_cast<std::size_t>(block_values(tensor.type)));
    read_blocks(tensor.type, tensor.bytes, values);
  }
  attempt([&] {
    const std::string bytes = gguf_vocabulary(header.metadata).serialize();
    Vocabulary::parse(std::as_bytes(std::span(bytes)), "it");
  });
  attempt([&] {
    const auto find = [&](std::string_view name) -> const GgufTensor* {
      for (const GgufTensor& tensor : header.tensors) {
        if (tensor.name == name) return &tensor;
      }
      return nullptr;
    };
    validate(gguf_config(gguf_family_of(header.metadata), header.metadata, find), "it");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that a sanitizer sees a byte beyond it.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  attempt([&] { check(bytes); });
  return 0;
}
