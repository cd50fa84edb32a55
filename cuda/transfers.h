// SPDX-License-Identifier: Apache-2.0
// Moves bytes between ordinary host memory and the device through two alternating pinned buffers:
// while one is in flight the next is filled, so mapped pages are read during the transfer. Not for
// tables of single steps, which work_queue sends along with them.
#pragma once

#include <cstddef>

#include "runtime.h"

namespace tinyloop::cuda {

class Transfers {
 public:
  explicit Transfers(Runtime& runtime) : runtime_(runtime) {}
  ~Transfers();  // when no work is under way
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // `from` may change as soon as this returns.
  void in(std::byte* to, const std::byte* from, std::size_t bytes);
  // Returns when the bytes are there, hence when all work before is done.
  void out(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    Event* done = nullptr;  // with the copy it was last used for
    bool busy = false;
  };
  Buffer& next();

  Runtime& runtime_;
  Buffer buffers_[2];
  std::size_t turn_ = 0;
};

}  // namespace tinyloop::cuda
