// SPDX-License-Identifier: Apache-2.0
// What a device can do at most: pieces of work that only read or only multiply, to be timed beside
// the engine's. Timing them is the caller's business.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tinyloop {

enum class Limit {
  memory,  // bytes read from beyond the last-level cache
  cache,   // bytes read from the cache nearest to a core that holds a tile of weights (L2)
  floats,  // f32 operations; a multiply-add is two
  int8,    // the same of int8 dot products
};

constexpr std::string_view name_of(Limit limit) {
  constexpr std::string_view kNames[] = {"memory", "cache", "floats", "int8"};
  return kNames[static_cast<std::size_t>(limit)];
}

struct LimitProbe {
  Limit limit = Limit::memory;
  double amount = 0.0;        // bytes or operations of one run, a few milliseconds' worth
  std::function<void()> run;  // on all threads of the device
  std::string pattern;        // how it is reached: the fastest of several ways on this machine
};

}  // namespace tinyloop
