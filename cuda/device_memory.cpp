// SPDX-License-Identifier: Apache-2.0
// Blocks by size. A freed block may be reused at once, because all work is on one
// stream; it is returned to the runtime only after that work is done.
#include "device_memory.h"

#include <algorithm>

#include "tinyloop/error.h"

namespace tinyloop::cuda {
namespace {

constexpr std::size_t kUnit = 512;                         // sizes are multiples of it
constexpr std::size_t kMostKept = std::size_t{256} << 20;  // in all
constexpr double kMega = 1e6;

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const auto& [size, memory] : kept_) runtime_.release(memory);
  for (const auto& [memory, size] : live_) runtime_.release(memory);
}

std::byte* DeviceMemory::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX - kUnit) throw Error(ErrorKind::device, "cuda: {} bytes refused", bytes);
  const std::size_t size = std::max<std::size_t>(1, (bytes + kUnit - 1) / kUnit) * kUnit;
  std::byte* memory = take(size, bytes);
  live_.emplace(memory, size);
  live_bytes_ += size;
  runtime_.zero(memory, size);
  return memory;
}

std::byte* DeviceMemory::take(std::size_t size, std::size_t asked) {
  if (const auto found = kept_.find(size); found != kept_.end()) {
    std::byte* memory = found->second;
    kept_.erase(found);
    kept_bytes_ -= size;
    return memory;
  }
  const auto mega = [](std::size_t bytes) { return static_cast<double>(bytes) / kMega; };
  if (limit_ > 0 && size > limit_ - std::min(limit_, live_bytes_)) {
    throw Error(ErrorKind::device, "cuda: {:.1f} MB refused, {:.1f} MB of --gpu-memory left",
                mega(asked), mega(limit_ - std::min(limit_, live_bytes_)));
  }
  if (limit_ > 0 && live_bytes_ + kept_bytes_ + size > limit_) give_back_kept();
  std::byte* memory = runtime_.allocate(size);
  if (memory == nullptr && !kept_.empty()) {
    give_back_kept();
    memory = runtime_.allocate(size);
  }
  if (memory == nullptr) {
    throw Error(ErrorKind::device, "cuda: {:.1f} MB refused, {:.1f} MB free", mega(asked),
                mega(runtime_.memory().free));
  }
  return memory;
}

std::size_t DeviceMemory::left_bytes() const {
  const std::size_t free = runtime_.memory().free + kept_bytes_;
  return limit_ == 0 ? free : std::min(free, limit_ - std::min(limit_, live_bytes_));
}

void DeviceMemory::release(std::byte* memory) {
  const auto found = live_.find(memory);
  if (found == live_.end()) return;
  const std::size_t size = found->second;
  live_.erase(found);
  live_bytes_ -= size;
  if (kept_bytes_ + size <= kMostKept) {
    kept_.emplace(size, memory);
    kept_bytes_ += size;
    return;
  }
  runtime_.wait();
  runtime_.release(memory);
}

void DeviceMemory::give_back_kept() {
  if (kept_.empty()) return;
  runtime_.wait();
  for (const auto& [size, memory] : kept_) runtime_.release(memory);
  kept_.clear();
  kept_bytes_ = 0;
}

}  // namespace tinyloop::cuda
