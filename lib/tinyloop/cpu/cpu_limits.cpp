// SPDX-License-Identifier: Apache-2.0
// Spreads the limit kernels over the worker threads, each with memory of its own.
#include "tinyloop/cpu/cpu_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "tinyloop/cpu/aligned_memory.h"

namespace tinyloop {
namespace {

constexpr std::size_t kUnit = 4096;  // what threads share the array by
constexpr std::size_t kUnknownCache = std::size_t{256} << 10;
constexpr double kLeastSeconds = 0.003;

class Array {
 public:
  explicit Array(std::size_t bytes) : bytes_(bytes), memory_(allocate_zeroed(bytes)) {}
  ~Array() { release_zeroed(memory_, bytes_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const unsigned char* at(std::size_t offset) const {
    return reinterpret_cast<const unsigned char*>(memory_ + offset);
  }
  // Untouched pages would all be one page of zeros, in the cache. 0x3e3e3e3e is 0.186 as a float.
  void touch(std::size_t offset, std::size_t bytes) { std::memset(memory_ + offset, 0x3e, bytes); }

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

// Keeps the compiler from leaving out a computation.
void use(float value) {
  static std::atomic<float> sink;
  sink.store(value, std::memory_order_relaxed);
}

LimitProbe memory_probe(CpuOps& ops, std::size_t bytes) {
  WorkerThreads& workers = ops.workers();
  const std::size_t units =
      std::max<std::size_t>((bytes + kUnit - 1) / kUnit, static_cast<std::size_t>(workers.count()));
  const auto array = std::make_shared<Array>(units * kUnit);
  const auto share = [&workers, units](int worker) {
    const Range range =
        WorkerThreads::share(static_cast<std::int64_t>(units), workers.count(), worker);
    return std::pair(static_cast<std::size_t>(range.first) * kUnit,
                     static_cast<std::size_t>(range.end - range.first) * kUnit);
  };
  workers.run([&](int worker) {
    const auto [first, count] = share(worker);
    array->touch(first, count);
  });
  return {Limit::memory, static_cast<double>(units * kUnit), [&ops, array, share] {
            ops.workers().run([&](int worker) {
              const auto [first, count] = share(worker);
              use(ops.kernels().read_bytes(array->at(first), count));
            });
          }};
}

LimitProbe cache_probe(CpuOps& ops) {
  constexpr int kTimes = 512;
  const std::size_t own = cpu_cache_bytes(CacheLevel::own);
  const std::size_t bytes = (own == 0 ? kUnknownCache : own) / 2 / kUnit * kUnit;
  const auto threads = static_cast<std::size_t>(ops.workers().count());
  const auto array = std::make_shared<Array>(threads * bytes);
  array->touch(0, threads * bytes);
  return {Limit::cache, static_cast<double>(kTimes * threads * bytes), [&ops, array, bytes] {
            ops.workers().run([&](int worker) {
              const unsigned char* from = array->at(static_cast<std::size_t>(worker) * bytes);
              for (int i = 0; i < kTimes; ++i) use(ops.kernels().read_bytes(from, bytes));
            });
          }};
}

// Enough rounds that starting the threads does not count, whatever the instruction set.
LimitProbe peak_probe(CpuOps& ops, Limit limit, double operations, float (*peak)(std::int64_t)) {
  using Clock = std::chrono::steady_clock;
  std::int64_t rounds = 1000;
  const auto run = [&ops, peak](std::int64_t count) {
    ops.workers().run([&](int) { use(peak(count)); });
  };
  for (;; rounds *= 2) {
    const Clock::time_point start = Clock::now();
    run(rounds);
    if (std::chrono::duration<double>(Clock::now() - start).count() >= kLeastSeconds) break;
  }
  return {limit, operations * static_cast<double>(rounds) * ops.workers().count(),
          [run, rounds] { run(rounds); }};
}

}  // namespace

// From the kernel's account of the first CPU: sysconf may count the caches of the whole package.
std::size_t cpu_cache_bytes(CacheLevel level) {
  std::size_t l2 = 0, last = 0;
  int greatest = 0;
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    std::ifstream level_file(folder + "level"), size_file(folder + "size");
    int number = 0;
    std::size_t kilobytes = 0;
    std::string unit;
    if (!(level_file >> number) || !(size_file >> kilobytes >> unit) || unit != "K") break;
    if (number == 2) l2 = kilobytes * 1024;
    if (number > greatest) {
      greatest = number;
      last = kilobytes * 1024;
    }
  }
  return level == CacheLevel::own ? l2 : last;
}

std::vector<LimitProbe> cpu_limit_probes(CpuOps& ops, std::size_t array_bytes) {
  constexpr double kFloatsPerRound = 2 * 192, kInt8PerRound = 2 * 1536;
  return {memory_probe(ops, array_bytes), cache_probe(ops),
          peak_probe(ops, Limit::floats, kFloatsPerRound, ops.kernels().fma_peak),
          peak_probe(ops, Limit::int8, kInt8PerRound, ops.kernels().int8_peak)};
}

}  // namespace tinyloop
