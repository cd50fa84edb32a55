// SPDX-License-Identifier: Apache-2.0
// Fuzz target for lib/files/tensor_file: any bytes give tensors that tile the data exactly, or a
// message. Not about files that cannot be opened, nor about what tensors mean.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_require.h"
#include "tinyloop/error.h"
#include "tinyloop/files/tensor_file.h"
#include "tinyloop/model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace tinyloop;

__extension__ using Wide =
    unsigned __int128;  // where a product of two 64-bit numbers cannot overflow

void require_message(const Error& error) {
  const std::string_view message = error.what();
  require(error.kind() == ErrorKind::data, "damage is an error of kind data");
  require(message.starts_with("it: "), "a message names the file");
  require(message.size() < 5000, "messages are bounded");
  require_plain(message);
}

template <typename T>
void touch(const TensorView& tensor) {
  try {
    const std::span<const T> values = tensor.as<T>();
    require(values.size_bytes() == tensor.bytes.size(), "a typed view covers the tensor");
    T sum = 0;
    for (const T value : values) sum = static_cast<T>(sum | value);
    require(values.empty() || (sum | values[0]) == sum, "every value can be read");
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::data, "a wrong type is an error of kind data");
  }
}

void check(std::span<const std::byte> file) {
  SafetensorsHeader header;
  try {
    header = parse_safetensors(file, "it");
  } catch (const Error& error) {
    require_message(error);
    return;
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const std::byte* next = file.data() + 8 + length;
  std::set<std::string_view> names;
  for (const TensorView& tensor : header.tensors) {
    require(tensor.bytes.data() == next, "tensors follow each other");
    next += tensor.bytes.size();
    Wide bytes = bytes_of(tensor.type);
    for (const std::int64_t n : tensor.shape) {
      require(n >= 0, "dimensions are not negative");
      bytes *= static_cast<Wide>(n);
      require(bytes >> 64 == 0, "products do not overflow");
    }
    require(bytes == tensor.bytes.size(), "sizes are those of type and shape");
    require(names.insert(tensor.name).second, "names differ");
    touch<std::uint8_t>(tensor);
    touch<std::uint16_t>(tensor);
    touch<std::int32_t>(tensor);
    touch<std::int64_t>(tensor);
  }
  require(next == file.data() + file.size(), "tensors reach to the end");
  // The configuration of a model is the one text of the metadata that is taken apart further.
  if (const auto config = header.metadata.find("config"); config != header.metadata.end()) {
    try {
      const ModelConfig parsed = config_from_json(config->second, "it");
      require(to_json(config_from_json(to_json(parsed), "it")) == to_json(parsed),
              "a configuration survives writing and reading");
    } catch (const Error& error) {
      require_message(error);
    }
  }
}

}  // namespace

// The first byte chooses: the rest is a file, or a header up to the first line end and then the
// data, so that the length in front is right and the header's inside is what is tried.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) {
    const std::size_t end = file.find('\n');
    const std::uint64_t length = std::min(end, file.size());
    if (end != std::string::npos) file.erase(end, 1);
    file.insert(0, 8, '\0');
    std::memcpy(file.data(), &length, 8);
  }
  // A copy of exactly this size, so that a sanitizer sees a byte beyond it.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(file.data()),
                                     reinterpret_cast<const std::byte*>(file.data()) + file.size());
  check(bytes);
  return 0;
}
