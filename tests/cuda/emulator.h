// SPDX-License-Identifier: Apache-2.0
// Runs kernels as host C++, for tests: every thread a fibre, with real barriers and warp exchanges,
// block by block or several blocks beside each other. Not a model of time, of caches or of races
// inside a warp: but different orders of threads give different results where a barrier is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tinyloop::cuda::emulator {

struct Grid {
  std::uint32_t x = 1, y = 1;
};

// Where the running thread of the kernel stands.
struct Place {
  std::uint32_t thread = 0, threads = 0;
  Grid block, grid;
};
const Place& place();

// Calls body once for each thread of each block, every block with its own shared memory, filled
// with ones (NaN) before. Throws std::logic_error, and abandons the kernel, where
//   - a barrier is not reached by all threads of the block, or from different lines,
//   - an exchange is not reached by all 32 lanes of the warp, or from different lines,
//   - the launch is beyond what devices allow.
void run(Grid grid, std::uint32_t threads, std::size_t shared_bytes,
         const std::function<void()>& body);

// From inside a kernel. `line` names the place in errors.
std::byte* shared_memory();
void block_barrier(int line);
// Gives `value` to the other lanes of the warp and returns that of `source`.
std::uint32_t exchange(std::uint32_t value, std::uint32_t source, int line);

// The order in which blocks, and threads between two barriers, run: of this host thread. Mixed: as
// many blocks as have 1024 threads run beside each other, each a few threads at a time by chance,
// which is the same in every run.
enum class Order { forward, backward, mixed };
void set_order(Order order);

}  // namespace tinyloop::cuda::emulator
