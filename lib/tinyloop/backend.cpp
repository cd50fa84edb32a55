// SPDX-License-Identifier: Apache-2.0
// Names to devices: the only file that knows which backends exist.
#include "tinyloop/backend.h"

#include "tinyloop/cpu/cpu_limits.h"
#include "tinyloop/cpu/cpu_ops.h"
#include "tinyloop/cpu/select_kernels.h"
#include "tinyloop/error.h"
#ifdef TL_HAVE_CUDA
#include "cuda/cuda_limits.h"
#include "cuda/cuda_ops.h"
#endif

namespace tinyloop {
namespace {

#ifdef TL_HAVE_CUDA
constexpr bool kHaveCuda = true;

std::unique_ptr<Ops> open_cuda(const BackendOptions& options) {
  return open_cuda_ops(options.gpu_memory);
}

std::vector<LimitProbe> probes_of_cuda(Ops& ops, std::size_t array_bytes) {
  auto* cuda = dynamic_cast<CudaOps*>(&ops);
  return cuda == nullptr ? std::vector<LimitProbe>{} : cuda_limit_probes(*cuda, array_bytes);
}

std::vector<std::string> names_of_gpus() { return cuda::device_names(); }
#else
constexpr bool kHaveCuda = false;

std::unique_ptr<Ops> open_cuda(const BackendOptions&) {
  throw Error(ErrorKind::device, "this build has no CUDA; configure with -Dcuda=enabled");
}

std::vector<LimitProbe> probes_of_cuda(Ops&, std::size_t) { return {}; }

std::vector<std::string> names_of_gpus() { return {}; }
#endif

}  // namespace

std::unique_ptr<Ops> make_ops(std::string_view backend, const BackendOptions& options) {
  if (backend == "cuda") return open_cuda(options);
  if (backend == "auto") {
    try {
      return open_cuda(options);
    } catch (const Error&) {  // no CUDA or no device: the CPU it is
    }
  }
  if (backend == "cpu" || backend == "auto") {
    return std::make_unique<CpuOps>(options.isa, options.threads);
  }
  throw Error(ErrorKind::usage, "unknown backend '{}'; known are cpu, cuda, auto", backend);
}

bool have_cuda() { return kHaveCuda; }

std::vector<std::string> gpu_names() { return names_of_gpus(); }

std::vector<LimitProbe> limit_probes(Ops& ops, std::size_t array_bytes) {
  if (auto* cpu = dynamic_cast<CpuOps*>(&ops)) return cpu_limit_probes(*cpu, array_bytes);
  std::vector<LimitProbe> probes = probes_of_cuda(ops, array_bytes);
  if (!probes.empty()) return probes;
  throw Error(ErrorKind::device, "{}: its limits cannot be measured", ops.name());
}

std::size_t last_level_cache_bytes() { return cpu_cache_bytes(CacheLevel::last); }

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const KernelChoice& choice : usable_kernels()) names.emplace_back(choice.name);
  return names;
}

}  // namespace tinyloop
