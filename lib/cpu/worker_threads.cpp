// SPDX-License-Identifier: Apache-2.0
// Fork and join with two atomic counters. A thread that waits spins for some microseconds, then
// blocks in the kernel. Spinning beyond the number of CPUs is ruin (ggml PR 13079), blocking at
// once costs 10 us a piece of work: hence both.
#include "cpu/worker_threads.h"

#include <sched.h>

#include <system_error>

#include "error.h"

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

void WorkerThreads::serve(int worker) {
  for (std::uint32_t round = 0;; ++round) {
    await_change(round_, round);
    if (call_ == nullptr) return;
    call_(context_, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

void WorkerThreads::run_on_all(Call call, const void* context) {
  call_ = call;
  context_ = context;
  pending_.store(static_cast<std::uint32_t>(count_ - 1), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  call(context, 0);
  for (std::uint32_t left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire)) {
    await_change(pending_, left);
  }
}

}  // namespace tinyloop
