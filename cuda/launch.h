// SPDX-License-Identifier: Apache-2.0
// The thin layer that the kernels are written against, and the only place with `#if`s for the
// compiler: nvcc for a device, or a host compiler for the emulator. No kernel, no memory.
//
// Blocks are one-dimensional, a multiple of 32 threads; all lanes of a warp take part in every
// exchange; shared memory is one dynamic piece. Floating point is what is written: fused where
// fma() is called and nowhere else (-fmad=false, -ffp-contract=off).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

#if defined(__CUDACC__)

#include <cuda_fp16.h>

#define TL_GLOBAL __global__
#define TL_GLOBAL_OF(threads) __global__ __launch_bounds__(threads)
#define TL_DEVICE __device__ __forceinline__
#define TL_PRAGMA(text) _Pragma(#text)
#define TL_UNROLL TL_PRAGMA(unroll)
#define TL_UNROLL_BY(count) TL_PRAGMA(unroll count)
#define TL_KERNELS_NAMESPACE on_device
#define TL_KERNEL_TABLE device_kernels

namespace tinyloop::cuda {
namespace {

struct Grid {
  std::uint32_t x = 1, y = 1;
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, std::uint32_t threads,
            std::size_t shared_bytes, Stream stream, Arguments... arguments) {
  kernel<<<dim3(grid.x, grid.y), threads, shared_bytes, stream>>>(
      static_cast<Parameters>(arguments)...);
}

TL_DEVICE std::uint32_t thread_index() { return threadIdx.x; }
TL_DEVICE std::uint32_t block_threads() { return blockDim.x; }
TL_DEVICE std::uint32_t block_x() { return blockIdx.x; }
TL_DEVICE std::uint32_t block_y() { return blockIdx.y; }

extern __shared__ __align__(16) unsigned char tinyloop_shared[];
TL_DEVICE unsigned char* shared_memory() { return tinyloop_shared; }

TL_DEVICE void barrier() { __syncthreads(); }
TL_DEVICE void warp_barrier() { __syncwarp(); }
TL_DEVICE std::uint32_t exchange_xor(std::uint32_t value, std::uint32_t mask) {
  return __shfl_xor_sync(0xffffffffu, value, static_cast<int>(mask));
}

// Orders what this thread, and whoever met it at a barrier, did before against what it does later,
// for all blocks.
TL_DEVICE void fence() { __threadfence(); }
TL_DEVICE std::int32_t atomic_add(std::int32_t* at, std::int32_t value) {
  return atomicAdd(at, value);
}
TL_DEVICE void atomic_or(std::uint32_t* at, std::uint32_t bits) { atomicOr(at, bits); }
TL_DEVICE void atomic_and(std::uint32_t* at, std::uint32_t bits) { atomicAnd(at, bits); }

// Tells the compiler that a pointer that came out of a table is one to global memory.
template <typename T>
TL_DEVICE T* in_global(T* at) {
  __builtin_assume(__isGlobal(at));
  return at;
}
// What is read once, past the caches; what other blocks have written in this launch.
TL_DEVICE uint4 load_once(const uint4* at) { return __ldcs(at); }
TL_DEVICE float load_written(const float* at) { return __ldcg(at); }
TL_DEVICE void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

TL_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
TL_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
TL_DEVICE float square_root(float a) { return __fsqrt_rn(a); }
TL_DEVICE std::int32_t round_to_int(float a) { return __float2int_rn(a); }  // ties to even; NaN: 0
TL_DEVICE float float_of(std::uint32_t bits) { return __uint_as_float(bits); }
TL_DEVICE std::uint32_t bits_of(float a) { return __float_as_uint(a); }
// acc + the dot product of four signed bytes with four signed bytes
TL_DEVICE std::int32_t dot_bytes(std::uint32_t a, std::uint32_t b, std::int32_t acc) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), acc);
}
// Four of the eight bytes of `high` and `low`, by the low three bits of the four low half bytes of
// `which`; a fourth bit must not be set.
TL_DEVICE std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
  return __byte_perm(low, high, which);
}
TL_DEVICE float widen_f16(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
TL_DEVICE std::uint16_t narrow_f16(float a) { return __half_as_ushort(__float2half_rn(a)); }

}  // namespace
}  // namespace tinyloop::cuda

#else

#include <bit>
#include <cmath>

#include "emulator.h"
#include "tinyloop/number_formats.h"

#define TL_GLOBAL
#define TL_GLOBAL_OF(threads)
#define TL_DEVICE inline
#define TL_UNROLL
#define TL_UNROLL_BY(count)
#define TL_KERNELS_NAMESPACE emulated
#define TL_KERNEL_TABLE emulated_kernels

struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace tinyloop::cuda {
namespace {

using Grid = emulator::Grid;

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, std::uint32_t threads,
            std::size_t shared_bytes, Stream, Arguments... arguments) {
  emulator::run(grid, threads, shared_bytes,
                [&] { kernel(static_cast<Parameters>(arguments)...); });
}

TL_DEVICE std::uint32_t thread_index() { return emulator::place().thread; }
TL_DEVICE std::uint32_t block_threads() { return emulator::place().threads; }
TL_DEVICE std::uint32_t block_x() { return emulator::place().block.x; }
TL_DEVICE std::uint32_t block_y() { return emulator::place().block.y; }

TL_DEVICE unsigned char* shared_memory() {
  return reinterpret_cast<unsigned char*>(emulator::shared_memory());
}

TL_DEVICE void barrier(int line = __builtin_LINE()) { emulator::block_barrier(line); }
TL_DEVICE void warp_barrier(int line = __builtin_LINE()) { emulator::exchange(0, 0, line); }
TL_DEVICE std::uint32_t exchange_xor(std::uint32_t value, std::uint32_t mask,
                                     int line = __builtin_LINE()) {
  return emulator::exchange(value, emulator::place().thread ^ mask, line);
}

TL_DEVICE void fence() {}
TL_DEVICE std::int32_t atomic_add(std::int32_t* at, std::int32_t value) {
  const std::int32_t before = *at;
  *at += value;
  return before;
}
TL_DEVICE void atomic_or(std::uint32_t* at, std::uint32_t bits) { *at |= bits; }
TL_DEVICE void atomic_and(std::uint32_t* at, std::uint32_t bits) { *at &= bits; }

template <typename T>
TL_DEVICE T* in_global(T* at) {
  return at;
}
TL_DEVICE uint4 load_once(const uint4* at) { return *at; }
TL_DEVICE float load_written(const float* at) { return *at; }
TL_DEVICE void prefetch(const void*) {}

TL_DEVICE float fma(float a, float b, float c) { return std::fma(a, b, c); }
TL_DEVICE float divide(float a, float b) { return a / b; }
TL_DEVICE float square_root(float a) { return std::sqrt(a); }
TL_DEVICE std::int32_t round_to_int(float a) {
  return a != a ? 0 : static_cast<std::int32_t>(std::nearbyint(a));
}
TL_DEVICE float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
TL_DEVICE std::uint32_t bits_of(float a) { return std::bit_cast<std::uint32_t>(a); }
TL_DEVICE std::int32_t dot_bytes(std::uint32_t a, std::uint32_t b, std::int32_t acc) {
  for (int shift = 0; shift < 32; shift += 8) {
    acc += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
  }
  return acc;
}
TL_DEVICE std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
  const std::uint64_t both = (std::uint64_t{high} << 32) | low;
  std::uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t byte = (which >> (4 * i)) & 7u;
    chosen |= static_cast<std::uint32_t>((both >> (8 * byte)) & 0xffu) << (8 * i);
  }
  return chosen;
}
TL_DEVICE float widen_f16(std::uint16_t bits) { return half_to_float(bits); }
TL_DEVICE std::uint16_t narrow_f16(float a) { return float_to_half(a); }

}  // namespace
}  // namespace tinyloop::cuda

#endif

namespace tinyloop::cuda {

// Each .cu enters its functions into the table.
namespace TL_KERNELS_NAMESPACE {
void enter_rows(Kernels& table);
void enter_matmul(Kernels& table);
void enter_kv(Kernels& table);
void enter_attention(Kernels& table);
void enter_top_k(Kernels& table);
}  // namespace TL_KERNELS_NAMESPACE

}  // namespace tinyloop::cuda
