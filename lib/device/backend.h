// SPDX-License-Identifier: Apache-2.0
// Names to devices: the only place that knows which backends exist.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/limit_probe.h"
#include "device/ops.h"

namespace tinyloop {

struct BackendOptions {
  std::string isa;   // "" = the best this CPU has; else "portable", "avx2", "avx512"
  int threads = 0;   // 0 = as many as the CPUs this process may use
};

// "cpu". Throws Error(usage) for an unknown backend or instruction set, Error(device) where the machine does not have it
// (an unsupported instruction set is never silently replaced).
std::unique_ptr<Ops> make_ops(std::string_view backend, const BackendOptions& options);

// Instruction sets compiled in that this CPU can run, best first.
std::vector<std::string> usable_isas();

// Measurements of the device's limits with its own threads and instruction set; `ops` must outlive
// them. Reads an array of `array_bytes` for the memory limit. Throws Error(device) if it is refused.
std::vector<LimitProbe> limit_probes(Ops& ops, std::size_t array_bytes);

// Bytes of the last-level cache of the host; 0: unknown.
std::size_t last_level_cache_bytes();

}  // namespace tinyloop
