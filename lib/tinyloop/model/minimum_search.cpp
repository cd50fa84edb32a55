// SPDX-License-Identifier: Apache-2.0
// Tries ranges for a group of 32 weights, as codebook_search tries scales.
#include "tinyloop/model/minimum_search.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

constexpr float kSteps = 15.0f;

class Search {
 public:
  Search(std::span<const float> values, std::span<const float> weights)
      : values_(values), weights_(weights) {}

  // Rounds both to f16 and keeps them if they are better than all before.
  void attempt(float scale, float minimum) {
    const std::uint16_t scale_bits = float_to_half(scale), minimum_bits = float_to_half(minimum);
    const float stored = half_to_float(scale_bits), lowest = half_to_float(minimum_bits);
    if (!std::isfinite(stored) || !std::isfinite(lowest)) return;
    const float inverse = stored > 0.0f ? 1.0f / stored : 0.0f;
    std::array<std::uint8_t, 32> nibbles{};
    double error = 0.0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const float step = std::clamp((values_[i] - lowest) * inverse, 0.0f, kSteps);
      nibbles[i] = static_cast<std::uint8_t>(step + 0.5f);
      const double difference = static_cast<double>(nibbles[i]) * stored +
                                static_cast<double>(lowest) - static_cast<double>(values_[i]);
      error += weight(i) * difference * difference;
    }
    if (error >= least_) return;
    least_ = error;
    best_ = {scale_bits, minimum_bits, nibbles};
  }

  // The line that suits the steps of the best pair so far, by weighted least squares.
  void attempt_refined() {
    double total = 0.0, steps = 0.0, squares = 0.0, sum = 0.0, products = 0.0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const double w = weight(i), step = best_.nibbles[i], value = values_[i];
      total += w;
      steps += w * step;
      squares += w * step * step;
      sum += w * value;
      products += w * step * value;
    }
    const double determinant = total * squares - steps * steps;
    if (!(determinant > 0.0)) return;
    const double scale = (total * products - steps * sum) / determinant;
    if (!(scale > 0.0)) return;
    attempt(static_cast<float>(scale), static_cast<float>((sum - scale * steps) / total));
  }

  const MinimumGroup& best() const { return best_; }

 private:
  double weight(std::size_t i) const { return weights_.empty() ? 1.0 : weights_[i]; }

  std::span<const float> values_, weights_;
  double least_ = std::numeric_limits<double>::infinity();
  MinimumGroup best_;
};

}  // namespace

MinimumGroup search_minimum(std::span<const float> values, std::span<const float> weights) {
  assert(!values.empty() && values.size() <= 32);
  assert(weights.empty() || weights.size() == values.size());
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  const float range = *greatest - *least;
  Search search(values, weights);
  for (int low = 0; low < 8; ++low) {
    for (int high = 0; high < 8; ++high) {
      const float first = *least + range * 0.016f * static_cast<float>(low);
      const float last = *greatest - range * 0.016f * static_cast<float>(high);
      search.attempt((last - first) / kSteps, first);
    }
  }
  search.attempt_refined();
  search.attempt_refined();
  return search.best();
}

}  // namespace tinyloop
