// SPDX-License-Identifier: Apache-2.0
// The scans that let most of a vocabulary be: their bounds against exact values on every
// instruction set, and the sampler that uses them against the same definition with full sorts.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tinyloop/random.h"
#include "tinyloop/sampling/candidate_scan.h"
#include "tinyloop/sampling/sampler.h"

namespace tinyloop {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Entry {
  TokenId id;
  double value;
  bool operator<(const Entry& other) const {
    return value > other.value || (value == other.value && id < other.id);
  }
};

// Top-p, min-p and Gumbel-max over all ids, every sum and every noise computed.
std::vector<TokenId> by_sorting(const SamplingOptions& options, const std::vector<float>& logits,
                                std::int64_t position, std::size_t count) {
  std::vector<Entry> entries;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    double value = logits[id];
    const auto bias = options.logit_bias.find(static_cast<TokenId>(id));
    if (bias != options.logit_bias.end()) value += bias->second;
    if (value != kNever) entries.push_back({static_cast<TokenId>(id), value});
  }
  std::sort(entries.begin(), entries.end());
  const double best = entries.front().value;
  const auto scaled = [&](const Entry& entry) {
    return (entry.value - best) / options.temperature;
  };
  if (options.top_p < 1.0) {
    double total = 0.0, sum = 0.0;
    for (const Entry& entry : entries) total += exact_exp(scaled(entry));
    std::size_t kept = 0;
    while (kept < entries.size()) {
      sum += exact_exp(scaled(entries[kept++]));
      if (sum >= options.top_p * total) break;
    }
    entries.resize(kept);
  }
  if (options.min_p > 0.0) {
    std::erase_if(entries,
                  [&](const Entry& entry) { return exact_exp(scaled(entry)) < options.min_p; });
  }
  for (Entry& entry : entries) {
    entry.value = scaled(entry) + gumbel(options.seed, position, entry.id);
  }
  std::sort(entries.begin(), entries.end());
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < std::min(count, entries.size()); ++i) ids.push_back(entries[i].id);
  return ids;
}

TEST_CASE("words of noise are Philox's, and no noise exceeds its bound") {
  for (const ScanSet set : available_scan_sets()) {
    for (const std::uint64_t seed : {0ull, 7ull, 0xffffffffffffffffull}) {
      for (const std::int64_t position : {0ll, 12345ll, 1ll << 33}) {
        for (const std::uint32_t first : {0u, 64u, 49088u, 16777152u}) {
          std::array<std::uint32_t, kScanBlock> high{};
          noise_high_words(set, seed, position, first, high);
          for (std::uint32_t i = 0; i < kScanBlock; ++i) {
            const auto place = static_cast<std::uint64_t>(position);
            const auto words =
                philox(seed, {static_cast<std::uint32_t>(place),
                              static_cast<std::uint32_t>(place >> 32), first + i, 1});
            CHECK(high[i] == words[0]);
            CHECK(gumbel(seed, position, static_cast<std::int32_t>(first + i)) <=
                  noise_bound(high[i]));
          }
        }
      }
    }
  }
  // At the edges of the words, whatever the second one is.
  for (const std::uint32_t high : {0u, 1u, 2u, 0x7fffffffu, 0x80000000u, 0xfffffff0u, 0xfffffffcu,
                                   0xfffffffdu, 0xfffffffeu, 0xffffffffu}) {
    for (const std::uint32_t low : {0u, 0x80000000u, 0xffffffffu}) {
      CHECK(-exact_log(-exact_log(uniform(high, low))) <= noise_bound(high));
    }
  }
}

TEST_CASE("weights are the exponentials, on every instruction set") {
  std::mt19937_64 generator(3);
  std::vector<double> values(1000), weights(1000);
  for (const double range : {1e-6, 1.0, 30.0, 700.0}) {
    for (double& value : values) {
      value = -range * static_cast<double>(generator()) * 0x1p-64;
    }
    values[17] = 0.0;
    for (const ScanSet set : available_scan_sets()) {
      approximate_weights(set, values, 0.0, 1.0, weights);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double exact = std::exp(values[i]);
        CHECK(std::fabs(weights[i] - exact) <= 1e-12 * exact);
      }
    }
  }
}

TEST_CASE("the sampler over a whole vocabulary is its definition with full sorts") {
  std::mt19937_64 generator(11);
  const auto number = [&] { return static_cast<double>(generator() >> 11) * 0x1p-53; };
  const auto normal = [&] {
    return std::sqrt(-2.0 * std::log(number() + 1e-300)) * std::cos(6.283185307179586 * number());
  };
  for (int round = 0; round < 1500; ++round) {
    const std::size_t sizes[] = {1, 2, 63, 64, 65, 300, 5000};
    std::vector<float> logits(sizes[generator() % 7]);
    const double spread[] = {0.0, 1e-6, 0.5, 3.0, 10.0, 300.0, 1e30};
    const double width = spread[generator() % 7];
    const bool coarse = generator() % 3 == 0;  // many equal ones
    for (float& logit : logits) {
      logit = static_cast<float>(width * normal());
      if (coarse) logit = std::round(logit * 2.0f) / 2.0f;
    }
    SamplingOptions options;
    options.top_k = generator() % 2 == 0 ? 0 : static_cast<std::int64_t>(logits.size());
    const double temperatures[] = {1.0, 0.7, 1.7, 0.01, 50.0, 1e-30, 1e30};
    options.temperature = temperatures[generator() % 7];
    const double shares[] = {1.0, 1.0, 0.9, 0.5, 0.999, 1e-9, 0.999999999999};
    options.top_p = shares[generator() % 7];
    const double least[] = {0.0, 0.0, 0.0, 0.05, 1e-9, 1.0, 1e-310};
    options.min_p = least[generator() % 7];
    options.seed = generator();
    if (generator() % 4 == 0) {
      for (int n = 0; n < 3; ++n) {
        const auto id = static_cast<TokenId>(generator() % logits.size());
        options.logit_bias[id] = generator() % 2 == 0 ? kNever : 20.0 * normal();
      }
      if (options.logit_bias.size() >= logits.size()) options.logit_bias.clear();
    }
    const auto position = static_cast<std::int64_t>(generator() % 100000);
    const std::size_t count = generator() % 3 == 0 ? 1 + generator() % 6 : 1;
    CAPTURE(round);
    CAPTURE(logits.size());
    CAPTURE(width);
    CAPTURE(options.temperature);
    CAPTURE(options.top_p);
    CAPTURE(options.min_p);
    const Sampler sampler(options, static_cast<std::int64_t>(logits.size()));
    CHECK(sampler.ranked(logits, {}, position, count) ==
          by_sorting(options, logits, position, count));
  }
}

}  // namespace
}  // namespace tinyloop
