// SPDX-License-Identifier: Apache-2.0
// An arena under mprotect that opens while work runs, and a queue of that work.
#include "cuda/recorded_runtime.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/number_formats.h"

namespace tinyloop::cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kArena = 4;
constexpr std::size_t kAlign = 512;  // of allocations, as on a device
constexpr int kGarbage = 0xf5;       // as a float about -6e32

std::size_t whole_pages(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

// Memory lies at the end of its pages, so that the closed page behind them is right behind it.
std::byte* pages_of(std::byte* memory) {
  return memory - reinterpret_cast<std::uintptr_t>(memory) % kPage;
}

float value_at(const void* data, PlainType type, std::int64_t index) {
  if (type == PlainType::f32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return type == PlainType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

void multiply(const Gemm& g) {
  for (std::int64_t r = 0; r < g.rows; ++r) {
    for (std::int64_t c = 0; c < g.n; ++c) {
      float sum = 0.0f;
      for (std::int64_t i = 0; i < g.k; ++i) {
        sum = std::fma(value_at(g.x, g.type, r * g.k + i), value_at(g.w, g.type, c * g.k + i), sum);
      }
      g.y[r * g.y_stride + c] = sum;
    }
  }
}

}  // namespace

RecordedRuntime::RecordedRuntime(WorkOrder order, std::size_t device_bytes)
    : order_(order), device_bytes_(whole_pages(device_bytes)) {
  // More address space than memory: freed pieces are not joined.
  void* memory = mmap(nullptr, kArena * device_bytes_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  arena_ = static_cast<std::byte*>(memory);
}

RecordedRuntime::~RecordedRuntime() {
  for (const auto& [event, before] : events_) delete reinterpret_cast<std::byte*>(event);
  for (const auto& [graph, captured] : graphs_) delete reinterpret_cast<std::byte*>(graph);
  munmap(arena_, kArena * device_bytes_);
}

std::int64_t RecordedRuntime::count(const std::string& entry) const {
  return std::count_if(log_.begin(), log_.end(),
                       [&](const std::string& line) { return line.starts_with(entry); });
}

void RecordedRuntime::open(bool accessible) {
  const int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  for (const auto& [memory, bytes] : device_) {
    mprotect(pages_of(memory), whole_pages(bytes), protection);
  }
}

void RecordedRuntime::check_device(const std::byte* memory, std::size_t bytes,
                                   const std::string& what) {
  auto after = device_.upper_bound(const_cast<std::byte*>(memory));
  if (after != device_.begin()) {
    const auto& [start, size] = *--after;
    if (memory + bytes <= start + size) return;
  }
  fault(fmt::format("{}: {} bytes are not device memory", what, bytes));
  throw std::logic_error(faults_.back());
}

void RecordedRuntime::check_pinned(const std::byte* memory, std::size_t bytes,
                                   const std::string& what) {
  auto after = pinned_bytes_.upper_bound(memory);
  if (after != pinned_bytes_.begin()) {
    const auto& [start, size] = *--after;
    if (memory + bytes <= start + size) return;
  }
  fault(fmt::format("{}: {} bytes are not pinned memory", what, bytes));
  throw std::logic_error(faults_.back());
}

void RecordedRuntime::put(const std::string& entry, Work work, bool may_be_captured) {
  if (capture_) {
    if (!may_be_captured) fault(entry + " inside a capture");
    capture_->works.push_back(std::move(work));
    capture_->entries.push_back(entry);
    return;
  }
  log_.push_back(entry);
  pending_.push_back(std::move(work));
  if (order_ == WorkOrder::early) wait();
}

void RecordedRuntime::run_until(std::int64_t end) {
  if (done_ >= end) return;
  open(true);
  // Whatever a kernel throws must leave the arena closed.
  struct Closed {
    RecordedRuntime& runtime;
    ~Closed() { runtime.open(false); }
  } const closed{*this};
  while (done_ < end) {
    const Work work = std::move(pending_.front());
    pending_.pop_front();
    ++done_;
    work();
  }
}

// That work has written to no byte of its pages that is not the memory's own.
void RecordedRuntime::check_beside(std::byte* memory, std::size_t bytes) {
  std::byte* pages = pages_of(memory);
  const std::size_t size = whole_pages(bytes);
  mprotect(pages, size, PROT_READ);
  const auto garbage = [](std::byte byte) { return byte == std::byte{kGarbage}; };
  if (!std::all_of(pages, memory, garbage) || !std::all_of(memory + bytes, pages + size, garbage)) {
    fault(fmt::format("work wrote beside {} bytes of device memory", bytes));
  }
  mprotect(pages, size, PROT_NONE);
}

void RecordedRuntime::check_memory() {
  for (const auto& [memory, bytes] : device_) check_beside(memory, bytes);
}

std::byte* RecordedRuntime::allocate(std::size_t bytes) {
  if (capture_) fault("allocation inside a capture");
  const std::size_t size = whole_pages(bytes);
  if (refusals_left_ > 0) {
    --refusals_left_;
    return nullptr;
  }
  if (allocations_left_ == 0 || size > device_bytes_ - held_) return nullptr;
  if (allocations_left_ > 0) --allocations_left_;
  std::byte* pages = arena_ + used_;
  if (const auto found = free_.find(size); found != free_.end()) {
    pages = found->second;
    free_.erase(found);
  } else {
    if (size + kPage > kArena * device_bytes_ - used_) return nullptr;
    used_ += size + kPage;  // a page that stays closed: work that goes beyond its memory crashes
  }
  held_ += size;
  mprotect(pages, size, PROT_READ | PROT_WRITE);
  std::memset(pages, kGarbage, size);
  mprotect(pages, size, PROT_NONE);
  std::byte* memory = pages + size - (bytes + kAlign - 1) / kAlign * kAlign;
  device_.emplace(memory, bytes);
  return memory;
}

void RecordedRuntime::release(std::byte* memory) {
  const auto found = device_.find(memory);
  if (found == device_.end()) {
    fault("release of what was not allocated");
    return;
  }
  if (capture_) fault("release inside a capture");
  if (!pending_.empty()) fault("device memory is released while work may use it");
  check_beside(memory, found->second);
  const std::size_t size = whole_pages(found->second);
  held_ -= size;
  free_.emplace(size, pages_of(memory));
  device_.erase(found);
}

std::byte* RecordedRuntime::allocate_pinned(std::size_t bytes) {
  if (capture_) fault("allocation inside a capture");
  auto memory = std::make_unique<std::byte[]>(bytes);
  std::byte* address = memory.get();
  std::memset(address, kGarbage, bytes);
  pinned_.emplace(address, std::move(memory));
  pinned_bytes_.emplace(address, bytes);
  return address;
}

void RecordedRuntime::release_pinned(std::byte* memory) {
  if (!pending_.empty()) fault("pinned memory is released while work may use it");
  pinned_bytes_.erase(memory);
  if (pinned_.erase(memory) == 0) fault("release of what was not pinned");
}

void RecordedRuntime::copy_in(std::byte* to, const std::byte* pinned, std::size_t bytes) {
  check_device(to, bytes, "copy_in");
  check_pinned(pinned, bytes, "copy_in");
  std::vector<std::byte> then(pinned, pinned + bytes);
  put(
      fmt::format("copy_in {}", bytes),
      [this, to, pinned, bytes, then = std::move(then)] {
        if (std::memcmp(pinned, then.data(), bytes) != 0) {
          fault("the host changed a buffer before it was copied to the device");
        }
        std::memcpy(to, pinned, bytes);
      },
      false);
}

void RecordedRuntime::copy_out(std::byte* pinned, const std::byte* from, std::size_t bytes) {
  check_device(from, bytes, "copy_out");
  check_pinned(pinned, bytes, "copy_out");
  std::memset(pinned, kGarbage, bytes);
  put(
      fmt::format("copy_out {}", bytes),
      [pinned, from, bytes] { std::memcpy(pinned, from, bytes); }, false);
}

void RecordedRuntime::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  check_device(to, bytes, "copy to");
  check_device(from, bytes, "copy from");
  put(
      fmt::format("copy {}", bytes), [to, from, bytes] { std::memcpy(to, from, bytes); }, true);
}

void RecordedRuntime::zero(std::byte* memory, std::size_t bytes) {
  check_device(memory, bytes, "zero");
  put(
      fmt::format("zero {}", bytes), [memory, bytes] { std::memset(memory, 0, bytes); }, true);
}

void RecordedRuntime::kernel(const char* name, const std::function<void(Stream)>& start) {
  if (std::exchange(kernel_refused_, false)) {
    capture_broken_ = capture_ != nullptr;
    throw Error(ErrorKind::device, "stand-in: {}: refused", name);
  }
  put(
      name, [start] { start(nullptr); }, true);
}

void RecordedRuntime::gemm(const Gemm& gemm) {
  const std::size_t value = gemm.type == PlainType::f32 ? 4 : 2;
  check_device(static_cast<const std::byte*>(gemm.x),
               static_cast<std::size_t>(gemm.rows * gemm.k) * value, "gemm x");
  check_device(static_cast<const std::byte*>(gemm.w),
               static_cast<std::size_t>(gemm.n * gemm.k) * value, "gemm w");
  check_device(reinterpret_cast<const std::byte*>(gemm.y),
               static_cast<std::size_t>((gemm.rows - 1) * gemm.y_stride + gemm.n) * 4, "gemm y");
  put(
      "gemm", [gemm] { multiply(gemm); }, false);
}

Event* RecordedRuntime::make_event() {
  auto* event = reinterpret_cast<Event*>(std::make_unique<std::byte>().release());
  events_.emplace(event, -1);
  return event;
}

void RecordedRuntime::release(Event* event) {
  if (events_.erase(event) == 0) {
    fault("release of what is no event");
    return;
  }
  delete reinterpret_cast<std::byte*>(event);
}

void RecordedRuntime::record(Event* event) {
  if (capture_) fault("an event is recorded inside a capture");
  events_.at(event) = done_ + static_cast<std::int64_t>(pending_.size());
}

void RecordedRuntime::wait(Event* event) {
  if (capture_) fault("a wait inside a capture");
  if (events_.at(event) < 0) fault("a wait for an event that was not recorded");
  run_until(events_.at(event));
}

void RecordedRuntime::wait() {
  if (capture_) fault("a wait inside a capture");
  run_until(done_ + static_cast<std::int64_t>(pending_.size()));
}

void RecordedRuntime::begin_capture() {
  if (capture_) fault("a capture inside a capture");
  capture_ = std::make_shared<Captured>();
}

Graph* RecordedRuntime::end_capture() {
  if (!capture_) {
    fault("no capture to end");
    return nullptr;
  }
  const std::shared_ptr<Captured> captured = std::exchange(capture_, nullptr);
  if (std::exchange(capture_broken_, false)) {
    throw Error(ErrorKind::device, "stand-in: end of a broken capture");
  }
  if (graphs_refused_) return nullptr;
  auto* graph = reinterpret_cast<Graph*>(std::make_unique<std::byte>().release());
  graphs_.emplace(graph, captured);
  return graph;
}

void RecordedRuntime::launch(Graph* graph) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) {
    fault("launch of what is no graph");
    return;
  }
  put(
      fmt::format("launch {} steps", found->second->works.size()),
      [captured = found->second] {
        for (const Work& work : captured->works) work();
      },
      false);
}

void RecordedRuntime::release(Graph* graph) {
  if (!pending_.empty()) fault("a graph is released while it may be under way");
  if (graphs_.erase(graph) == 0) {
    fault("release of what is no graph");
    return;
  }
  delete reinterpret_cast<std::byte*>(graph);
}

}  // namespace tinyloop::cuda
