// SPDX-License-Identifier: Apache-2.0
// One block of measurements: one model on one device, alternating limits and work, and for each
// piece of work the time that the limits would allow. Does not print.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/device/limit_probe.h"
#include "tinyloop/device/ops.h"
#include "tinyloop/engine/work_count.h"
#include "tinyloop/measure/speed_timing.h"
#include "tinyloop/model/loop_plan.h"
#include "tinyloop/model/model.h"

namespace tinyloop {

enum class SpeedPart {
  prefill,  // rows 0 .. rows-1 of a prompt together, all loops, the head on the last
  decode,   // one token after `context` others, all loops and the head
  pass,     // one loop of the looped block over rows 0 .. rows-1
};

struct SpeedItem {
  SpeedPart part = SpeedPart::decode;
  bool growth = false;  // of the growth table
  std::int32_t loops = 1;
  StorageMode kv = StorageMode::f16;
  std::int64_t rows = 1, context = 0;

  // Filled by measure_speed.
  Work work;
  Timing timing;
  Limit limit = Limit::memory;  // the one that binds
  double limit_ms = 0.0;        // the minimum time that the limits allow

  double ms() const { return timing.median(); }
  double rows_per_second() const { return 1000.0 * static_cast<double>(rows) / ms(); }
  double share() const { return limit_ms / ms(); }
};

struct SpeedLimit {
  Limit limit = Limit::memory;
  double amount = 0.0;  // bytes or operations of one run
  Timing timing;
  std::string pattern{};  // how it is reached
  double per_second(double ms) const { return 1000.0 * amount / ms; }
  double per_second() const { return per_second(timing.median()); }
};

struct SpeedBlock {
  std::vector<SpeedItem> items;
  std::vector<SpeedLimit> limits;
  std::int64_t weight_bytes = 0;   // all weights that a token needs, each once
  std::int64_t working_bytes = 0;  // activations
  std::int64_t cache_bytes = 0;    // K and V of all loops and modes measured
};

// Measures the items (and the limits, always). Throws Error(usage) if an item does not fit the
// model, Error(device) if memory is refused.
SpeedBlock measure_speed(const Model& model, Ops& ops, std::vector<SpeedItem> items,
                         std::size_t array_bytes, const TimingOptions& options,
                         const std::function<void(std::int64_t, std::int64_t)>& progress);

// Sets item.limit and limit_ms: reading at the speed of the cache if the weights and the item's K
// and V fit into `cache_bytes`, else at that of memory; products at the multiply-add peaks; the
// slower of the two binds.
void compare_with_limits(SpeedItem& item, const std::vector<SpeedLimit>& limits,
                         std::int64_t weight_bytes, std::size_t cache_bytes);

}  // namespace tinyloop
