// SPDX-License-Identifier: Apache-2.0
// The CUDA device under test, for checks that call its kernels past ops.h. Knows no kernel.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "cuda_ops.h"

namespace tinyloop {

CudaOps& tested_cuda();

// Working memory of exactly the size that was asked for, with a guard behind it.
class GuardedWorkspace {
 public:
  GuardedWorkspace(CudaOps& ops, std::size_t bytes);
  cuda::Workspace workspace() const;
  // True if the guard is as it was and the counters are zero again.
  bool is_intact() const;

 private:
  CudaOps& ops_;
  std::size_t bytes_;
  DeviceBuffer data_, counters_;
};

// Puts a kernel on the stream after everything that was asked for before.
template <typename... Parameters, typename... Arguments>
void run_kernel(CudaOps& ops, void (*kernel)(Parameters...), Arguments... arguments) {
  ops.submit();
  ops.runtime().kernel("kernel under test",
                       [=](cuda::Stream stream) { kernel(arguments..., stream); });
}

// Values in device memory and back.
template <typename T>
DeviceBuffer on_device(CudaOps& ops, std::span<const T> values) {
  DeviceBuffer buffer(ops, values.size_bytes());
  ops.upload(buffer.ptr(), values.data(), values.size_bytes());
  return buffer;
}
template <typename T>
T* as(const DeviceBuffer& buffer) {
  return reinterpret_cast<T*>(buffer.ptr().address);
}
template <typename T>
std::vector<T> read_back(CudaOps& ops, const DeviceBuffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  ops.download(values.data(), buffer.ptr(), values.size() * sizeof(T));
  return values;
}

}  // namespace tinyloop
