// SPDX-License-Identifier: Apache-2.0
// Host memory for the CPU device: small pieces from the heap, large ones straight from the system,
// so that pages cost nothing before they are touched.
#include "tinyloop/cpu/aligned_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tinyloop/error.h"

namespace tinyloop {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFromSystem = std::size_t{1} << 17;
constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::size_t kMost = static_cast<std::size_t>(PTRDIFF_MAX) - kHugePage;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void refuse(std::size_t bytes) {
  throw Error(ErrorKind::device, "no memory: {} bytes were refused", bytes);
}

}  // namespace

std::byte* allocate_zeroed(std::size_t bytes) {
  if (bytes > kMost) refuse(bytes);
  if (bytes >= kFromSystem) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) refuse(bytes);
    return static_cast<std::byte*>(memory);
  }
  const std::size_t rounded = round_up(bytes == 0 ? 1 : bytes, kAlignment);
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) refuse(bytes);
  std::memset(memory, 0, rounded);
  return static_cast<std::byte*>(memory);
}

void release_zeroed(std::byte* memory, std::size_t bytes) {
  if (memory == nullptr) return;
  if (bytes >= kFromSystem) {
    munmap(memory, bytes);
  } else {
    std::free(memory);
  }
}

std::byte* WorkingMemory::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    // A little more than asked for, so that slowly growing requests do not allocate each time.
    const std::size_t wanted = bytes + bytes / 4;
    const std::size_t rounded = wanted >= kHugePage ? round_up(wanted, kHugePage) : wanted;
    std::byte* fresh = allocate_zeroed(rounded);
    release_zeroed(memory_, bytes_);
    memory_ = fresh;
    bytes_ = rounded;
    // Fewer page faults and TLB misses; a refusal costs nothing but speed.
    if (rounded >= kHugePage) madvise(memory_, bytes_, MADV_HUGEPAGE);
  }
  return memory_;
}

}  // namespace tinyloop
