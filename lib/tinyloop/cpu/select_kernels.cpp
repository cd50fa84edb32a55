// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel table for this CPU. TL_HAVE_AVX2 and TL_HAVE_AVX512 say which tables the build
// has linked.
#include "tinyloop/cpu/select_kernels.h"

#include <string>
#include <vector>

#include "tinyloop/error.h"

namespace tinyloop {

extern const KernelTable kernels_portable;
#if defined(TL_HAVE_AVX2)
extern const KernelTable kernels_avx2;
#endif
#if defined(TL_HAVE_AVX512)
extern const KernelTable kernels_avx512;
#endif

namespace {

// __builtin_cpu_supports asks also whether the operating system saves the registers.
std::vector<KernelChoice> find_usable() {
  std::vector<KernelChoice> usable;
#if defined(TL_HAVE_AVX512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")) {
    usable.push_back({"avx512", &kernels_avx512});
  }
#endif
#if defined(TL_HAVE_AVX2)
  // Every CPU with AVX2 and FMA has F16C, the other part of x86-64-v3 that the kernels use.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    usable.push_back({"avx2", &kernels_avx2});
  }
#endif
  usable.push_back({"portable", &kernels_portable});
  return usable;
}

}  // namespace

std::span<const KernelChoice> usable_kernels() {
  static const std::vector<KernelChoice> usable = find_usable();
  return usable;
}

const KernelChoice& select_kernels(std::string_view name) {
  const std::span<const KernelChoice> usable = usable_kernels();
  if (name.empty()) return usable.front();
  std::string names;
  for (const KernelChoice& choice : usable) {
    if (choice.name == name) return choice;
    names += names.empty() ? "" : ", ";
    names += choice.name;
  }
  if (name == "avx2" || name == "avx512") {
    throw Error(ErrorKind::device, "instruction set '{}' is not available here; usable are {}",
                name, names);
  }
  throw Error(ErrorKind::usage, "unknown instruction set '{}'; known are avx512, avx2, portable",
              name);
}

}  // namespace tinyloop
