// SPDX-License-Identifier: Apache-2.0
// How far a run's predictions are from those of a run to compare with: reads, never generates, and
// keeps no more logits than a chunk's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/token.h"

namespace tinyloop {

// The Kullback-Leibler divergence in nats, sum over ids of p * (log p - log q), of the
// distributions p = softmax(reference) and q = softmax(logits), both [vocab]; computed in double,
// never below 0. Logits must be finite.
double divergence(std::span<const float> reference, std::span<const float> logits);

struct Agreement {  // over positions
  std::int64_t positions = 0;
  double divergence_sum = 0.0;     // nats
  std::int64_t same_best = 0;      // both have the same best id, the lowest one of equals
  double mean_divergence() const;  // NaN without positions
  double same_best_share() const;  // 0 .. 1; NaN without positions
};

// The logits of one sequence, computed by `reference` a chunk ahead of who asks for them. What is
// given must outlive it; the cache is empty at first.
class ReferenceLogits {
 public:
  ReferenceLogits(Forward& reference, KvCache& cache, std::span<const TokenId> ids,
                  std::int64_t chunk);
  // Adds what the next position's logits [vocab] say; call it for every position in order. Throws
  // Error(device) if the reference's logits are not finite.
  void compare(std::span<const float> logits, Agreement& agreement);

 private:
  Forward& reference_;
  KvCache& cache_;
  std::span<const TokenId> ids_;
  std::int64_t chunk_, position_ = 0;
  std::int64_t first_ = 0;     // position of the first row that is kept
  std::vector<float> logits_;  // [positions][vocab]
};

}  // namespace tinyloop
