// SPDX-License-Identifier: Apache-2.0
// The devices that the kernel checks of the GPU run on: the CPU's portable kernels, whose bits the
// others must repeat, and the CUDA operations, in the emulator or, if TL_CUDA_DEVICE is set, on
// this machine's GPU. TL_EMULATOR_ORDER=backward or mixed runs threads and blocks in another order.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "cuda/recorded_runtime.h"
#include "cuda/tested_cuda.h"
#include "emulator.h"
#include "kernels/kernel_runs.h"
#include "tinyloop/backend.h"

namespace tinyloop {
namespace {

constexpr std::size_t kGuardBytes = 256;

class Devices {
 public:
  Devices() {
    devices_.push_back({"portable x 1", make_ops("cpu", {"portable", 1})});
    if (std::getenv("TL_CUDA_DEVICE") != nullptr) {
      devices_.push_back({"cuda", make_ops("cuda", {})});
      return;
    }
    const char* order = std::getenv("TL_EMULATOR_ORDER");
    const std::string_view name = order == nullptr ? "forward" : order;
    cuda::emulator::set_order(name == "backward" ? cuda::emulator::Order::backward
                              : name == "mixed"  ? cuda::emulator::Order::mixed
                                                 : cuda::emulator::Order::forward);
    auto runtime = std::make_unique<cuda::RecordedRuntime>();
    runtime_ = runtime.get();
    devices_.push_back(
        {fmt::format("emulated, {}", name),
         std::make_unique<CudaOps>(std::move(runtime), cuda::emulated_kernels(), 0)});
  }
  // Rules that were broken: the tests are over, so all that is left is to fail.
  ~Devices() {
    if (runtime_ == nullptr) {
      // A GPU's runtime may be gone when static objects end; the process gives its memory back.
      for (TestedDevice& device : devices_) static_cast<void>(device.ops.release());
      return;
    }
    devices_.back().ops->wait();
    runtime_->check_memory();
    if (runtime_->faults().empty()) return;
    for (const std::string& fault : runtime_->faults()) fmt::print(stderr, "{}\n", fault);
    std::_Exit(1);
  }

  std::span<const TestedDevice> all() const { return devices_; }

 private:
  std::vector<TestedDevice> devices_;
  cuda::RecordedRuntime* runtime_ = nullptr;  // owned by the last device
};

}  // namespace

std::span<const TestedDevice> tested_devices() {
  static const Devices devices;
  return devices.all();
}

CudaOps& tested_cuda() { return dynamic_cast<CudaOps&>(*tested_devices().back().ops); }

GuardedWorkspace::GuardedWorkspace(CudaOps& ops, std::size_t bytes)
    : ops_(ops),
      bytes_(bytes),
      data_(ops, bytes + kGuardBytes),
      counters_(ops, cuda::kCounters * sizeof(std::int32_t)) {
  const std::vector<std::byte> ones(bytes + kGuardBytes, std::byte{0xff});
  ops.upload(data_.ptr(), ones.data(), ones.size());
}

cuda::Workspace GuardedWorkspace::workspace() const {
  return {data_.ptr().address, as<std::int32_t>(counters_)};
}

bool GuardedWorkspace::is_intact() const {
  const std::vector<std::byte> data = read_back<std::byte>(ops_, data_);
  const std::vector<std::int32_t> counters = read_back<std::int32_t>(ops_, counters_);
  return std::all_of(data.begin() + static_cast<std::ptrdiff_t>(bytes_), data.end(),
                     [](std::byte byte) { return byte == std::byte{0xff}; }) &&
         std::all_of(counters.begin(), counters.end(), [](std::int32_t n) { return n == 0; });
}

}  // namespace tinyloop
