// SPDX-License-Identifier: Apache-2.0
// Joins the parts of a coalition.
#include "tinyloop/files/coalition.h"

#include <fmt/format.h>

#include "tinyloop/files/sha256.h"

namespace tinyloop {

std::string coalition_name(std::string_view snapshot, std::span<const std::string> segments,
                           const std::vector<bool>& present) {
  std::string bytes(snapshot);
  for (std::size_t i = 0; i + 1 < segments.size(); ++i) {
    bytes += segments[i];
    bytes += present[i] ? '\x01' : '\0';
  }
  return sha256_hex(bytes).substr(0, 16);
}

std::string coalition_parts(std::string_view snapshot, std::span<const std::string> segments,
                            const std::vector<bool>& present) {
  std::string text = fmt::format("coalition {}:{}", snapshot.size(), snapshot);
  for (std::size_t i = 0; i + 1 < segments.size(); ++i) {
    text += fmt::format(" {}{}:{}", present[i] ? '+' : '-', segments[i].size(), segments[i]);
  }
  return text;
}

}  // namespace tinyloop
