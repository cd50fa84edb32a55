// SPDX-License-Identifier: Apache-2.0
// Fuzz target for kv/snapshot: any bytes give a snapshot whose parts agree with each other, or a
// message. Not about which entry a pool takes, nor about what keys and values mean.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/fuzz_require.h"
#include "tinyloop/device/kv_tile.h"
#include "tinyloop/error.h"
#include "tinyloop/kv/snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace tinyloop;

// Makes the checksum of the file's head right, so that what it guards is tried as well.
void mend_checksum(std::string& file) {
  constexpr std::string_view kKey = "\"checksum\":\"";
  std::size_t head = 0;
  try {
    for (const TensorView& tensor :
         parse_safetensors(std::as_bytes(std::span(file)), "it").tensors) {
      if (tensor.name == "kv") {
        head = static_cast<std::size_t>(reinterpret_cast<const char*>(tensor.bytes.data()) -
                                        file.data());
      }
    }
  } catch (const Error&) {
    return;
  }
  const std::size_t key = file.find(kKey);
  if (key == std::string::npos || key + kKey.size() + 16 > head) return;
  file.replace(key + kKey.size(), 16, 16, '0');
  file.replace(key + kKey.size(), 16, fmt::format("{:016x}", XXH3_64bits(file.data(), head)));
}

void check(const Snapshot& snapshot) {
  const SnapshotShape& shape = snapshot.shape();
  require(snapshot.length() > 0, "there are ids");
  require(shape.planes > 0 &&
              shape.planes * shape.plane_bytes() == static_cast<std::int64_t>(snapshot.kv().size()),
          "the planes have their size");
  require((shape.first_tile + shape.tiles - 1) * kTile < snapshot.length() &&
              (shape.first_tile + shape.tiles) * kTile >= snapshot.length(),
          "the last tile holds the last position");
  const std::size_t values = snapshot.states().size();
  require(values % snapshot.ids().size() == 0, "each id has a state");
  require(snapshot.injected().empty() || snapshot.injected().size() == values,
          "each id has what is kept");
  require(!snapshot.serves(0) && !snapshot.serves(snapshot.length() + 1), "it serves its own ids");
  std::int64_t sum = 0;
  for (const TokenId id : snapshot.ids()) sum += id;
  for (const float x : snapshot.states()) sum += x > 0.0f ? 1 : 0;
  require(sum == sum + snapshot.file_bytes() - snapshot.file_bytes(), "all of it can be read");
  try {
    snapshot.verify_all();
  } catch (const DamagedSnapshot&) {
  }
}

}  // namespace

// The first byte chooses whether the checksum is left as it is; the rest is the file.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) mend_checksum(file);
  const int memory = ::memfd_create("snapshot", MFD_CLOEXEC);
  require(
      memory >= 0 && ::write(memory, file.data(), file.size()) == static_cast<ssize_t>(file.size()),
      "the file can be made");
  try {
    check(*Snapshot::open(fmt::format("/proc/self/fd/{}", memory)));
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::data || error.kind() == ErrorKind::io,
            "damage is an error of kind data or io");
    require_plain(error.what());
  }
  ::close(memory);
  return 0;
}
