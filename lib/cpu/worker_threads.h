// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads that run one piece of work together and wait for each other (fork and
// join). No queue, no stealing: who does what is fixed by (work, number of threads), and so are the
// results.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tinyloop {

struct Range {
  std::int64_t first = 0, end = 0;
};

class WorkerThreads {
 public:
  // threads 0: as many as the CPUs this process may use. The caller of run() is one of them. Throws
  // Error(usage) for a negative or absurd number, Error(device) if the system refuses a thread.
  explicit WorkerThreads(int threads);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  int count() const { return count_; }

  // Calls work(worker) for each worker 0 .. count()-1, each on its own thread, 0 on the caller's;
  // returns when all are done. One run at a time; work must not throw.
  template <typename Work>
  void run(const Work& work) {
    if (count_ == 1) {
      work(0);
      return;
    }
    run_on_all(
        [](const void* context, int worker) { (*static_cast<const Work*>(context))(worker); },
        &work);
  }

  // The items of one worker: contiguous, sizes differ by at most one.
  static Range share(std::int64_t items, int workers, int worker) {
    return {items * worker / workers, items * (worker + 1) / workers};
  }

  // CPUs in this process's affinity mask.
  static int usable_cpus();

 private:
  using Call = void (*)(const void* context, int worker);

  void run_on_all(Call call, const void* context);
  void serve(int worker);
  void stop();
  void await_change(std::atomic<std::uint32_t>& value, std::uint32_t old) const;

  int count_;
  bool spin_;  // only where every thread has a CPU: a spinning thread must not keep a working one
               // from it
  Call call_ = nullptr;  // null: end
  const void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> round_ = 0;    // raised for each piece of work
  alignas(64) std::atomic<std::uint32_t> pending_ = 0;  // workers not done yet, without the caller
  std::vector<std::jthread> threads_;
};

}  // namespace tinyloop
