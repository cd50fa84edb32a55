// SPDX-License-Identifier: Apache-2.0
// The CUDA Toolkit's runtime, and the only file that includes its headers. cuBLAS is
// loaded when the first product needs it: it is large, and a tool that runs on the CPU should not
// wait for it.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "cuda_ops.h"
#include "runtime.h"
#include "tinyloop/error.h"

namespace tinyloop::cuda {
namespace {

constexpr std::size_t kGemmWorkspace = std::size_t{32} << 20;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or it would be told again at the next launch
  throw Error(ErrorKind::device, "cuda: {}: {}", what, cudaGetErrorString(error));
}

cudaEvent_t native(Event* event) { return reinterpret_cast<cudaEvent_t>(event); }
cudaGraphExec_t native(Graph* graph) { return reinterpret_cast<cudaGraphExec_t>(graph); }

// cublasGemmEx, of which the header has two.
using GemmEx = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int n, int rows,
                              int k, const void* alpha, const void* a, cudaDataType, int lda,
                              const void* b, cudaDataType, int ldb, const void* beta, void* c,
                              cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t);

// The functions of cuBLAS that are used.
class Blas {
 public:
  Blas() {
    const std::string name = fmt::format("libcublas.so.{}", CUDART_VERSION / 1000);
    library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    // Where the toolkit was at build time; the dynamic linker may not know it.
    const std::string first_fault = library_ == nullptr ? dlerror() : "";
    if (library_ == nullptr) {
      library_ = dlopen((TL_CUDA_LIBRARIES "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (library_ == nullptr) throw Error(ErrorKind::device, "cuda: {}", first_fault);
    find(create_, "cublasCreate_v2");
    find(destroy_, "cublasDestroy_v2");
    find(set_stream_, "cublasSetStream_v2");
    find(set_workspace_, "cublasSetWorkspace_v2");
    find(set_math_mode_, "cublasSetMathMode");
    find(gemm_, "cublasGemmEx");
  }
  ~Blas() {
    if (handle_ != nullptr) destroy_(handle_);
    // The library stays: it has threads and handlers of its own.
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  void open(cudaStream_t stream, void* workspace, std::size_t bytes) {
    check(create_(&handle_), "cublasCreate");
    check(set_stream_(handle_, stream), "cublasSetStream");
    check(set_workspace_(handle_, workspace, bytes), "cublasSetWorkspace");
    // f32 products stay f32, and sums are never kept in less than f32.
    check(set_math_mode_(
              handle_, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                                 CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
          "cublasSetMathMode");
  }

  // cuBLAS thinks in columns: its y is ours transposed.
  void multiply(const Gemm& g) {
    const float one = 1.0f, zero = 0.0f;
    const cudaDataType type = g.type == PlainType::f32   ? CUDA_R_32F
                              : g.type == PlainType::f16 ? CUDA_R_16F
                                                         : CUDA_R_16BF;
    const auto n = static_cast<int>(g.n), rows = static_cast<int>(g.rows),
               k = static_cast<int>(g.k);
    check(gemm_(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n, rows, k, &one, g.w, type, k, g.x, type, k,
                &zero, g.y, CUDA_R_32F, static_cast<int>(g.y_stride), CUBLAS_COMPUTE_32F,
                CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

 private:
  template <typename Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) throw Error(ErrorKind::device, "cuda: {}", dlerror());
  }
  static void check(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw Error(ErrorKind::device, "cuda: {}: status {}", what, static_cast<int>(status));
    }
  }

  void* library_ = nullptr;
  decltype(cublasCreate_v2)* create_ = nullptr;
  decltype(cublasDestroy_v2)* destroy_ = nullptr;
  decltype(cublasSetStream_v2)* set_stream_ = nullptr;
  decltype(cublasSetWorkspace_v2)* set_workspace_ = nullptr;
  decltype(cublasSetMathMode)* set_math_mode_ = nullptr;
  GemmEx* gemm_ = nullptr;
  cublasHandle_t handle_ = nullptr;
};

std::string describe(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return fmt::format("{}, {:.0f} GB", properties.name,
                     static_cast<double>(properties.totalGlobalMem) / 1e9);
}

class ToolkitRuntime final : public Runtime {
 public:
  ToolkitRuntime() {
    int count = 0, driver = 0;
    // Without a driver the toolkit says that it is too old.
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
      throw Error(ErrorKind::device, "cuda: no CUDA device: this machine has no NVIDIA driver");
    }
    check(cudaGetDeviceCount(&count), "no device");
    if (count == 0) throw Error(ErrorKind::device, "cuda: no device");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    name_ = describe(0);
    const int arch = properties.major * 10 + properties.minor;
    if (arch < TL_LEAST_GPU_ARCH) {
      throw Error(ErrorKind::device, "cuda: {}: compute capability {}.{}, this build needs {}.{}",
                  name_, properties.major, properties.minor, TL_LEAST_GPU_ARCH / 10,
                  TL_LEAST_GPU_ARCH % 10);
    }
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~ToolkitRuntime() override {
    blas_.reset();
    if (gemm_workspace_ != nullptr) cudaFree(gemm_workspace_);
    cudaStreamDestroy(stream_);
  }

  std::string device() const override { return name_; }
  Memory memory() override {
    Memory memory;
    check(cudaMemGetInfo(&memory.free, &memory.total), "cudaMemGetInfo");
    return memory;
  }

  std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    return refused(error, "cudaMalloc") ? nullptr : static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override { cudaFree(memory); }
  std::byte* allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMallocHost(&memory, bytes);
    return refused(error, "cudaMallocHost") ? nullptr : static_cast<std::byte*>(memory);
  }
  void release_pinned(std::byte* memory) override { cudaFreeHost(memory); }

  void copy_in(std::byte* to, const std::byte* pinned, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, stream_), "copy to device");
  }
  void copy_out(std::byte* pinned, const std::byte* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, stream_),
          "copy from device");
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
  }
  void zero(std::byte* memory, std::size_t bytes) override {
    check(cudaMemsetAsync(memory, 0, bytes, stream_), "zero");
  }
  void kernel(const char* name, const std::function<void(Stream)>& start) override {
    start(stream_);
    check(cudaGetLastError(), name);
  }
  void gemm(const Gemm& gemm) override {
    if (!blas_) {
      auto blas = std::make_unique<Blas>();
      if (gemm_workspace_ == nullptr) gemm_workspace_ = allocate(kGemmWorkspace);
      if (gemm_workspace_ == nullptr) {
        throw Error(ErrorKind::device, "cuda: {} bytes for cuBLAS refused", kGemmWorkspace);
      }
      blas->open(stream_, gemm_workspace_, kGemmWorkspace);
      blas_ = std::move(blas);
    }
    blas_->multiply(gemm);
  }

  Event* make_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    return reinterpret_cast<Event*>(event);
  }
  void release(Event* event) override { cudaEventDestroy(native(event)); }
  void record(Event* event) override {
    check(cudaEventRecord(native(event), stream_), "cudaEventRecord");
  }
  void wait(Event* event) override { check(cudaEventSynchronize(native(event)), "device"); }
  void wait() override { check(cudaStreamSynchronize(stream_), "device"); }

  void begin_capture() override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin of capture");
  }
  Graph* end_capture() override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "end of capture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    return refused(error, "cudaGraphInstantiate") ? nullptr : reinterpret_cast<Graph*>(executable);
  }
  void launch(Graph* graph) override {
    check(cudaGraphLaunch(native(graph), stream_), "cudaGraphLaunch");
  }
  void release(Graph* graph) override { cudaGraphExecDestroy(native(graph)); }

 private:
  // No memory is an answer, anything else a failure.
  static bool refused(cudaError_t error, const char* what) {
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return true;
    }
    check(error, what);
    return false;
  }

  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Blas> blas_;
  std::byte* gemm_workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Runtime> open_device() { return std::make_unique<ToolkitRuntime>(); }

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return names;
  }
  for (int device = 0; device < count; ++device) names.push_back(describe(device));
  return names;
}

}  // namespace tinyloop::cuda

namespace tinyloop {

std::unique_ptr<CudaOps> open_cuda_ops(std::size_t memory_limit) {
  return std::make_unique<CudaOps>(cuda::open_device(), cuda::device_kernels(), memory_limit);
}

}  // namespace tinyloop
