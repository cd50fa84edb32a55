// SPDX-License-Identifier: Apache-2.0
// Spreads the limit kernels over the worker threads, each with memory of its own, and finds the
// fastest of them here.
#include "tinyloop/cpu/cpu_limits.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "tinyloop/cpu/aligned_memory.h"

namespace tinyloop {
namespace {

constexpr std::size_t kUnit = 4096;  // what threads share the array by
constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::size_t kUnknownCache = std::size_t{256} << 10;
constexpr double kLeastSeconds = 0.003;

enum class Pages { small, huge };

class Array {
 public:
  Array(std::size_t bytes, Pages pages)
      : bytes_(bytes + kHugePage), memory_(allocate_zeroed(bytes_)) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_);
    first_ = (kHugePage - address % kHugePage) % kHugePage;
    // A refusal leaves the pages that the system prefers.
    madvise(memory_ + first_, bytes, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  ~Array() { release_zeroed(memory_, bytes_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const unsigned char* at(std::size_t offset) const {
    return reinterpret_cast<const unsigned char*>(memory_ + first_ + offset);
  }
  // Untouched pages would all be one page of zeros, in the cache. 0x3e3e3e3e is 0.186 as a float.
  void touch(std::size_t offset, std::size_t bytes) {
    std::memset(memory_ + first_ + offset, 0x3e, bytes);
  }

 private:
  std::size_t bytes_, first_ = 0;
  std::byte* memory_;
};

// Keeps the compiler from leaving out a computation.
void use(float value) {
  static std::atomic<float> sink;
  sink.store(value, std::memory_order_relaxed);
}

double seconds_of(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Candidate {
  std::string name;
  double amount = 1.0;        // bytes or operations of one run
  std::function<void()> run;  // a piece of work long enough to be timed
};

// The greatest amount a second. Each is run once untimed; then come rounds over all, and more over
// the few best of those, so that a disturbance meets several candidates and each has quiet runs.
// The least time counts: disturbances only add.
std::size_t fastest(const std::vector<Candidate>& candidates) {
  constexpr int kRounds = 4, kFinalRounds = 8;
  constexpr std::size_t kFinalists = 6;
  std::vector<double> least(candidates.size(), std::numeric_limits<double>::infinity());
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rank = [&](int rounds, std::size_t first_round) {
    for (std::size_t round = first_round; round < first_round + std::size_t(rounds); ++round) {
      for (const std::size_t i : order) {
        const double seconds = seconds_of(candidates[i].run) / candidates[i].amount;
        if (round > 0) least[i] = std::min(least[i], seconds);
      }
    }
    std::ranges::sort(order, {}, [&](std::size_t i) { return least[i]; });
  };
  rank(kRounds, 0);
  order.resize(std::min(order.size(), kFinalists));
  rank(kFinalRounds, kRounds);
  return order.front();
}

std::string name_of(const ReadPattern& pattern) {
  std::string name = fmt::format("{} ", pattern.streams);
  if (pattern.panel_bytes > 0) {
    name += fmt::format("panels of {} KB", pattern.panel_bytes / 1024);
  } else {
    name += pattern.streams == 1 ? "stream" : "streams";
  }
  return name + (pattern.ahead > 0 ? fmt::format(" fetched {} B ahead", pattern.ahead) : "");
}

std::span<const ReadPattern> reads_of(const KernelTable& kernels) {
  return {kernels.reads, static_cast<std::size_t>(kernels.read_count)};
}

// An array shared among the threads, each of which has touched its own part.
class SharedArray {
 public:
  SharedArray(CpuOps& ops, std::size_t units, Pages pages)
      : ops_(ops), units_(units), array_(units * kUnit, pages) {
    const std::size_t all = units;
    ops_.workers().run([&](int worker) {
      const auto [first, count] = part(worker, 0, all);
      array_.touch(first, count);
    });
  }
  // Part number `slice` of `slices` of each thread's part.
  void read(const ReadPattern& pattern, std::size_t slice, std::size_t slices) const {
    ops_.workers().run([&](int worker) {
      const auto [first, count] = part(worker, 0, units_);
      const std::size_t own = count / kUnit;
      const std::size_t from = own * slice / slices, end = own * (slice + 1) / slices;
      use(pattern.read(array_.at(first + from * kUnit), (end - from) * kUnit));
    });
  }

 private:
  std::pair<std::size_t, std::size_t> part(int worker, std::size_t first, std::size_t count) const {
    const Range range =
        WorkerThreads::share(static_cast<std::int64_t>(count), ops_.workers().count(), worker);
    return {(first + static_cast<std::size_t>(range.first)) * kUnit,
            static_cast<std::size_t>(range.end - range.first) * kUnit};
  }

  CpuOps& ops_;
  std::size_t units_;
  Array array_;
};

LimitProbe memory_probe(CpuOps& ops, std::size_t bytes) {
  // Candidates read slices in turn, so that a slice has left the cache when it is read again.
  constexpr std::size_t kSlices = 8;
  const std::size_t units = std::max<std::size_t>(
      (bytes + kUnit - 1) / kUnit, kSlices * static_cast<std::size_t>(ops.workers().count()));
  std::shared_ptr<SharedArray> arrays[2];
  std::vector<Candidate> candidates;
  std::vector<std::pair<Pages, const ReadPattern*>> patterns;
  std::size_t next = 0;
  for (const Pages pages : {Pages::small, Pages::huge}) {
    auto& array = arrays[static_cast<std::size_t>(pages)];
    array = std::make_shared<SharedArray>(ops, units, pages);
    for (const ReadPattern& pattern : reads_of(ops.kernels())) {
      patterns.emplace_back(pages, &pattern);
      candidates.push_back({name_of(pattern) + (pages == Pages::huge ? " in 2 MB pages" : ""), 1.0,
                            [array, &pattern, &next] {
                              array->read(pattern, next, kSlices);
                              next = (next + 1) % kSlices;
                            }});
    }
  }
  const std::size_t best = fastest(candidates);
  const auto [pages, pattern] = patterns[best];
  return {
      Limit::memory, static_cast<double>(units * kUnit),
      [array = arrays[static_cast<std::size_t>(pages)], pattern] { array->read(*pattern, 0, 1); },
      candidates[best].name};
}

LimitProbe cache_probe(CpuOps& ops) {
  constexpr int kTimes = 512;
  const std::size_t own = cpu_cache_bytes(CacheLevel::own);
  const std::size_t bytes = (own == 0 ? kUnknownCache : own) / 2 / kUnit * kUnit;
  const auto threads = static_cast<std::size_t>(ops.workers().count());
  const auto array = std::make_shared<Array>(threads * bytes, Pages::huge);
  array->touch(0, threads * bytes);
  const auto read = [&ops, array, bytes](const ReadPattern& pattern, int times) {
    ops.workers().run([&](int worker) {
      const unsigned char* from = array->at(static_cast<std::size_t>(worker) * bytes);
      for (int i = 0; i < times; ++i) use(pattern.read(from, bytes));
    });
  };
  std::vector<Candidate> candidates;
  for (const ReadPattern& pattern : reads_of(ops.kernels())) {
    candidates.push_back({name_of(pattern), 1.0, [read, &pattern] { read(pattern, kTimes / 16); }});
  }
  const std::size_t best = fastest(candidates);
  const ReadPattern& pattern = reads_of(ops.kernels())[best];
  return {Limit::cache, static_cast<double>(kTimes * threads * bytes),
          [read, &pattern] { read(pattern, kTimes); }, candidates[best].name};
}

// Enough rounds that starting the threads does not count, whatever the instruction set.
LimitProbe peak_probe(CpuOps& ops, Limit limit, const PeakPattern* patterns, int count) {
  std::vector<Candidate> candidates;
  for (const PeakPattern& pattern : std::span(patterns, static_cast<std::size_t>(count))) {
    std::int64_t rounds = 1000;
    const auto run = [&ops, &pattern](std::int64_t times) {
      ops.workers().run([&](int) { use(pattern.run(times)); });
    };
    while (seconds_of([&] { run(rounds); }) < kLeastSeconds) rounds *= 2;
    candidates.push_back({fmt::format("{} chain{}", pattern.chains, pattern.chains == 1 ? "" : "s"),
                          pattern.operations * static_cast<double>(rounds) * ops.workers().count(),
                          [run, rounds] { run(rounds); }});
  }
  Candidate& best = candidates[fastest(candidates)];
  return {limit, best.amount, std::move(best.run), std::move(best.name)};
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
  const KernelTable& kernels = ops.kernels();
  return {memory_probe(ops, array_bytes), cache_probe(ops),
          peak_probe(ops, Limit::floats, kernels.float_peaks, kernels.float_peak_count),
          peak_probe(ops, Limit::int8, kernels.int8_peaks, kernels.int8_peak_count)};
}

}  // namespace tinyloop
