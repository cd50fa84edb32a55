// SPDX-License-Identifier: Apache-2.0
// The stand-in for the GPU tells what a GPU would punish: a test on it that passes means something.
#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "cuda/recorded_runtime.h"

namespace tinyloop::cuda {
namespace {

std::string only_fault(const RecordedRuntime& runtime) {
  REQUIRE(runtime.faults().size() == 1);
  return runtime.faults().front();
}

TEST_CASE("bytes travel in the order of the stream") {
  for (const WorkOrder order : {WorkOrder::early, WorkOrder::late}) {
    RecordedRuntime runtime(order);
    std::byte* pinned = runtime.allocate_pinned(16);
    std::byte* result = runtime.allocate_pinned(16);
    std::byte* a = runtime.allocate(16);
    std::byte* b = runtime.allocate(16);
    std::memset(pinned, 7, 16);
    runtime.zero(b, 16);
    runtime.copy_in(a, pinned, 16);
    runtime.copy(b, a, 8);
    runtime.copy_out(result, b, 16);
    runtime.wait();
    CHECK(result[7] == std::byte{7});
    CHECK(result[8] == std::byte{0});
    CHECK(runtime.faults().empty());
    CHECK(runtime.count("copy") == 3);
  }
}

TEST_CASE("work that nobody has waited for is not done") {
  RecordedRuntime runtime(WorkOrder::late);
  std::byte* result = runtime.allocate_pinned(4);
  std::byte* memory = runtime.allocate(4);
  Event* zeroed = runtime.make_event();
  runtime.zero(memory, 4);
  runtime.record(zeroed);
  runtime.copy_out(result, memory, 4);
  CHECK(runtime.pending() == 2);
  runtime.wait(zeroed);
  CHECK(runtime.pending() == 1);
  CHECK(result[0] != std::byte{0});
  runtime.wait();
  CHECK(result[0] == std::byte{0});
  runtime.release(zeroed);
}

TEST_CASE("a buffer that changes before its copy is a fault") {
  RecordedRuntime runtime(WorkOrder::late);
  std::byte* pinned = runtime.allocate_pinned(4);
  std::byte* memory = runtime.allocate(4);
  std::memset(pinned, 1, 4);
  runtime.copy_in(memory, pinned, 4);
  pinned[3] = std::byte{2};
  runtime.wait();
  CHECK(only_fault(runtime) == "the host changed a buffer before it was copied to the device");
}

TEST_CASE("memory that work may still use must not be released") {
  RecordedRuntime runtime(WorkOrder::late);
  std::byte* pinned = runtime.allocate_pinned(4);
  std::byte* memory = runtime.allocate(4);
  runtime.zero(memory, 4);
  runtime.release(memory);
  CHECK(only_fault(runtime) == "device memory is released while work may use it");
  runtime.release_pinned(pinned);
  CHECK(runtime.faults().back() == "pinned memory is released while work may use it");
}

TEST_CASE("work that writes beside its memory is a fault") {
  RecordedRuntime runtime(WorkOrder::late);
  std::byte* memory = runtime.allocate(5000);
  runtime.zero(memory, 5000);
  runtime.wait();
  runtime.check_memory();
  CHECK(runtime.faults().empty());
  runtime.kernel("one behind", [=](Stream) { memory[5000] = std::byte{0}; });
  runtime.wait();
  runtime.check_memory();
  CHECK(only_fault(runtime) == "work wrote beside 5000 bytes of device memory");
  runtime.release(memory);
  CHECK(runtime.faults().size() == 2);
}

TEST_CASE("copies need device memory on one side and pinned memory on the other") {
  RecordedRuntime runtime;
  std::byte* pinned = runtime.allocate_pinned(8);
  std::byte* memory = runtime.allocate(8);
  std::byte ordinary[8] = {};
  CHECK_THROWS_AS(runtime.copy_in(memory, ordinary, 8), std::logic_error);
  CHECK_THROWS_AS(runtime.copy_in(memory, pinned, 9), std::logic_error);
  CHECK_THROWS_AS(runtime.copy_in(pinned, pinned, 8), std::logic_error);
  CHECK_THROWS_AS(runtime.copy_out(pinned, memory + 1, 8), std::logic_error);
  CHECK(runtime.faults().size() == 4);
}

TEST_CASE("a capture notes work, and each launch does it") {
  RecordedRuntime runtime;
  std::byte* result = runtime.allocate_pinned(4);
  std::byte* memory = runtime.allocate(4);
  int runs = 0;
  runtime.begin_capture();
  runtime.kernel("count", [&](Stream) { ++runs; });
  runtime.zero(memory, 4);
  Graph* graph = runtime.end_capture();
  runtime.wait();
  CHECK(runs == 0);
  runtime.launch(graph);
  runtime.launch(graph);
  runtime.copy_out(result, memory, 4);
  runtime.wait();
  CHECK(runs == 2);
  CHECK(result[0] == std::byte{0});
  CHECK(runtime.count("launch 2 steps") == 2);
  runtime.release(graph);
  CHECK(runtime.faults().empty());
}

TEST_CASE("what cannot be captured is a fault inside a capture") {
  RecordedRuntime runtime;
  std::byte* pinned = runtime.allocate_pinned(4);
  std::byte* memory = runtime.allocate(4);
  Event* event = runtime.make_event();
  runtime.begin_capture();
  runtime.copy_in(memory, pinned, 4);
  CHECK(runtime.faults().back() == "copy_in 4 inside a capture");
  runtime.allocate(4);
  CHECK(runtime.faults().back() == "allocation inside a capture");
  runtime.wait();
  CHECK(runtime.faults().back() == "a wait inside a capture");
  runtime.record(event);
  CHECK(runtime.faults().back() == "an event is recorded inside a capture");
  Graph* graph = runtime.end_capture();
  runtime.launch(graph);
  runtime.release(graph);
  CHECK(runtime.faults().back() == "a graph is released while it may be under way");
}

TEST_CASE("the device refuses what it does not have") {
  RecordedRuntime runtime(WorkOrder::late, 1 << 20);
  CHECK(runtime.allocate(std::size_t{1} << 21) == nullptr);
  runtime.refuse_after(1);
  CHECK(runtime.allocate(1) != nullptr);
  CHECK(runtime.allocate(1) == nullptr);
}

}  // namespace
}  // namespace tinyloop::cuda
