// SPDX-License-Identifier: Apache-2.0
// Tries scales for a group of 32 weights: the sum of squares has many local minima, and a look-up
// is cheap.
#include "tinyloop/model/codebook_search.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tinyloop/model/codebook.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

constexpr int kEntries = 16;
constexpr float kLongest = 63.0f;  // magnitude of the codebook's longest entry
constexpr float kLeastHalf = 0x1p-24f;
constexpr int kCells = 128;  // of size 1, from -64 on

// The nearest entry in one look-up and one comparison: a cell holds at most one middle between two
// entries.
struct NearestEntry {
  std::array<std::uint8_t, kCells> lowest{};  // nearest to the lower end of the cell
  std::array<float, kEntries> middle{};       // between an entry and the next

  constexpr NearestEntry() {
    for (int i = 0; i < kEntries; ++i) {
      const auto at = static_cast<std::size_t>(i);
      middle[at] = i + 1 < kEntries ? 0.5f * static_cast<float>(kCodebook[at] + kCodebook[at + 1])
                                    : std::numeric_limits<float>::infinity();
    }
    for (int cell = 0; cell < kCells; ++cell) {
      std::uint8_t entry = 0;
      while (static_cast<float>(cell - kCells / 2) > middle[entry]) ++entry;
      lowest[static_cast<std::size_t>(cell)] = entry;
    }
  }
  std::uint8_t of(float value) const {
    const float inside = std::clamp(value, -64.0f, 63.0f);
    const auto cell = static_cast<std::size_t>(static_cast<int>(inside + 64.0f));
    const std::uint8_t entry = lowest[cell];
    return static_cast<std::uint8_t>(entry + (inside > middle[entry]));
  }
};
constexpr NearestEntry kNearest;

class Search {
 public:
  Search(std::span<const float> values, std::span<const float> weights)
      : values_(values), weights_(weights) {
    best_.nibbles.fill(kCodebookZero);
  }

  // Rounds the scale to f16 and keeps it if it is better than all before. Returns the scale that
  // least squares give for the entries it leads to: sum of w v c / sum of w c c; 0 if there is
  // none.
  float attempt(float scale) {
    const std::uint16_t bits = float_to_half(scale);
    const float stored = half_to_float(bits);
    if (stored == 0.0f || !std::isfinite(stored)) return 0.0f;
    const float inverse = 1.0f / stored;
    std::array<std::uint8_t, 32> nibbles;
    nibbles.fill(kCodebookZero);
    double error = 0.0, products = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      nibbles[i] = kNearest.of(values_[i] * inverse);
      const double value = values_[i], entry = kCodebook[nibbles[i]], weight = weight_of(i);
      const double difference = entry * stored - value;
      error += weight * difference * difference;
      products += weight * value * entry;
      squares += weight * entry * entry;
    }
    if (error < least_) {
      least_ = error;
      best_ = {bits, nibbles};
    }
    return static_cast<float>(products / squares);  // no entry is 0
  }

  const CodebookGroup& best() const { return best_; }

 private:
  double weight_of(std::size_t i) const { return weights_.empty() ? 1.0 : weights_[i]; }

  std::span<const float> values_, weights_;
  double least_ = std::numeric_limits<double>::infinity();
  CodebookGroup best_;
};

}  // namespace

CodebookGroup search_codebook_scale(std::span<const float> values, std::span<const float> weights) {
  assert(!values.empty() && values.size() <= 32);
  assert(weights.empty() || weights.size() == values.size());
  float magnitude = 0.0f;
  for (const float value : values) magnitude = std::max(magnitude, std::fabs(value));
  Search search(values, weights);
  if (magnitude == 0.0f) return search.best();
  for (int sign = 1; sign >= -1; sign -= 2) {
    for (int step = 0; step < 13; ++step) {
      const float length = kLongest * static_cast<float>(sign);
      search.attempt(
          search.attempt(magnitude / length * (0.6f + 0.05f * static_cast<float>(step))));
    }
  }
  if (search.best().scale == 0) {  // all were too small for f16
    search.attempt(kLeastHalf);
    search.attempt(-kLeastHalf);
  }
  return search.best();
}

}  // namespace tinyloop
