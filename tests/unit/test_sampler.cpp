// SPDX-License-Identifier: Apache-2.0
// Tests lib/sampling/sampler against a plain model in long double, by its distribution, and at its
// edges. Not the logits it is fed with.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "tinyloop/error.h"
#include "tinyloop/random.h"
#include "tinyloop/sampling/sampler.h"

using namespace tinyloop;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

long double reference_gumbel(std::uint64_t seed, std::int64_t position, TokenId id) {
  const auto words =
      philox(seed, {static_cast<std::uint32_t>(position & 0xffffffff),
                    static_cast<std::uint32_t>(position >> 32), static_cast<std::uint32_t>(id), 1});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 20) + (words[1] >> 12);
  const long double u = (static_cast<long double>(bits) + 0.5L) / 4503599627370496.0L;
  return -std::log(-std::log(u));
}

// The definition in sampler.h, step by step, with full sorts and libm.
TokenId reference_pick(const SamplingOptions& options, const std::vector<float>& logits,
                       const std::vector<TokenId>& prompt, const std::vector<TokenId>& continuation,
                       std::int64_t position) {
  std::vector<long double> value(logits.begin(), logits.end());
  for (const auto& [id, bias] : options.logit_bias) value[static_cast<std::size_t>(id)] += bias;
  std::set<TokenId> seen(prompt.begin(), prompt.end());
  seen.insert(continuation.begin(), continuation.end());
  for (const TokenId id : seen) {
    long double& v = value[static_cast<std::size_t>(id)];
    v = v > 0 ? v / options.repetition_penalty : v * options.repetition_penalty;
  }
  for (const TokenId id : std::set<TokenId>(continuation.begin(), continuation.end())) {
    value[static_cast<std::size_t>(id)] -= options.presence_penalty;
  }
  for (const TokenId id : continuation) {
    value[static_cast<std::size_t>(id)] -= options.frequency_penalty;
  }

  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return value[static_cast<std::size_t>(a)] > value[static_cast<std::size_t>(b)];
  });
  while (value[static_cast<std::size_t>(order.back())] == -kInfinity) order.pop_back();
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  }

  std::vector<long double> probability;
  for (const TokenId id : order) {
    probability.push_back(
        std::exp((value[static_cast<std::size_t>(id)] - value[static_cast<std::size_t>(order[0])]) /
                 options.temperature));
  }
  const long double total = std::accumulate(probability.begin(), probability.end(), 0.0L);
  std::size_t kept = 0;
  for (long double sum = 0;
       kept < order.size() && (options.top_p == 1 || sum / total < options.top_p); ++kept) {
    sum += probability[kept];
  }
  TokenId best = -1;
  long double best_score = -kInfinity;
  for (std::size_t i = 0; i < kept; ++i) {
    if (probability[i] < options.min_p * probability[0]) continue;
    const long double score = value[static_cast<std::size_t>(order[i])] / options.temperature +
                              reference_gumbel(options.seed, position, order[i]);
    if (score > best_score || (score == best_score && order[i] < best)) {
      best_score = score;
      best = order[i];
    }
  }
  return best;
}

TokenId pick(const SamplingOptions& options, const std::vector<float>& logits,
             std::int64_t position = 0, const std::vector<TokenId>& prompt = {},
             const std::vector<TokenId>& continuation = {}) {
  return Sampler(options, static_cast<std::int64_t>(logits.size()))
      .pick(logits, {prompt, continuation}, position);
}

// Options that change nothing but what a test sets.
SamplingOptions plain() {
  SamplingOptions options;
  options.top_k = 0;
  return options;
}

std::string message_of(const SamplingOptions& options, std::int64_t vocab = 64) {
  try {
    validate(options, vocab);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("pick equals the plain model for random options, logits and histories") {
  std::mt19937_64 random(11);
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto integer = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::set<TokenId> picked;
  for (int run = 0; run < 4000; ++run) {
    const int vocab = integer(1, 80);
    std::vector<float> logits;
    const bool ties = integer(0, 1) == 1;
    for (int i = 0; i < vocab; ++i) {
      logits.push_back(ties ? static_cast<float>(integer(-2, 2)) : static_cast<float>(real(-6, 6)));
    }
    std::vector<TokenId> prompt, continuation;
    for (int i = integer(0, 6); i > 0; --i) prompt.push_back(integer(0, vocab - 1));
    for (int i = integer(0, 6); i > 0; --i) continuation.push_back(integer(0, vocab - 1));
    SamplingOptions options;
    options.temperature = integer(0, 4) == 0 ? 0 : real(0.05, 3);
    options.top_k = integer(0, 1) == 0 ? 0 : integer(1, vocab + 3);
    if (integer(0, 1) == 0) options.top_p = real(0.01, 1);
    if (integer(0, 1) == 0) options.min_p = real(0, 1);
    if (integer(0, 1) == 0) options.repetition_penalty = real(0.5, 2);
    if (integer(0, 1) == 0) options.presence_penalty = real(-2, 2);
    if (integer(0, 1) == 0) options.frequency_penalty = real(-2, 2);
    if (integer(0, 1) == 0) {
      options.logit_bias[integer(0, vocab - 1)] = real(-3, 3);
      if (vocab > 2) options.logit_bias[integer(0, vocab - 2)] = -kInfinity;
    }
    if (options.logit_bias.size() == static_cast<std::size_t>(vocab)) options.logit_bias.clear();
    options.seed = random();
    const std::int64_t position = integer(0, 3) == 0 ? (std::int64_t{1} << 33) + run : run;
    const TokenId expected = reference_pick(options, logits, prompt, continuation, position);
    REQUIRE(pick(options, logits, position, prompt, continuation) == expected);
    picked.insert(expected);
  }
  CHECK(picked.size() > 40);  // not always the same few
}

TEST_CASE("pick from the best logits alone equals pick from all of them") {
  std::mt19937_64 engine(31);
  constexpr std::int64_t kVocab = 60;
  int compared = 0;
  for (int round = 0; round < 3000; ++round) {
    SamplingOptions options;
    options.temperature = round % 5 == 0 ? 0.0 : 0.1 + 0.3 * static_cast<double>(engine() % 8);
    options.top_k = static_cast<std::int64_t>(engine() % 64);
    if (engine() % 2 == 0) options.top_p = 0.1 + 0.1 * static_cast<double>(engine() % 9);
    if (engine() % 2 == 0) options.min_p = 0.05 * static_cast<double>(engine() % 8);
    options.seed = engine();
    std::vector<float> logits;
    for (int i = 0; i < kVocab; ++i) {  // with many ties
      logits.push_back(static_cast<float>(engine() % 12) * 0.5f - 3.0f);
    }
    const Sampler sampler(options, kVocab);
    const std::int64_t needed = sampler.candidates_needed();
    CHECK((needed == 0) ==
          (options.temperature > 0.0 && (options.top_k == 0 || options.top_k >= kVocab)));
    if (needed == 0) continue;
    std::vector<TokenLogit> best;
    for (TokenId id = 0; id < kVocab; ++id) {
      best.push_back({id, logits[static_cast<std::size_t>(id)]});
    }
    std::stable_sort(best.begin(), best.end(),
                     [](const TokenLogit& a, const TokenLogit& b) { return a.logit > b.logit; });
    best.resize(static_cast<std::size_t>(needed));
    CHECK(sampler.pick(best, round) == sampler.pick(logits, {}, round));
    ++compared;
  }
  CHECK(compared > 1000);
}

TEST_CASE("all logits are needed where something else than their order counts") {
  const auto needed = [](auto change) {
    SamplingOptions options;
    change(options);
    return Sampler(options, 100).candidates_needed();
  };
  CHECK(needed([](SamplingOptions&) {}) == 50);
  CHECK(needed([](SamplingOptions& o) { o.temperature = 0.0; }) == 1);
  CHECK(needed([](SamplingOptions& o) { o.top_k = 0; }) == 0);
  CHECK(needed([](SamplingOptions& o) { o.top_k = 100; }) == 0);
  CHECK(needed([](SamplingOptions& o) { o.logit_bias[3] = 1.0; }) == 0);
  CHECK(needed([](SamplingOptions& o) { o.repetition_penalty = 1.1; }) == 0);
  CHECK(needed([](SamplingOptions& o) { o.presence_penalty = 0.1; }) == 0);
  CHECK(needed([](SamplingOptions& o) { o.frequency_penalty = 0.1; }) == 0);
}

TEST_CASE("pick follows the softmax of logits over temperature") {
  const std::vector<float> logits = {0.5f, -1.0f, 2.0f, 1.0f, 0.0f};
  SamplingOptions options = plain();
  options.temperature = 0.7;
  options.seed = 5;
  const Sampler sampler(options, 5);
  constexpr int kCount = 40000;
  std::vector<int> counts(5);
  for (int position = 0; position < kCount; ++position) {
    ++counts[static_cast<std::size_t>(sampler.pick(logits, {}, position))];
  }
  double total = 0;
  for (const float logit : logits) total += std::exp(logit / 0.7);
  for (std::size_t id = 0; id < 5; ++id) {
    const double expected = std::exp(logits[id] / 0.7) / total;
    const double deviation = std::sqrt(expected * (1 - expected) / kCount);
    CHECK(std::fabs(counts[id] / double{kCount} - expected) < 5 * deviation);
  }
}

TEST_CASE("ties go to the lowest id and top-k keeps exactly k (B-53, U-17)") {
  const std::vector<float> equal(20, 1.5f);
  SamplingOptions options = plain();
  options.temperature = 0;
  CHECK(pick(options, equal) == 0);
  CHECK(pick(options, {0, 3, 1, 3, 2}) == 1);
  CHECK(pick(options, {-0.0f, 0.0f}) == 0);

  options.temperature = 1;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    options.seed = seed;
    options.top_k = 1;
    CHECK(pick(options, {0, 3, 1, 3, 2}) == 1);
  }
  options.top_k = 3;
  std::set<TokenId> picked;
  for (int position = 0; position < 500; ++position) picked.insert(pick(options, equal, position));
  CHECK(picked == std::set<TokenId>{0, 1, 2});
  // The best alone, then two of the four equal ones.
  picked.clear();
  for (int position = 0; position < 500; ++position) {
    picked.insert(pick(options, {1, 1, 0, 1, 2, 1}, position));
  }
  CHECK(picked == std::set<TokenId>{0, 1, 4});
}

TEST_CASE("top-p keeps the smallest sufficient set, among equals the lowest ids") {
  SamplingOptions options = plain();
  const auto support = [&](const std::vector<float>& logits) {
    std::set<TokenId> picked;
    for (int position = 0; position < 2000; ++position) {
      picked.insert(pick(options, logits, position));
    }
    return picked;
  };
  const float ln2 = 0.6931472f;
  const std::vector<float> halves = {0, 3 * ln2, 2 * ln2, ln2};  // 1/15, 8/15, 4/15, 2/15
  options.top_p = 0.5;
  CHECK(support(halves) == std::set<TokenId>{1});
  options.top_p = 0.55;
  CHECK(support(halves) == std::set<TokenId>{1, 2});
  options.top_p = 0.9;
  CHECK(support(halves) == std::set<TokenId>{1, 2, 3});
  options.top_p = 1e-300;
  CHECK(support(halves) == std::set<TokenId>{1});
  options.top_p = 0.5;
  CHECK(support({1, 1, 1, 1}) == std::set<TokenId>{0, 1});
  // The share counts among what top-k left: 8/12, 4/12.
  options.top_k = 2;
  options.top_p = 0.65;
  CHECK(support(halves) == std::set<TokenId>{1});
  // Rounding may leave the sum short of 1: all stay.
  options.top_k = 0;
  options.top_p = 1.0 - 1e-16;
  CHECK(support(halves) == std::set<TokenId>{0, 1, 2, 3});
}

TEST_CASE("min-p keeps what has this share of the best probability") {
  SamplingOptions options = plain();
  const std::vector<float> logits = {0, 2, 1.2f};
  std::set<TokenId> picked;
  options.min_p = 0.4;  // exp(-0.8) = 0.449, exp(-2) = 0.135
  for (int position = 0; position < 500; ++position) picked.insert(pick(options, logits, position));
  CHECK(picked == std::set<TokenId>{1, 2});
  options.min_p = 1;
  picked.clear();
  for (int position = 0; position < 100; ++position) {
    picked.insert(pick(options, {2, 2, 1}, position));
  }
  CHECK(picked == std::set<TokenId>{0, 1});
}

TEST_CASE("no temperature overflows (B-51)") {
  const std::vector<float> logits = {-3e38f, 3e38f, 1.0f, 3e38f};
  for (const double temperature : {5e-324, 1e-308, 1e-30, 1.0}) {
    SamplingOptions options = plain();
    options.temperature = temperature;
    options.top_p = 0.9;
    for (int position = 0; position < 20; ++position) {
      CHECK(pick(options, logits, position) % 2 == 1);
    }
  }
  SamplingOptions options = plain();
  options.temperature = 1e308;
  std::set<TokenId> picked;
  for (int position = 0; position < 200; ++position) picked.insert(pick(options, logits, position));
  CHECK(picked.size() == 4);
}

TEST_CASE("extreme penalties and biases keep logits comparable") {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.repetition_penalty = 1e-300;
  CHECK(pick(options, {3e38f, 1, 1}, 0, {0}) == 0);
  options.repetition_penalty = 1e300;
  CHECK(pick(options, {-3e38f, -3e38f, -3.1e38f}, 0, {0}, {1}) == 2);
  options = plain();
  options.temperature = 0;
  options.frequency_penalty = 1e308;
  CHECK(pick(options, {5, 4}, 0, {}, {0, 0, 0, 0}) == 1);
  options.frequency_penalty = 0;
  options.logit_bias = {{0, -kInfinity}, {1, 1e308}};
  options.repetition_penalty = 2;
  CHECK(pick(options, {100, -50, 50}, 0, {0, 1}) == 1);
  // Equal values at the limit still compete, and "never" survives every penalty.
  options = plain();
  options.repetition_penalty = 1e-300;
  std::set<TokenId> picked;
  for (int position = 0; position < 100; ++position) {
    picked.insert(pick(options, {3e38f, 3e38f, 1}, position, {0, 1}));
  }
  CHECK(picked == std::set<TokenId>{0, 1});
  options.temperature = 1e308;
  options.repetition_penalty = options.presence_penalty = options.frequency_penalty = 2;
  options.logit_bias = {{0, -kInfinity}};
  picked.clear();
  for (int position = 0; position < 100; ++position) {
    picked.insert(pick(options, {1, 1, 1}, position, {0}, {0}));
  }
  CHECK(picked == std::set<TokenId>{1, 2});
}

TEST_CASE("penalties count what they say") {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.repetition_penalty = 2;  // 6 -> 3 and -1 -> -2, once however often the id is there
  CHECK(pick(options, {6, 3.5f}, 0, {0, 0, 0}) == 1);
  CHECK(pick(options, {6, 2.5f}, 0, {0, 0, 0}) == 0);
  CHECK(pick(options, {-1, -1.9f}, 0, {}, {0}) == 1);
  CHECK(pick(options, {-1, -2.1f}, 0, {}, {0}) == 0);
  options.repetition_penalty = 1;
  options.presence_penalty = 1;  // not the prompt, and once
  CHECK(pick(options, {2, 1.5f}, 0, {0}) == 0);
  CHECK(pick(options, {2, 1.5f}, 0, {}, {0}) == 1);
  CHECK(pick(options, {2, 0.5f}, 0, {}, {0, 0, 0}) == 0);
  options.presence_penalty = 0;
  options.frequency_penalty = 1;
  CHECK(pick(options, {2, 0.5f}, 0, {}, {0}) == 0);
  CHECK(pick(options, {2, 0.5f}, 0, {}, {0, 1, 0}) == 0);
  CHECK(pick(options, {2, 0.5f}, 0, {}, {0, 0}) == 1);
  options.frequency_penalty = 0;
  options.logit_bias = {{1, 1.75}};
  CHECK(pick(options, {2, 0.5f}) == 1);
}

TEST_CASE("logits that are not finite stop the run and name the position (B-54)") {
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      for (std::size_t place = 0; place < 3; ++place) {
        std::vector<float> logits = {1, 2, 3};
        logits[place] = wrong;
        SamplingOptions options;
        options.temperature = temperature;
        try {
          pick(options, logits, 17);
          FAIL("must throw");
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::device);
          CHECK(std::string(error.what()).starts_with("logits are not finite at position 17"));
        }
        CHECK_THROWS_AS(log_probability(logits, 0), Error);
      }
    }
  }
  SamplingOptions options;
  options.logit_bias = {{0, -kInfinity}, {1, -kInfinity}};
  CHECK_THROWS_AS(pick(options, {1, 2}), Error);
}

TEST_CASE("seeds: 0 is ordinary, each seed and position has its own noise (B-52)") {
  SamplingOptions options = plain();
  const std::vector<float> flat(64, 0.0f);
  const auto stream = [&](std::uint64_t seed, std::int64_t first) {
    options.seed = seed;
    std::vector<TokenId> ids;
    for (std::int64_t position = first; position < first + 32; ++position) {
      ids.push_back(pick(options, flat, position));
    }
    return ids;
  };
  CHECK(stream(0, 0) == stream(0, 0));
  CHECK(stream(0, 0) != stream(1, 0));
  CHECK(stream(0, 0) != stream(std::uint64_t{1} << 32, 0));
  CHECK(stream(0, 0) != stream(0, 32));
  const std::vector<TokenId> zero = stream(0, 0);
  CHECK(std::set<TokenId>(zero.begin(), zero.end()).size() > 10);
}

TEST_CASE("validate names option and value") {
  CHECK(message_of({}) == "");
  const auto with = [](auto set) {
    SamplingOptions options;
    set(options);
    return message_of(options);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(with([](auto& o) { o.temperature = -0.5; }) ==
        "`temperature`: -0.5 is not 0 or a positive number");
  CHECK(with([&](auto& o) { o.temperature = nan; }).starts_with("`temperature`: nan"));
  CHECK(with([](auto& o) { o.temperature = kInfinity; }).starts_with("`temperature`: inf"));
  CHECK(with([](auto& o) { o.top_k = -1; }).starts_with("`top_k`: -1"));
  CHECK(with([](auto& o) { o.top_p = 0; }).starts_with("`top_p`: 0"));
  CHECK(with([](auto& o) { o.top_p = 1.01; }).starts_with("`top_p`: 1.01"));
  CHECK(with([&](auto& o) { o.top_p = nan; }).starts_with("`top_p`: nan"));
  CHECK(with([](auto& o) { o.min_p = -0.1; }).starts_with("`min_p`: -0.1"));
  CHECK(with([](auto& o) { o.min_p = 1.1; }).starts_with("`min_p`: 1.1"));
  CHECK(with([](auto& o) { o.repetition_penalty = 0; }).starts_with("`repetition_penalty`: 0"));
  CHECK(with([](auto& o) {
          o.repetition_penalty = kInfinity;
        }).starts_with("`repetition_penalty`: inf"));
  CHECK(with([&](auto& o) { o.presence_penalty = nan; }).starts_with("`presence_penalty`: nan"));
  CHECK(with([](auto& o) {
          o.frequency_penalty = -kInfinity;
        }).starts_with("`frequency_penalty`: -inf"));
  CHECK(with([](auto& o) { o.logit_bias[64] = 1; }) == "`logit_bias`: id 64 is not below 64");
  CHECK(with([](auto& o) { o.logit_bias[-1] = 1; }) == "`logit_bias`: id -1 is negative");
  CHECK(with([](auto& o) { o.logit_bias[3] = kInfinity; }).starts_with("`logit_bias`: inf"));
  CHECK(with([&](auto& o) { o.logit_bias[3] = nan; }).starts_with("`logit_bias`: nan"));
  CHECK(with([](auto& o) { o.logit_bias[63] = -kInfinity; }) == "");
}

TEST_CASE("log_probability is the logarithm of the softmax") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(1000);
  for (float& logit : logits) logit = normal(random);
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  for (const TokenId id : {0, 1, 999}) {
    const long double expected = logits[static_cast<std::size_t>(id)] - std::log(sum);
    CHECK(log_probability(logits, id) ==
          doctest::Approx(static_cast<double>(expected)).epsilon(1e-14));
  }
  CHECK(log_probability(std::vector<float>{42}, 0) == 0.0);
  CHECK(log_probability(std::vector<float>{3e38f, -3e38f}, 0) == 0.0);
  CHECK(log_probability(std::vector<float>{3e38f, 3e38f}, 1) ==
        doctest::Approx(-std::log(2.0)).epsilon(1e-15));
}
