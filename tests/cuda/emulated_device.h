// SPDX-License-Identifier: Apache-2.0
// CudaOps on the stand-in, for tests. At its end nothing may be left over and no rule broken.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "cuda/recorded_runtime.h"
#include "cuda_ops.h"

namespace tinyloop {

class EmulatedDevice {
 public:
  explicit EmulatedDevice(cuda::WorkOrder order = cuda::WorkOrder::late,
                          std::size_t memory_limit = 0,
                          std::size_t device_bytes = std::size_t{1} << 30) {
    auto runtime = std::make_unique<cuda::RecordedRuntime>(order, device_bytes);
    runtime_ = runtime.get();
    ops_ = std::make_unique<CudaOps>(std::move(runtime), cuda::emulated_kernels(), memory_limit);
  }
  ~EmulatedDevice() {
    ops_->wait();
    CHECK(runtime_->faults().empty());
    for (const std::string& fault : runtime_->faults()) MESSAGE(fault);
  }
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

  CudaOps& ops() { return *ops_; }
  cuda::RecordedRuntime& runtime() { return *runtime_; }

 private:
  cuda::RecordedRuntime* runtime_;  // owned by the CudaOps
  std::unique_ptr<CudaOps> ops_;
};

}  // namespace tinyloop
