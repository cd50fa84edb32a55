// SPDX-License-Identifier: Apache-2.0
// Names to devices: the only place that knows which backends exist.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/device/limit_probe.h"
#include "tinyloop/device/ops.h"

namespace tinyloop {

struct BackendOptions {
  // For the CPU; the GPU ignores them.
  std::string isa;  // "" = the best this CPU supports; else "portable", "avx2", "avx512"
  int threads = 0;  // 0 = one per CPU this process may use
  // For the GPU: maximum bytes of its memory to use, 0 = all that is free.
  std::size_t gpu_memory = 0;
};

// "cpu", "cuda" or "auto": the GPU if there is one, else the CPU. Throws Error(usage) for an
// unknown backend or instruction set, Error(device) if the machine or this build does not have it
// (only auto falls back silently).
std::unique_ptr<Ops> make_ops(std::string_view backend, const BackendOptions& options);

bool have_cuda();  // built in
std::vector<std::string>
gpu_names();  // of this machine; empty if there are none or CUDA is not built in

// Instruction sets compiled in that this CPU can run, best first.
std::vector<std::string> usable_isas();

// Measurements of the device's limits with its own threads and instruction set; `ops` must outlive
// them. Reads an array of `array_bytes` for the memory limit. Throws Error(device) if it is
// refused.
std::vector<LimitProbe> limit_probes(Ops& ops, std::size_t array_bytes);

// Bytes of the last-level cache of the host; 0: unknown.
std::size_t last_level_cache_bytes();

}  // namespace tinyloop
