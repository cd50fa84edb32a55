// SPDX-License-Identifier: Apache-2.0
// How the work of matrix products and of top-k is split, and the working memory that takes:
// plain arithmetic on the host, for the kernels' own host functions and for the
// allocator. No kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace tinyloop::cuda {

// Parts of the workspace begin at multiples of 256 bytes.
inline std::size_t aligned_bytes(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
}

// A block computes two panels with four warps each, which share out k in turns of one unit.
inline constexpr std::int64_t kBlockPanels = 2;
inline constexpr std::int64_t kWarpsAlongK = 4;
inline constexpr std::int64_t kMatmulRows = 16;  // of one block

// Inputs that a warp takes at once: four loads of 16 bytes a lane, or eight groups of 32.
inline std::int64_t unit_of(WeightType type) {
  return is_quantised(type) ? 8 * kGroup : type == WeightType::f32 ? 32 : 64;
}

struct MatmulPlan {
  // The inputs are split among `splits` blocks, k_of_split each, which depends on the matrix only:
  // the sums of a row come out the same with any number of rows, on any device.
  std::int64_t splits = 1, k_of_split = 0;
  std::int64_t rows_of_launch = 0;
  std::size_t partial_bytes = 0;  // [splits][rows of launch][16 * panels] f32 where splits > 1
  std::size_t quantised_bytes =
      0;  // [rows of launch][groups] of 32 int8, then as many QuantisedGroup
  std::size_t workspace_bytes() const { return partial_bytes + quantised_bytes; }
};

struct QuantisedGroup {  // of the activations
  float scale;
  std::int32_t sum;  // of its 32 integers
};

MatmulPlan plan_matmul(std::int64_t rows, WeightType type, std::int64_t n, std::int64_t k);

// Keys that one block sorts to keep the k greatest; a round leaves k for each block.
inline constexpr std::int64_t kSortedKeys = 2048;
inline std::int64_t top_k_blocks(std::int64_t keys) {
  return (keys + kSortedKeys - 1) / kSortedKeys;
}

}  // namespace tinyloop::cuda
