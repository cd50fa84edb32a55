// SPDX-License-Identifier: Apache-2.0
// Host memory for the CPU device: aligned to 64 bytes, zeroed, untouched pages cost nothing.
// Not an allocator: big pieces, asked for rarely.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tinyloop {

// Zeroed, aligned to 64 bytes, never null. Throws Error(device) naming the size when refused.
std::byte* allocate_zeroed(std::size_t bytes);
void release_zeroed(std::byte* memory, std::size_t bytes);  // the size of the allocation

// Working memory that only grows and keeps nothing across growth.
class WorkingMemory {
 public:
  WorkingMemory() = default;
  WorkingMemory(WorkingMemory&& other) noexcept : memory_(other.memory_), bytes_(other.bytes_) {
    other.memory_ = nullptr;
    other.bytes_ = 0;
  }
  WorkingMemory& operator=(WorkingMemory&&) = delete;
  ~WorkingMemory() { release_zeroed(memory_, bytes_); }

  // At least `bytes`, content unspecified, valid until the next call.
  std::byte* reserve(std::size_t bytes);

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tinyloop
