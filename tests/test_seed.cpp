// SPDX-License-Identifier: Apache-2.0
#include "test_seed.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace tinyloop {

std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("TL_TEST_SEED");
    const std::string text = given != nullptr ? given : "1";
    const std::uint64_t value = text == "random" ? std::random_device()() : std::stoull(text);
    std::cout << "TL_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

}  // namespace tinyloop
