// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads that run one piece of work together and wait for each other (fork and
// join). No queue: a piece of work has one share for each thread, fixed by (work, number of
// threads), and so are the results, whoever does a share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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

  // Calls work(share) once for each share 0 .. count()-1, 0 on the caller's thread, the others at
  // the same time on one of their own; returns when all are done. A share whose thread has not come
  // by the time the caller is done with its own, as on a busy machine, is done by the caller. One
  // run at a time; work must not throw.
  template <typename Work>
  void run(const Work& work) {
    if (count_ == 1) {
      work(0);
      return;
    }
    run_on_all([](const void* context, int share) { (*static_cast<const Work*>(context))(share); },
               &work);
  }

  // The items of one share: contiguous, sizes differ by at most one.
  static Range share(std::int64_t items, int shares, int share) {
    return {items * share / shares, items * (share + 1) / shares};
  }

  // CPUs in this process's affinity mask, or fewer where a control group grants less of their time
  // (rounded up).
  static int usable_cpus();

 private:
  static int cpus_in_mask();
  using Call = void (*)(const void* context, int share);
  // Twice the latest round in which somebody took the share, and one more if it is done.
  struct alignas(64) Share {
    std::atomic<std::uint32_t> state = 1;
  };

  void run_on_all(Call call, const void* context);
  void serve(int share);
  Share& at(int share) { return shares_[static_cast<std::size_t>(share)]; }
  bool take(int share, std::uint32_t round);
  void stop();
  void await_change(std::atomic<std::uint32_t>& value, std::uint32_t old) const;

  int count_;
  bool spin_;  // only where every thread has a CPU: a spinning thread must not keep a working one
               // from it
  Call call_ = nullptr;  // null: end
  const void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> round_ = 0;  // raised for each piece of work
  std::unique_ptr<Share[]> shares_;                   // of the threads, so without number 0
  std::vector<std::jthread> threads_;
};

}  // namespace tinyloop
