// SPDX-License-Identifier: Apache-2.0
// The two buffers and their events.
#include "transfers.h"

#include <algorithm>
#include <cstring>

#include "tinyloop/error.h"

namespace tinyloop::cuda {
namespace {

constexpr std::size_t kBytes = std::size_t{4} << 20;  // of a buffer

}  // namespace

Transfers::~Transfers() {
  for (Buffer& buffer : buffers_) {
    if (buffer.done != nullptr) runtime_.release(buffer.done);
    if (buffer.memory != nullptr) runtime_.release_pinned(buffer.memory);
  }
}

// A buffer that no copy uses any more.
Transfers::Buffer& Transfers::next() {
  Buffer& buffer = buffers_[turn_++ % 2];
  if (buffer.memory == nullptr) {
    buffer.memory = runtime_.allocate_pinned(kBytes);
    if (buffer.memory == nullptr) {
      throw Error(ErrorKind::device, "cuda: {} bytes of pinned host memory refused", kBytes);
    }
  }
  if (buffer.done == nullptr) buffer.done = runtime_.make_event();
  if (buffer.busy) runtime_.wait(buffer.done);
  buffer.busy = false;
  return buffer;
}

void Transfers::in(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kBytes) {
    const std::size_t size = std::min(kBytes, bytes - at);
    Buffer& buffer = next();
    std::memcpy(buffer.memory, from + at, size);
    runtime_.copy_in(to + at, buffer.memory, size);
    runtime_.record(buffer.done);
    buffer.busy = true;
  }
}

// While a buffer is emptied the next piece is on its way.
void Transfers::out(std::byte* to, const std::byte* from, std::size_t bytes) {
  Buffer* ahead = nullptr;
  for (std::size_t at = 0; at < bytes + kBytes; at += kBytes) {
    Buffer* begun = nullptr;
    if (at < bytes) {
      begun = &next();
      runtime_.copy_out(begun->memory, from + at, std::min(kBytes, bytes - at));
      runtime_.record(begun->done);
      begun->busy = true;
    }
    if (ahead != nullptr) {
      runtime_.wait(ahead->done);
      ahead->busy = false;
      std::memcpy(to + at - kBytes, ahead->memory, std::min(kBytes, bytes - (at - kBytes)));
    }
    ahead = begun;
    if (begun == nullptr) break;
  }
}

}  // namespace tinyloop::cuda
