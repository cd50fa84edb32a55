// SPDX-License-Identifier: Apache-2.0
// How much device memory a run will take, by formula, so that it can be refused before it starts.
// Not a measurement, and nothing is allocated.
#pragma once

#include <cstdint>

#include "tinyloop/device/kv_tile.h"
#include "tinyloop/device/ops.h"
#include "tinyloop/model/loop_plan.h"
#include "tinyloop/model/model.h"

namespace tinyloop {

struct MemoryNeed {
  std::int64_t weights = 0;  // bytes, each tensor once
  std::int64_t working = 0;  // states and activations of a Forward
  std::int64_t cache = 0;    // keys and values
  std::int64_t total() const { return weights + working + cache; }
};

std::int64_t weight_bytes(const Model& model);
// Equals Forward::working_bytes() once logits of `logit_rows` rows have been requested.
std::int64_t working_bytes(const ModelConfig& config, std::int64_t max_rows, std::int64_t slots,
                           std::int64_t logit_rows);
// For a cache of up to `positions` positions, as KvCache allocates it.
std::int64_t kv_bytes(const LoopPlan& plan, std::int64_t positions, std::int64_t max_rows);

// For one Forward and the cache of its longest sequence.
MemoryNeed memory_need(const Model& model, const LoopPlan& plan, std::int64_t max_rows,
                       std::int64_t slots, std::int64_t positions);

// Throws Error(device) naming the needed and the free memory, if the device knows that it is not
// enough.
void check_memory(const Ops& ops, const MemoryNeed& need);

}  // namespace tinyloop
