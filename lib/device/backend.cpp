// SPDX-License-Identifier: Apache-2.0
// Names to devices: the only file that knows which backends exist.
#include "device/backend.h"

#include "cpu/cpu_limits.h"
#include "cpu/cpu_ops.h"
#include "cpu/select_kernels.h"
#include "error.h"

namespace tinyloop {

std::unique_ptr<Ops> make_ops(std::string_view backend, const BackendOptions& options) {
  if (backend == "cpu") return std::make_unique<CpuOps>(options.isa, options.threads);
  throw Error(ErrorKind::usage, "unknown backend '{}'; known is cpu", backend);
}

std::vector<LimitProbe> limit_probes(Ops& ops, std::size_t array_bytes) {
  if (auto* cpu = dynamic_cast<CpuOps*>(&ops)) return cpu_limit_probes(*cpu, array_bytes);
  throw Error(ErrorKind::device, "{}: there is no measurement of its limits", ops.name());
}

std::size_t last_level_cache_bytes() { return cpu_cache_bytes(CacheLevel::last); }

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const KernelChoice& choice : usable_kernels()) names.emplace_back(choice.name);
  return names;
}

}  // namespace tinyloop
