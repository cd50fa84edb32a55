// SPDX-License-Identifier: Apache-2.0
// Allocates device memory within a limit and keeps freed small blocks for reuse: a call of the
// runtime costs more than a decode step may. Knows nothing of the content.
#pragma once

#include <cstddef>
#include <map>
#include <unordered_map>

#include "runtime.h"

namespace tinyloop::cuda {

class DeviceMemory {
 public:
  // limit: the most bytes to hold at once, 0: what the device has.
  DeviceMemory(Runtime& runtime, std::size_t limit) : runtime_(runtime), limit_(limit) {}
  ~DeviceMemory();  // when no work is under way
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Zeroed by work on the stream. Throws Error(device) naming what was asked and what there is.
  std::byte* allocate(std::size_t bytes);
  // Work put on the stream before may still use it.
  void release(std::byte* memory);

  // That could be allocated in one piece or many.
  std::size_t left_bytes() const;
  std::size_t held_bytes() const { return live_bytes_; }

 private:
  std::byte* take(std::size_t size, std::size_t asked);
  void give_back_kept();

  Runtime& runtime_;
  std::size_t limit_;
  std::size_t live_bytes_ = 0, kept_bytes_ = 0;
  std::unordered_map<std::byte*, std::size_t> live_;
  std::multimap<std::size_t, std::byte*> kept_;  // by size
};

}  // namespace tinyloop::cuda
