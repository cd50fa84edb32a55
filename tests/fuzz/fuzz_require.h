// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets require of all that they try. Not what a format promises.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tinyloop {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

inline void require_plain(std::string_view message) {
  for (const char c : message) {
    require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "messages cannot steer a terminal");
  }
}

}  // namespace tinyloop
