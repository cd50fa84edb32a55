// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel table for this CPU. The only place that knows which instruction sets are
// compiled in.
#pragma once

#include <span>
#include <string_view>

#include "tinyloop/cpu/kernel_table.h"

namespace tinyloop {

struct KernelChoice {
  std::string_view name;       // "portable", "avx2", "avx512"
  const KernelTable* kernels;  // never null
};

// The instruction sets compiled in that this CPU and operating system can run, best first;
// "portable" is the last.
std::span<const KernelChoice> usable_kernels();

// The best for "", else the named one. Throws Error(usage) for an unknown name, Error(device) if
// this machine or build lacks it.
const KernelChoice& select_kernels(std::string_view name);

}  // namespace tinyloop
