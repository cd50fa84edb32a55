// SPDX-License-Identifier: Apache-2.0
// Cheap bounds over a whole vocabulary, on the instruction set at hand: which ids might win, and
// roughly what each weighs. No answer's bits come from here: what may matter is computed exactly by
// the sampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tinyloop {

constexpr std::size_t kScanBlock = 64;  // ids that are looked at together

enum class ScanSet { plain, avx2, avx512 };
std::vector<ScanSet> available_scan_sets();  // plain first, the fastest last

struct ScanLimits {
  double best_value;     // the largest value
  double per_degree;     // 1 / temperature, finite
  double lowest_total;   // scaled value + noise that still counts
  double lowest_scaled;  // scaled value that still counts
  double lowest_value;   // value that still counts
};

// The first Philox word of the sampling noise of ids first ... first + 63 at `position`.
void noise_high_words(ScanSet set, std::uint64_t seed, std::int64_t position, std::uint32_t first,
                      std::span<std::uint32_t, kScanBlock> high);

// At least the Gumbel noise that any uniform number with this first word gives, at most 110.
double noise_bound(std::uint32_t high);

// Whether any of up to 64 `values`, with the noise that belongs to `high`, might reach the limits.
// Never false where one does, also after all roundings.
bool any_may_count(ScanSet set, std::span<const double> values, std::span<const std::uint32_t> high,
                   const ScanLimits& limits);

// weights[i] = exp((values[i] - best_value) * per_degree) within a relative 1e-12, 1e-307 or less
// where that is below exp(-708).
void approximate_weights(ScanSet set, std::span<const double> values, double best_value,
                         double per_degree, std::span<double> weights);

}  // namespace tinyloop
