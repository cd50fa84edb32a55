// SPDX-License-Identifier: Apache-2.0
// The devices that the kernel checks of the CPU run on. Not those of the GPU:
// cuda/tested_devices.cpp.
#include <fmt/format.h>

#include "guarded_ops.h"
#include "kernels/kernel_runs.h"
#include "tinyloop/backend.h"

namespace tinyloop {

std::span<const TestedDevice> tested_devices() {
  static const std::vector<TestedDevice> devices = [] {
    std::vector<TestedDevice> made;
    std::vector<std::string> isas = usable_isas();
    for (auto isa = isas.rbegin(); isa != isas.rend(); ++isa) {  // portable is the last
      for (const int threads : {1, 2, 3}) {
        made.push_back({fmt::format("{} x {}", *isa, threads), make_ops("cpu", {*isa, threads})});
      }
    }
    made.push_back({"guarded", std::make_unique<GuardedOps>(2)});
    return made;
  }();
  return devices;
}

}  // namespace tinyloop
