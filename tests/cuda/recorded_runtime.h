// SPDX-License-Identifier: Apache-2.0
// A stand-in for a GPU and its runtime: device memory that the host cannot touch and beyond which
// work crashes, kernels in the emulator, products in plain loops, and a record of what breaks the
// rules of the real one. Results are right only if the caller orders its work as a GPU demands. Not
// fast.
//
// In the order `late` work begins only when somebody waits for it, so whatever the host does too
// early shows; in the order `early` it is done at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime.h"

namespace tinyloop::cuda {

enum class WorkOrder { early, late };

class RecordedRuntime final : public Runtime {
 public:
  explicit RecordedRuntime(WorkOrder order = WorkOrder::late,
                           std::size_t device_bytes = std::size_t{1} << 30);
  ~RecordedRuntime() override;
  RecordedRuntime(const RecordedRuntime&) = delete;
  RecordedRuntime& operator=(const RecordedRuntime&) = delete;

  // What broke a rule, in order; a test is right only if there is nothing.
  const std::vector<std::string>& faults() const { return faults_; }
  // Looks for what work has written beside its memory; when no work is under way.
  void check_memory();
  // What was put on the stream: "copy_in 64", "gather", "launch 12 steps" ...
  const std::vector<std::string>& log() const { return log_; }
  std::int64_t count(const std::string& entry) const;  // entries of the log that begin with it
  std::size_t device_bytes_held() const { return held_; }
  std::size_t pinned_buffers() const { return pinned_.size(); }
  std::size_t events() const { return events_.size(); }
  std::size_t graphs() const { return graphs_.size(); }
  std::size_t pending() const { return pending_.size(); }
  // The next `count` allocations on the device succeed, those after them are refused.
  void refuse_after(std::int64_t count) { allocations_left_ = count; }
  // The next allocations fail, and later ones do not.
  void refuse_next(std::int64_t count) { refusals_left_ = count; }
  void refuse_graphs(bool refuse) { graphs_refused_ = refuse; }
  // The next launch of a kernel fails, and so does the end of a capture that it was part of.
  void refuse_kernel() { kernel_refused_ = true; }

  std::string device() const override { return "stand-in, 1 GB"; }
  Memory memory() override { return {device_bytes_ - held_, device_bytes_}; }

  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory) override;
  std::byte* allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* memory) override;

  void copy_in(std::byte* to, const std::byte* pinned, std::size_t bytes) override;
  void copy_out(std::byte* pinned, const std::byte* from, std::size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void zero(std::byte* memory, std::size_t bytes) override;
  void kernel(const char* name, const std::function<void(Stream)>& start) override;
  void gemm(const Gemm& gemm) override;

  Event* make_event() override;
  void release(Event* event) override;
  void record(Event* event) override;
  void wait(Event* event) override;
  void wait() override;

  void begin_capture() override;
  Graph* end_capture() override;
  void launch(Graph* graph) override;
  void release(Graph* graph) override;

 private:
  using Work = std::function<void()>;
  void fault(const std::string& text) { faults_.push_back(text); }
  void put(const std::string& entry, Work work, bool may_be_captured);
  void run_until(std::int64_t end);
  void open(bool accessible);
  void check_beside(std::byte* memory, std::size_t bytes);
  void check_device(const std::byte* memory, std::size_t bytes, const std::string& what);
  void check_pinned(const std::byte* memory, std::size_t bytes, const std::string& what);

  WorkOrder order_;
  std::size_t device_bytes_, held_ = 0, used_ = 0;
  std::int64_t allocations_left_ = -1;  // -1: no end
  std::int64_t refusals_left_ = 0;
  std::byte* arena_ = nullptr;
  std::map<std::byte*, std::size_t> device_;     // live
  std::multimap<std::size_t, std::byte*> free_;  // by size in pages
  std::map<std::byte*, std::unique_ptr<std::byte[]>> pinned_;
  std::map<const std::byte*, std::size_t> pinned_bytes_;
  std::map<Event*, std::int64_t> events_;  // the count of works before it
  struct Captured {
    std::vector<Work> works;
    std::vector<std::string> entries;
  };
  std::map<Graph*, std::shared_ptr<Captured>> graphs_;
  std::shared_ptr<Captured> capture_;
  bool graphs_refused_ = false, kernel_refused_ = false, capture_broken_ = false;

  std::deque<Work> pending_;
  std::int64_t done_ = 0;  // works that have run
  std::vector<std::string> faults_, log_;
};

}  // namespace tinyloop::cuda
