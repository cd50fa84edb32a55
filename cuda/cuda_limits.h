// SPDX-License-Identifier: Apache-2.0
// Measurements of the GPU's limits: copying memory, and cuBLAS on large matrices. See
// device/limit_probe.h. Not the timing.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda_ops.h"
#include "tinyloop/device/limit_probe.h"

namespace tinyloop {

// memory: bytes read and written by copies of half of `array_bytes`. floats: products in f16, the
// format of prefill. int8: the same, since products of many rows with q8 and q4 weights are done in
// f16. A run is done when it returns.
std::vector<LimitProbe> cuda_limit_probes(CudaOps& ops, std::size_t array_bytes);

}  // namespace tinyloop
