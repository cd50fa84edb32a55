// SPDX-License-Identifier: Apache-2.0
// Sums and perplexities at their limits. What is scored is tested with the engine.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tinyloop/measure/score.h"

namespace tinyloop {
namespace {

TEST_CASE("perplexity is exp of the mean, infinite beyond the range of doubles, none for nothing") {
  CHECK(Score{{-1.0, -3.0}}.perplexity() == doctest::Approx(std::exp(2.0)));
  CHECK(Score{{0.0}}.perplexity() == 1.0);
  CHECK(std::isfinite(Score{{-709.78}}.perplexity()));
  CHECK(Score{{-2097.0}}.perplexity() == std::numeric_limits<double>::infinity());
  CHECK(Score{{-2096602.0}}.perplexity() == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(Score{}.perplexity()));
}

}  // namespace
}  // namespace tinyloop
