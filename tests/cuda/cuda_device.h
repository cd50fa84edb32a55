// SPDX-License-Identifier: Apache-2.0
// A CUDA device for tests: CudaOps on the stand-in or, if TL_CUDA_DEVICE is set, on this machine's
// GPU. At the end of one on the stand-in nothing may be left over and no rule broken.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "cuda/recorded_runtime.h"
#include "cuda_ops.h"
#include "tinyloop/backend.h"

namespace tinyloop {

class CudaDevice {
 public:
  // device_bytes: of the stand-in.
  explicit CudaDevice(cuda::WorkOrder order = cuda::WorkOrder::late, std::size_t memory_limit = 0,
                      std::size_t device_bytes = std::size_t{1} << 30) {
    if (std::getenv("TL_CUDA_DEVICE") != nullptr) {
      ops_ = make_ops("cuda", {.isa = "", .threads = 0, .gpu_memory = memory_limit});
      return;
    }
    auto runtime = std::make_unique<cuda::RecordedRuntime>(order, device_bytes);
    runtime_ = runtime.get();
    ops_ = std::make_unique<CudaOps>(std::move(runtime), cuda::emulated_kernels(), memory_limit);
  }
  ~CudaDevice() {
    ops_->wait();
    if (!emulated()) return;
    runtime_->check_memory();
    CHECK(runtime_->faults().empty());
    for (const std::string& fault : runtime_->faults()) MESSAGE(fault);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  CudaOps& ops() { return dynamic_cast<CudaOps&>(*ops_); }
  bool emulated() const { return runtime_ != nullptr; }
  cuda::RecordedRuntime& runtime() { return *runtime_; }  // if emulated

 private:
  cuda::RecordedRuntime* runtime_ = nullptr;  // owned by the CudaOps
  std::unique_ptr<Ops> ops_;
};

}  // namespace tinyloop
