// SPDX-License-Identifier: Apache-2.0
// The CPU's limits: read bandwidth outside and inside the cache, multiply-add peaks.
// Not the timing.
#pragma once

#include <cstddef>
#include <vector>

#include "tinyloop/cpu/cpu_ops.h"
#include "tinyloop/device/limit_probe.h"

namespace tinyloop {

std::vector<LimitProbe> cpu_limit_probes(CpuOps& ops, std::size_t array_bytes);

enum class CacheLevel { own, last };            // of one core (L2); the greatest one
std::size_t cpu_cache_bytes(CacheLevel level);  // 0: unknown

}  // namespace tinyloop
