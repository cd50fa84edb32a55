// SPDX-License-Identifier: Apache-2.0
// Sums, perplexities and divergences at their limits. What is scored is tested with the engine.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tinyloop/measure/divergence.h"
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

TEST_CASE("divergence is the mean of log p - log q under p, in nats") {
  const std::vector<float> even = {0.5f, 0.5f, 0.5f, 0.5f};
  CHECK(divergence(even, even) == 0.0);
  // p = 1/2, 1/4, 1/8, 1/8 and q uniform: log 4 less the entropy of p, 7/4 log 2.
  const auto log2 = static_cast<float>(std::log(2.0));
  const std::vector<float> uneven = {7.0f, 7.0f - log2, 7.0f - 2 * log2, 7.0f - 2 * log2};
  CHECK(divergence(uneven, even) == doctest::Approx(0.25 * std::log(2.0)).epsilon(1e-6));
  // The other way round: sum of 1/4 log(1/4 / q).
  CHECK(divergence(even, uneven) == doctest::Approx(0.25 * std::log(2.0)).epsilon(1e-6));
  // Certainty about the wrong id costs its distance; about the right one nothing.
  const std::vector<float> first = {1000.0f, 0.0f}, second = {0.0f, 1000.0f};
  CHECK(divergence(first, second) == doctest::Approx(1000.0));
  CHECK(divergence(first, first) == 0.0);
}

TEST_CASE("an agreement is of the positions that it has seen, of none it says nothing") {
  Agreement agreement;
  CHECK(std::isnan(agreement.mean_divergence()));
  CHECK(std::isnan(agreement.same_best_share()));
  agreement = {4, 2.0, 1};
  CHECK(agreement.mean_divergence() == 0.5);
  CHECK(agreement.same_best_share() == 0.25);
}

}  // namespace
}  // namespace tinyloop
