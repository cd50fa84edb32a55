// SPDX-License-Identifier: Apache-2.0
// The emulator runs what a device would run, and says what a device would punish or hide. Not the
// kernels.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "launch.h"

namespace tinyloop::cuda {
namespace {

using emulator::Order;

TL_GLOBAL void number_kernel(std::vector<std::uint32_t>* to) {
  const std::uint32_t block = block_y() * 3 + block_x();
  (*to)[block * block_threads() + thread_index()] = block * 1000 + thread_index();
}

TEST_CASE("every thread of every block runs once") {
  for (const Order order : {Order::forward, Order::backward, Order::mixed}) {
    emulator::set_order(order);
    std::vector<std::uint32_t> numbers(3 * 2 * 64, 0xffffffffu);
    launch(number_kernel, Grid{3, 2}, 64, 0, nullptr, &numbers);
    for (std::uint32_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == i / 64 * 1000 + i % 64);
  }
  emulator::set_order(Order::forward);
}

// Reverses numbers through shared memory, in rounds; kBarrier false leaves the barriers out.
template <bool kBarrier>
TL_GLOBAL void reverse_kernel(std::vector<std::uint32_t>* numbers) {
  auto* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  for (int round = 0; round < 3; ++round) {
    shared[thread_index()] = (*numbers)[thread_index()];
    if constexpr (kBarrier) barrier();
    (*numbers)[thread_index()] = shared[block_threads() - 1 - thread_index()];
    if constexpr (kBarrier) barrier();
  }
}

TEST_CASE("a barrier is one, and one that is missing shows") {
  for (const Order order : {Order::forward, Order::backward, Order::mixed}) {
    emulator::set_order(order);
    std::vector<std::uint32_t> numbers(128), reversed(128);
    for (std::uint32_t i = 0; i < 128; ++i) {
      numbers[i] = i;
      reversed[i] = 127 - i;
    }
    std::vector<std::uint32_t> good = numbers, bad = numbers;
    launch(reverse_kernel<true>, Grid{1}, 128, 512, nullptr, &good);
    CHECK(good == reversed);
    launch(reverse_kernel<false>, Grid{1}, 128, 512, nullptr, &bad);
    CHECK(bad != reversed);
  }
  emulator::set_order(Order::forward);
}

TL_GLOBAL void exchange_kernel(std::vector<std::uint32_t>* sums) {
  std::uint32_t sum = thread_index();
  for (std::uint32_t mask = 1; mask < 32; mask *= 2) sum += exchange_xor(sum, mask);
  (*sums)[thread_index()] = sum;
}

TEST_CASE("an exchange stays in its warp") {
  for (const Order order : {Order::forward, Order::backward, Order::mixed}) {
    emulator::set_order(order);
    std::vector<std::uint32_t> sums(96);
    launch(exchange_kernel, Grid{1}, 96, 0, nullptr, &sums);
    for (std::uint32_t t = 0; t < 96; ++t) CHECK(sums[t] == 31 * 16 + t / 32 * 32 * 32);
  }
  emulator::set_order(Order::forward);
}

TL_GLOBAL void shared_kernel(std::vector<std::uint32_t>* found) {
  auto* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  (*found)[block_x() * 32 + thread_index()] = shared[thread_index()];
  shared[thread_index()] = 0;
}

TEST_CASE("shared memory begins as NaN in every block") {
  std::vector<std::uint32_t> found(64);
  launch(shared_kernel, Grid{2}, 32, 128, nullptr, &found);
  for (const std::uint32_t word : found) CHECK(word == 0xffffffffu);
}

TL_GLOBAL void some_at_barrier_kernel() {
  if (thread_index() < 63) barrier();
}
TL_GLOBAL void two_barriers_kernel() {
  if (thread_index() % 2 == 0) {
    barrier();
  } else {
    barrier();
  }
}
TL_GLOBAL void missing_lane_kernel() {
  if (thread_index() != 5) exchange_xor(0, 1);
}
TL_GLOBAL void barrier_and_exchange_kernel() {
  if (thread_index() < 16) {
    barrier();
  } else {
    warp_barrier();
  }
}
TL_GLOBAL void throwing_kernel() {
  if (thread_index() == 40) throw std::out_of_range("thread 40");
  barrier();
}

std::string error_of(void (*kernel)(), std::uint32_t threads) {
  try {
    launch(kernel, Grid{1}, threads, 0, nullptr);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("what would hang or be undefined on a device is an error") {
  const auto has = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  // Twice, because a launch after an error begins with fresh threads.
  for (int i = 0; i < 2; ++i) {
    has(error_of(some_at_barrier_kernel, 64), "63 of 64 threads at the barrier");
    has(error_of(two_barriers_kernel, 64), "where others wait at line");
    has(error_of(missing_lane_kernel, 64), "31 of 32 lanes at the exchange");
    has(error_of(barrier_and_exchange_kernel, 32), "16 of 32 threads at the barrier");
    has(error_of(throwing_kernel, 64), "thread 40");
    has(error_of(two_barriers_kernel, 33), "blocks of 33 threads");
    std::vector<std::uint32_t> sums(96);
    launch(exchange_kernel, Grid{1}, 96, 0, nullptr, &sums);
    CHECK(sums[95] == 31 * 16 + 2 * 32 * 32);
  }
}

// Every block writes a piece of numbers; the one that comes last sums up all pieces. kBarrier false
// counts the block before all its threads have written.
template <bool kBarrier>
TL_GLOBAL void last_block_kernel(std::vector<std::uint32_t>* pieces, std::int32_t* counter,
                                 std::uint32_t blocks, std::uint32_t* sum) {
  auto* is_last = reinterpret_cast<std::uint32_t*>(shared_memory());
  (*pieces)[block_x() * block_threads() + thread_index()] = 1;
  if constexpr (kBarrier) barrier();
  if (thread_index() == 0) {
    *is_last = atomic_add(counter, 1) == static_cast<std::int32_t>(blocks) - 1;
  }
  barrier();
  if (*is_last != 1) return;
  if (thread_index() == 0) {
    for (const std::uint32_t piece : *pieces) *sum += piece;
  }
}

TEST_CASE("blocks beside each other show what one counts too early") {
  emulator::set_order(Order::mixed);
  int wrong = 0;
  for (std::uint32_t blocks = 2; blocks <= 40; ++blocks) {
    for (const bool has_barrier : {true, false}) {
      std::vector<std::uint32_t> pieces(blocks * 256);
      std::int32_t counter = 0;
      std::uint32_t sum = 0;
      launch(has_barrier ? last_block_kernel<true> : last_block_kernel<false>, Grid{blocks}, 256, 4,
             nullptr, &pieces, &counter, blocks, &sum);
      if (has_barrier) CHECK(sum == blocks * 256);
      if (!has_barrier) wrong += sum != blocks * 256;
    }
  }
  CHECK(wrong > 0);
  emulator::set_order(Order::forward);
}

TEST_CASE("number formats are the device's") {
  CHECK(dot_bytes(0x7f80ff01u, 0x02030405u, 10) == 10 + 127 * 2 - 128 * 3 - 4 + 5);
  CHECK(choose_bytes(0x33221100u, 0x77665544u, 0x7531u) == 0x77553311u);
  CHECK(choose_bytes(0x33221100u, 0x77665544u, 0x0426u) == 0x00442266u);
  CHECK(round_to_int(2.5f) == 2);
  CHECK(round_to_int(-3.5f) == -4);
  CHECK(round_to_int(float_of(0x7fc00000u)) == 0);
}

}  // namespace
}  // namespace tinyloop::cuda
