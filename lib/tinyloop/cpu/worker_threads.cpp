// SPDX-License-Identifier: Apache-2.0
// Fork and join with atomic counters. A thread that waits spins for some microseconds, then blocks
// in the kernel. Spinning beyond the number of CPUs is ruin (ggml PR 13079), blocking at once costs
// 10 us a piece of work: hence both. Waiting for threads that another process keeps from their CPU
// costs milliseconds a piece of work: hence the caller takes shares that nobody has begun.
#include "tinyloop/cpu/worker_threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <system_error>

#include "tinyloop/cpu/cpu_quota.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

constexpr int kSpins = 2000;
constexpr int kMostThreads = 4096;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

int WorkerThreads::usable_cpus() {
  const std::optional<double> quota = cpu_quota();
  const int cpus = cpus_in_mask();
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, cpus) : cpus;
}

int WorkerThreads::cpus_in_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
  const unsigned known = std::thread::hardware_concurrency();  // more CPUs than a cpu_set_t holds
  return known > 0 ? static_cast<int>(known) : 1;
}

WorkerThreads::WorkerThreads(int threads) {
  if (threads < 0 || threads > kMostThreads) {
    throw Error(ErrorKind::usage, "{} threads: must be 0 (one for each CPU) to {}", threads,
                kMostThreads);
  }
  const int cpus = usable_cpus();
  count_ = threads == 0 ? cpus : threads;
  spin_ = count_ <= cpus;
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(count_));
  threads_.reserve(static_cast<std::size_t>(count_ - 1));
  try {
    for (int worker = 1; worker < count_; ++worker) {
      threads_.emplace_back([this, worker] { serve(worker); });
    }
  } catch (const std::system_error& refused) {
    stop();
    throw Error(ErrorKind::device, "cannot start {} threads: {}", count_, refused.what());
  }
}

WorkerThreads::~WorkerThreads() { stop(); }

void WorkerThreads::stop() {
  call_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  threads_.clear();  // joins
}

void WorkerThreads::await_change(std::atomic<std::uint32_t>& value, std::uint32_t old) const {
  for (int i = 0; spin_ && i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_briefly();
  }
  value.wait(old, std::memory_order_acquire);
}

// Every share is taken once a round, so a thread that comes late finds its own taken.
bool WorkerThreads::take(int share, std::uint32_t round) {
  std::uint32_t before = 2 * round - 1;
  return at(share).state.load(std::memory_order_relaxed) == before &&
         at(share).state.compare_exchange_strong(before, 2 * round, std::memory_order_acq_rel);
}

void WorkerThreads::serve(int share) {
  for (std::uint32_t round = 0;;) {
    await_change(round_, round);
    round = round_.load(std::memory_order_acquire);
    if (!take(share, round)) continue;
    if (call_ == nullptr) return;
    call_(context_, share);
    at(share).state.store(2 * round + 1, std::memory_order_release);
    at(share).state.notify_one();
  }
}

void WorkerThreads::run_on_all(Call call, const void* context) {
  call_ = call;
  context_ = context;
  const std::uint32_t round = round_.fetch_add(1, std::memory_order_release) + 1;
  round_.notify_all();
  call(context, 0);
  for (int share = 1; share < count_; ++share) {
    if (!take(share, round)) continue;
    call(context, share);
    at(share).state.store(2 * round + 1, std::memory_order_release);
  }
  for (int share = 1; share < count_; ++share) {
    while (at(share).state.load(std::memory_order_acquire) != 2 * round + 1) {
      await_change(at(share).state, 2 * round);
    }
  }
}

}  // namespace tinyloop
