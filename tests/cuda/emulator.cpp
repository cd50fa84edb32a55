// SPDX-License-Identifier: Apache-2.0
// Fibres on stacks of their own and a scheduler that goes round. Knows nothing of what a kernel
// does.
#include "emulator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tinyloop::cuda::emulator {
namespace {

// --- switching stacks ---------------------------------------------------------------------------
// By hand on x86-64: swapcontext asks the kernel for the signal mask, which is twenty times slower.

#if defined(__x86_64__)
extern "C" void tinyloop_switch_stack(void** from, void* to);
asm(R"(
  .text
  .type tinyloop_switch_stack, @function
tinyloop_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tinyloop_switch_stack, . - tinyloop_switch_stack
)");

struct Context {
  void* stack_pointer = nullptr;

  void prepare(std::byte* stack, std::size_t bytes, void (*entry)()) {
    auto* top = reinterpret_cast<std::uintptr_t*>(stack + bytes);
    *--top = 0;  // where entry would return to; it never does
    *--top = reinterpret_cast<std::uintptr_t>(entry);
    top -= 6;  // the saved registers
    std::fill_n(top, 6, std::uintptr_t{0});
    stack_pointer = top;
  }
  void switch_to(Context& other) { tinyloop_switch_stack(&stack_pointer, other.stack_pointer); }
};
#else
struct Context {
  ucontext_t context;

  void prepare(std::byte* stack, std::size_t bytes, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
  }
  void switch_to(Context& other) { swapcontext(&context, &other.context); }
};
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = std::size_t{1} << 18;
#else
constexpr std::size_t kStackBytes = std::size_t{1} << 16;
#endif

constexpr std::uint32_t kMostThreads = 1024;
constexpr std::uint32_t kWarp = 32;
constexpr std::size_t kMostSharedBytes = 48 * 1024;  // what needs no request on any device

// How many threads run on before another block has its turn, where blocks run beside each other.
constexpr std::uint32_t kLongestTurn = 600;

// A place where several threads wait for each other.
struct Meeting {
  std::uint32_t expected = 0, arrived = 0;
  std::uint32_t generation = 0;  // how often all have met
  int line = 0;                  // of the first that arrived
};

struct Warp {
  Meeting meeting;
  std::uint32_t given[kWarp], taken[kWarp];  // taken: what was given when all had met
};

// A block that runs.
struct Block {
  Grid place;
  Meeting barrier;
  std::vector<Warp> warps;
  std::unique_ptr<std::byte[]> shared;
  std::uint32_t alive = 0;  // threads
};

struct Fibre {
  Context context;
  bool ended = true;
  const Meeting* waits_at = nullptr;
  std::uint32_t generation = 0;  // of the meeting when the wait began
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_fibre = nullptr;
#endif

  bool can_run() const { return !ended && (!waits_at || waits_at->generation != generation); }
};

class Emulator {
 public:
  ~Emulator();
  void run(Grid grid, std::uint32_t threads, std::size_t shared_bytes,
           const std::function<void()>& body);
  void meet(Meeting& meeting, int line);
  void block_barrier(int line) { meet(block().barrier, line); }
  std::uint32_t exchange(std::uint32_t value, std::uint32_t source, int line);
  std::byte* shared_memory() { return block().shared.get(); }

  Place place;
  Order order = Order::forward;

 private:
  static void enter();
  void live();
  void reserve(std::uint32_t fibres);
  std::byte* stack(std::uint32_t fibre) { return stacks_ + fibre * kStackBytes; }
  void prepare(std::uint32_t fibre);
  Block& block() { return blocks_[running_fibre_ / place.threads]; }
  void run_blocks();
  bool take_turn();                  // false if nobody can run
  void resume(std::uint32_t fibre);  // from the scheduler into a fibre
  void pause();                      // from the running fibre into the scheduler
  void fail(std::string what);       // from inside a fibre; does not return
  [[noreturn]] void abandon(std::string what);
  std::string where() const;

  std::byte* stacks_ = nullptr;
  std::deque<Fibre> fibres_;   // of all blocks; suspended fibres hold references to theirs
  std::vector<Block> blocks_;  // that run beside each other
  std::uint32_t running_fibre_ = 0;
  std::uint32_t chance_ = 0;  // of the order `mixed`
  const std::function<void()>* body_ = nullptr;
  bool running_ = false;
  std::string failure_;
  std::exception_ptr thrown_;
  Context scheduler_;
#if defined(__SANITIZE_ADDRESS__)
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
  void* scheduler_fake_stack_ = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_scheduler_ = nullptr;
#endif
};

thread_local Emulator emulator;

Emulator::~Emulator() {
#if defined(__SANITIZE_THREAD__)
  for (Fibre& fibre : fibres_) __tsan_destroy_fiber(fibre.tsan_fibre);
#endif
  if (stacks_ != nullptr) munmap(stacks_, kMostThreads * kStackBytes);
}

// The first thing a fibre does, and the only thing: it lives on from block to block.
void Emulator::enter() { emulator.live(); }

void Emulator::live() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
  for (;;) {
    try {
      (*body_)();
    } catch (...) {
      thrown_ = std::current_exception();
    }
    fibres_[running_fibre_].ended = true;
    --block().alive;
    pause();
  }
}

void Emulator::prepare(std::uint32_t index) {
  Fibre& fibre = fibres_[index];
  fibre.context.prepare(stack(index), kStackBytes, &Emulator::enter);
#if defined(__SANITIZE_ADDRESS__)
  fibre.fake_stack = nullptr;
  // Of a kernel that was abandoned; its frames never end.
  __asan_unpoison_memory_region(stack(index), kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  if (fibre.tsan_fibre != nullptr) __tsan_destroy_fiber(fibre.tsan_fibre);
  fibre.tsan_fibre = __tsan_create_fiber(0);
#endif
}

void Emulator::reserve(std::uint32_t fibres) {
  if (stacks_ == nullptr) {
    void* memory = mmap(nullptr, kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for the stacks of a block");
    stacks_ = static_cast<std::byte*>(memory);
    // The lowest page of each stack stays closed, so that an overflow is a crash and not a riddle.
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (std::uint32_t t = 0; t < kMostThreads; ++t) mprotect(stack(t), page, PROT_NONE);
  }
  while (fibres_.size() < fibres) {
    fibres_.emplace_back();
    prepare(static_cast<std::uint32_t>(fibres_.size() - 1));
  }
}

void Emulator::resume(std::uint32_t index) {
  Fibre& fibre = fibres_[index];
  running_fibre_ = index;
  place.thread = index % place.threads;
  place.block = block().place;
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(fibre.tsan_fibre, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stack(index), kStackBytes);
#endif
  scheduler_.switch_to(fibre.context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

void Emulator::pause() {
  Fibre& fibre = fibres_[running_fibre_];
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan_scheduler_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fibre.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
#endif
  fibre.context.switch_to(scheduler_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fibre.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

std::string Emulator::where() const {
  return "block (" + std::to_string(place.block.x) + ", " + std::to_string(place.block.y) + ")";
}

void Emulator::fail(std::string what) {
  failure_ = where() + ", thread " + std::to_string(place.thread) + ": " + std::move(what);
  pause();
}

// Fibres that stand in the middle of a kernel start anew at the next launch; what they hold is
// plain memory.
void Emulator::abandon(std::string what) {
  for (std::uint32_t t = 0; t < fibres_.size(); ++t) {
    if (!fibres_[t].ended) prepare(t);
    fibres_[t].ended = true;
  }
  running_ = false;
  throw std::logic_error(std::move(what));
}

void Emulator::meet(Meeting& meeting, int line) {
  if (meeting.arrived > 0 && meeting.line != line) {
    fail("line " + std::to_string(line) + " where others wait at line " +
         std::to_string(meeting.line));
  }
  meeting.line = line;
  if (++meeting.arrived == meeting.expected) {
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  Fibre& fibre = fibres_[running_fibre_];
  fibre.waits_at = &meeting;
  fibre.generation = meeting.generation;
  pause();
  fibre.waits_at = nullptr;
}

std::uint32_t Emulator::exchange(std::uint32_t value, std::uint32_t source, int line) {
  Warp& warp = block().warps[place.thread / kWarp];
  warp.given[place.thread % kWarp] = value;
  if (warp.meeting.arrived + 1 == warp.meeting.expected) {
    std::copy(std::begin(warp.given), std::end(warp.given), std::begin(warp.taken));
  }
  meet(warp.meeting, line);
  return warp.taken[source % kWarp];
}

// One after another in a fixed order; or, where blocks run beside each other, a few threads of a
// block by chance.
bool Emulator::take_turn() {
  const auto fibres = static_cast<std::uint32_t>(blocks_.size()) * place.threads;
  std::uint32_t first = 0, left = fibres;
  if (order == Order::mixed) {
    chance_ = chance_ * 1664525u + 1013904223u;
    first = (chance_ >> 16) % fibres;
    left = 1 + (chance_ >> 8) % kLongestTurn;
  }
  bool moved = false;
  for (std::uint32_t i = 0; i < fibres && left > 0; ++i) {
    const std::uint32_t f = order == Order::backward ? fibres - 1 - i : (first + i) % fibres;
    if (!fibres_[f].can_run()) continue;
    moved = true;
    --left;
    resume(f);
    if (!failure_.empty()) abandon(std::exchange(failure_, {}));
    if (thrown_ != nullptr) {
      const std::exception_ptr thrown = std::exchange(thrown_, nullptr);
      try {
        abandon("a kernel threw");
      } catch (const std::logic_error&) {
        std::rethrow_exception(thrown);
      }
    }
  }
  return moved;
}

void Emulator::run_blocks() {
  const std::uint32_t threads = place.threads;
  for (Block& block : blocks_) {
    block.barrier = {};
    block.barrier.expected = threads;
    block.warps.assign(threads / kWarp, Warp{});
    for (Warp& warp : block.warps) warp.meeting.expected = kWarp;
    block.alive = threads;
  }
  for (std::uint32_t f = 0; f < blocks_.size() * threads; ++f) {
    fibres_[f].ended = false;
    fibres_[f].waits_at = nullptr;
  }
  while (take_turn()) {
  }
  for (const Block& block : blocks_) {
    if (block.alive == 0) continue;
    place.block = block.place;
    std::string waits = where() + ": waits for ever:";
    if (block.barrier.arrived > 0) {
      waits += " " + std::to_string(block.barrier.arrived) + " of " + std::to_string(threads) +
               " threads at the barrier of line " + std::to_string(block.barrier.line) + ";";
    }
    for (const Warp& warp : block.warps) {
      if (warp.meeting.arrived == 0) continue;
      waits += " " + std::to_string(warp.meeting.arrived) +
               " of 32 lanes at the exchange of line " + std::to_string(warp.meeting.line) + ";";
    }
    abandon(waits + " " + std::to_string(threads - block.alive) + " threads have ended");
  }
}

void Emulator::run(Grid grid, std::uint32_t threads, std::size_t shared_bytes,
                   const std::function<void()>& body) {
  if (running_) throw std::logic_error("a kernel launched another");
  if (threads == 0 || threads > kMostThreads || threads % kWarp != 0 ||
      shared_bytes > kMostSharedBytes || grid.x == 0 || grid.x > 0x7fffffffu || grid.y == 0 ||
      grid.y > 65535) {
    throw std::logic_error("launch of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) +
                           " blocks of " + std::to_string(threads) + " threads with " +
                           std::to_string(shared_bytes) + " bytes of shared memory");
  }
#if defined(__SANITIZE_THREAD__)
  tsan_scheduler_ = __tsan_get_current_fiber();
#endif
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y;
  const std::uint64_t beside =
      order == Order::mixed ? std::min<std::uint64_t>(blocks, kMostThreads / threads) : 1;
  reserve(static_cast<std::uint32_t>(beside) * threads);
  blocks_.resize(beside);
  for (Block& block : blocks_) {
    block.shared.reset(new std::byte[std::max<std::size_t>(shared_bytes, 1)]);
  }
  body_ = &body;
  running_ = true;
  place.threads = threads;
  place.grid = grid;
  for (std::uint64_t i = 0; i < blocks; i += beside) {
    blocks_.resize(std::min(beside, blocks - i));
    for (Block& block : blocks_) {
      const std::uint64_t at = i + static_cast<std::uint64_t>(&block - blocks_.data());
      const std::uint64_t b = order == Order::backward ? blocks - 1 - at : at;
      block.place = {static_cast<std::uint32_t>(b % grid.x),
                     static_cast<std::uint32_t>(b / grid.x)};
      std::memset(block.shared.get(), 0xff, shared_bytes);
    }
    run_blocks();
  }
  running_ = false;
}

}  // namespace

const Place& place() { return emulator.place; }
void run(Grid grid, std::uint32_t threads, std::size_t shared_bytes,
         const std::function<void()>& body) {
  emulator.run(grid, threads, shared_bytes, body);
}
std::byte* shared_memory() { return emulator.shared_memory(); }
void block_barrier(int line) { emulator.block_barrier(line); }
std::uint32_t exchange(std::uint32_t value, std::uint32_t source, int line) {
  return emulator.exchange(value, source, line);
}
void set_order(Order order) { emulator.order = order; }

}  // namespace tinyloop::cuda::emulator
