// SPDX-License-Identifier: Apache-2.0
// The seed of every random test in a program.
#pragma once

#include <cstdint>

namespace tinyloop {

// TL_TEST_SEED of the environment, where "random" asks for a fresh one; without it 1, so that a
// change is judged by the tests that the change before it passed. Printed once. Throws
// std::invalid_argument or std::out_of_range for a seed that is neither.
std::uint64_t test_seed();

}  // namespace tinyloop
