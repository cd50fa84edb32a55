// SPDX-License-Identifier: Apache-2.0
// Names to devices: the only file that knows which backends exist.
#include "device/backend.h"

#include "cpu/cpu_ops.h"
#include "cpu/select_kernels.h"
#include "error.h"

namespace tinyloop {

std::unique_ptr<Ops> make_ops(std::string_view backend, const BackendOptions& options) {
  if (backend == "cpu") return std::make_unique<CpuOps>(options.isa, options.threads);
  throw Error(ErrorKind::usage, "unknown backend '{}'; known is cpu", backend);
}

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const KernelChoice& choice : usable_kernels()) names.emplace_back(choice.name);
  return names;
}

}  // namespace tinyloop
