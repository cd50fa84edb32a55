// SPDX-License-Identifier: Apache-2.0
// The main function of every doctest binary, compiled once.
// Not a test itself.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
