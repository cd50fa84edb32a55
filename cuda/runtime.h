// SPDX-License-Identifier: Apache-2.0
// The calls of the CUDA runtime and of cuBLAS that the backend makes, so that tests can replace
// them with a recording stand-in. One device, one stream. No policy: cuda_ops and its parts decide
// what is called when.
//
// Unless it says otherwise, a function enqueues its work and returns; work runs in the
// order it was put there. Failures throw Error(device), those of the work itself at a later call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"

namespace tinyloop::cuda {

struct Event;  // a point of the stream
struct Graph;  // captured work, ready to be launched

// y[rows][n] = x[rows][k] * w[n][k]^T; x and w dense, y with a stride, sums in f32.
struct Gemm {
  float* y = nullptr;
  std::int64_t y_stride = 0;  // floats
  const void* x = nullptr;
  const void* w = nullptr;
  PlainType type = PlainType::f16;  // of x and w
  std::int64_t rows = 0, n = 0, k = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual std::string device() const = 0;  // "NVIDIA H200, 141 GB"
  struct Memory {
    std::size_t free = 0, total = 0;
  };
  virtual Memory memory() = 0;

  // Null where it is refused. Never inside a capture. Memory is released when no work that uses it
  // can be under way.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  virtual std::byte* allocate_pinned(std::size_t bytes) = 0;  // host memory that copies may use
  virtual void release_pinned(std::byte* memory) = 0;

  // The pinned side must stay as it is until the copy is done.
  virtual void copy_in(std::byte* to, const std::byte* pinned, std::size_t bytes) = 0;
  virtual void copy_out(std::byte* pinned, const std::byte* from, std::size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void zero(std::byte* memory, std::size_t bytes) = 0;
  // Calls start(stream), which launches kernels; `name` is for messages.
  virtual void kernel(const char* name, const std::function<void(Stream)>& start) = 0;
  virtual void gemm(const Gemm& gemm) = 0;  // never inside a capture: it may allocate

  virtual Event* make_event() = 0;
  virtual void release(Event* event) = 0;
  virtual void record(Event* event) = 0;
  virtual void wait(Event* event) = 0;  // on the host
  virtual void wait() = 0;              // on the host, for all work

  // Between them copies on the device, zeroing and kernels are noted, not done.
  virtual void begin_capture() = 0;
  virtual Graph* end_capture() = 0;  // null where there is no memory for it
  virtual void launch(Graph* graph) = 0;
  virtual void release(Graph* graph) = 0;
};

// The first device of this machine. Throws Error(device) with the reason where there is none that
// can be used.
std::unique_ptr<Runtime> open_device();
// What devices there are, in words; empty where there are none.
std::vector<std::string> device_names();

}  // namespace tinyloop::cuda
