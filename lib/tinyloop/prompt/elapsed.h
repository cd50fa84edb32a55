// SPDX-License-Identifier: Apache-2.0
// How long something took, for statistics. Nothing that is computed depends on it.
#pragma once

#include <chrono>

namespace tinyloop {

inline double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace tinyloop
