// SPDX-License-Identifier: Apache-2.0
// The host side of the CUDA device on the stand-in: transfers, memory, attached copies, graphs.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda_limits.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

using cuda::WorkOrder;

std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<unsigned char>((i * 2654435761u + seed) >> 7);
  }
  return data;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    return error.what();
  }
  return "";
}

std::vector<float> floats_from(Ops& ops, DevicePtr from, std::size_t count) {
  std::vector<float> values(count);
  ops.download(values.data(), from, count * sizeof(float));
  return values;
}

TEST_CASE("what was uploaded comes back, whatever its size and whatever becomes of its source") {
  for (const WorkOrder order : {WorkOrder::early, WorkOrder::late}) {
    CudaDevice device(order);
    for (const std::size_t bytes : {1u, 63u, 65536u, 65537u, 4u << 20, (4u << 20) + 1, 13u << 20}) {
      CAPTURE(bytes);
      DeviceBuffer first(device.ops(), bytes), second(device.ops(), bytes);
      std::vector<unsigned char> source = pattern(bytes, 1);
      const std::vector<unsigned char> wanted = source;
      device.ops().upload(first.ptr(), source.data(), bytes);
      std::fill(source.begin(), source.end(), static_cast<unsigned char>(0));
      device.ops().copy(second.ptr(), first.ptr(), bytes);
      device.ops().upload(first.ptr(), source.data(), bytes);
      std::vector<unsigned char> back(bytes);
      device.ops().download(back.data(), second.ptr(), bytes);
      CHECK(back == wanted);
      device.ops().download(back.data(), first.ptr(), bytes);
      CHECK(back == source);
    }
    CHECK_NOTHROW(device.ops().upload({}, nullptr, 0));
    CHECK_NOTHROW(device.ops().download(nullptr, {}, 0));
  }
}

TEST_CASE("allocated memory is zero, also where it was used before") {
  CudaDevice device;
  for (int round = 0; round < 3; ++round) {
    DeviceBuffer buffer(device.ops(), 4000);
    CHECK(floats_from(device.ops(), buffer.ptr(), 1000) == std::vector<float>(1000, 0.0f));
    const std::vector<float> ones(1000, 1.0f);
    device.ops().upload(buffer.ptr(), ones.data(), 4000);
  }
  CHECK(device.runtime().count("zero") == 4);  // three times this, once the room for tables
}

TEST_CASE("memory may be given back while steps that use it wait") {
  CudaDevice device;
  DeviceBuffer kept(device.ops(), 64);
  {
    const DeviceBuffer gone(device.ops(), 64);
    const std::vector<float> values(16, 2.0f);
    device.ops().upload(gone.ptr(), values.data(), 64);
    device.ops().copy(kept.ptr(), gone.ptr(), 64);
  }
  const DeviceBuffer after(device.ops(), 64);  // the same memory, zeroed
  CHECK(floats_from(device.ops(), after.ptr(), 16) == std::vector<float>(16, 0.0f));
  CHECK(floats_from(device.ops(), kept.ptr(), 16) == std::vector<float>(16, 2.0f));
}

TEST_CASE("refused memory is told with what was asked and what there is") {
  CudaDevice small(WorkOrder::late, 0, 8 << 20);
  const std::string refusal = message_of([&] { small.ops().allocate(std::size_t{9} << 20); });
  CHECK(refusal == "cuda: 9.4 MB refused, 8.4 MB free");

  CudaDevice limited(WorkOrder::late, 3'000'000);
  {
    const DeviceBuffer two(limited.ops(), 2'000'000);
    CHECK(message_of([&] { limited.ops().allocate(1'500'000); }) ==
          "cuda: 1.5 MB refused, 1.0 MB of --gpu-memory left");
  }
  // What is kept for the next one goes before anything is refused.
  CHECK_NOTHROW(DeviceBuffer(limited.ops(), 2'900'000));
  CHECK(limited.ops().held_bytes() == 0);
}

TEST_CASE("a device that is full gives up what it keeps") {
  CudaDevice device(WorkOrder::late, 0, 8 << 20);
  { const DeviceBuffer five(device.ops(), std::size_t{5} << 20); }
  CHECK_NOTHROW(DeviceBuffer(device.ops(), std::size_t{6} << 20));
}

TEST_CASE("what is left is told after what operations need themselves") {
  CudaDevice device(WorkOrder::late, 360 << 20);
  const std::size_t before = device.ops().memory_left().value();
  CHECK(before == (104 << 20));
  const DeviceBuffer buffer(device.ops(), std::size_t{4} << 20);
  CHECK(device.ops().memory_left().value() == before - (4 << 20));
  CudaDevice tiny(WorkOrder::late, 1000);
  CHECK(tiny.ops().memory_left().value() == 0);
}

TEST_CASE("partial sums of attention stay within what is kept for operations") {
  const auto plan = [](std::int32_t kv_heads, std::int32_t head_dim, std::int64_t first,
                       std::int64_t count) {
    std::vector<KvRow> rows;
    for (std::int64_t i = 0; i < count; ++i) rows.push_back({0, 0, first + i});
    return cuda::plan_attention(rows, {kv_heads, {KvMode::f16, kv_heads, head_dim}, 0, 1.0f});
  };
  // The last chunk of a prompt, of heads enough to keep a device busy.
  const cuda::AttentionPlan chunk = plan(16, 128, 32'768, 200);
  CHECK(!chunk.split);
  CHECK(chunk.workspace_bytes == 0);
  // Few heads and rows are split however far back they see.
  CHECK(plan(16, 128, 131'000, 16).split);
  CHECK(plan(2, 256, 1'000'000, 1).split);
  for (const std::int64_t first : {0, 5'000, 40'000, 300'000}) {
    for (const std::int64_t count : {1, 16, 100, 250}) {
      for (const std::int32_t kv_heads : {1, 4, 16}) {
        CHECK(plan(kv_heads, 256, first, count).workspace_bytes <= cuda::kMostPartialBytes);
      }
    }
  }
}

TEST_CASE("memory that several attach is on the device once") {
  CudaDevice device;
  const std::vector<unsigned char> file = pattern(100'000, 3), other = pattern(100'000, 4);
  const auto attach = [&](const std::vector<unsigned char>& data) {
    return device.ops().attach(std::as_bytes(std::span(data)));
  };
  const DevicePtr first = attach(file), second = attach(file), third = attach(other);
  CHECK(first.address == second.address);
  CHECK(first.address != third.address);
  CHECK(device.runtime().count("copy_in") == 2);
  std::vector<unsigned char> back(file.size());
  device.ops().detach(first, file.size());
  device.ops().download(back.data(), second, file.size());
  CHECK(back == file);
  const std::size_t held = device.ops().held_bytes();
  device.ops().detach(second, file.size());
  CHECK(device.ops().held_bytes() < held);
  const DevicePtr again = attach(file);
  device.ops().download(back.data(), again, file.size());
  CHECK(back == file);
  device.ops().detach(again, file.size());
  device.ops().detach(third, other.size());
  CHECK(device.ops().held_bytes() == 0);
}

TEST_CASE("an attach that is refused leaves nothing") {
  CudaDevice device(WorkOrder::late, 50'000);
  const std::vector<unsigned char> file = pattern(100'000, 3);
  for (int i = 0; i < 2; ++i) {
    CHECK(message_of([&] { device.ops().attach(std::as_bytes(std::span(file))); }) ==
          "cuda: 0.1 MB refused, 0.1 MB of --gpu-memory left");
  }
  CHECK(device.ops().held_bytes() == 0);
}

// y[i] = from[index[i]] + 1, four steps and a table.
struct Steps {
  explicit Steps(Ops& device) : ops(device), from(ops, 400), to(ops, 400), ones(ops, 40) {
    std::vector<float> values(100);
    std::iota(values.begin(), values.end(), 0.0f);
    ops.upload(from.ptr(), values.data(), 400);
    const std::vector<float> one(10, 1.0f);
    ops.upload(ones.ptr(), one.data(), 40);
    ops.submit();
  }
  std::vector<float> run(const std::vector<std::int32_t>& index) {
    const auto rows = static_cast<std::int64_t>(index.size());
    ops.gather({to.ptr(), 10}, {from.ptr(), 10}, index, 10);
    for (std::int64_t r = 0; r < rows; ++r) {
      ops.add({to.ptr() + r * 40, 10}, {ones.ptr(), 10}, 1, 10);
    }
    ops.submit();
    std::vector<float> firsts;
    for (const float value : floats_from(ops, to.ptr(), 10 * index.size())) firsts.push_back(value);
    return firsts;
  }
  static std::vector<float> wanted(const std::vector<std::int32_t>& index) {
    std::vector<float> values;
    for (const std::int32_t row : index) {
      for (int i = 0; i < 10; ++i) values.push_back(static_cast<float>(row * 10 + i + 1));
    }
    return values;
  }
  Ops& ops;
  DeviceBuffer from, to, ones;
};

TEST_CASE("steps that come again are one graph, with the tables of each time") {
  for (const WorkOrder order : {WorkOrder::early, WorkOrder::late}) {
    CudaDevice device(order);
    Steps steps(device.ops());
    for (std::int32_t i = 0; i < 8; ++i) {
      const std::vector<std::int32_t> index = {i, 9 - i, 3, (i * 7) % 10};
      CHECK(steps.run(index) == Steps::wanted(index));
      // Plainly the first time, captured the second.
      CHECK(device.ops().graph_launches() == std::max(0, i));
      CHECK(device.runtime().graphs() == (i == 0 ? 0 : 1));
    }
    // Another number of rows is other work.
    CHECK(steps.run({1, 2, 3}) == Steps::wanted({1, 2, 3}));
    CHECK(device.ops().graph_launches() == 7);
    CHECK(steps.run({4, 2, 3, 1}) == Steps::wanted({4, 2, 3, 1}));
    CHECK(device.ops().graph_launches() == 8);
  }
}

TEST_CASE("where a graph finds no memory its steps begin one by one") {
  CudaDevice device;
  Steps steps(device.ops());
  device.runtime().refuse_graphs(true);
  for (std::int32_t i = 0; i < 4; ++i) {
    const std::vector<std::int32_t> index = {i, 9 - i, 3, i};
    CHECK(steps.run(index) == Steps::wanted(index));
  }
  CHECK(device.ops().graph_launches() == 0);
  device.runtime().refuse_graphs(false);
  CHECK(steps.run({1, 2, 3, 4}) == Steps::wanted({1, 2, 3, 4}));
  CHECK(device.ops().graph_launches() == 1);
}

TEST_CASE(
    "a kernel that cannot be launched is told, inside a capture too, and the next steps run") {
  CudaDevice device;
  Steps steps(device.ops());
  const std::vector<std::int32_t> index = {1, 2, 3, 4};
  for (int i = 0; i < 3; ++i) {  // plainly, captured, with a graph there already
    device.runtime().refuse_kernel();
    CHECK(message_of([&] { steps.run(index); }) == (i < 2 ? "stand-in: gather: refused" : ""));
    CHECK(steps.run(index) == Steps::wanted(index));
  }
}

TEST_CASE("graphs are limited in number") {
  CudaDevice device;
  DeviceBuffer x(device.ops(), 4 * 4000), y(device.ops(), 4 * 4000);
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t width = 1; width <= 150; ++width) {
      for (int twice = 0; twice < 2; ++twice) {
        for (int i = 0; i < 4; ++i) device.ops().add({y.ptr(), width}, {x.ptr(), width}, 1, width);
        device.ops().submit();
      }
    }
  }
  device.ops().wait();
  CHECK(device.ops().graph_launches() == 300);
  CHECK(device.runtime().graphs() == 64);
}

TEST_CASE("submissions may follow each other without anybody waiting") {
  CudaDevice device(WorkOrder::late);
  DeviceBuffer from(device.ops(), 4 * 64), to(device.ops(), 4 * 64);
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), 0.0f);
  device.ops().upload(from.ptr(), values.data(), 4 * 64);
  // More than there are buffers for tables: each is filled anew only when it has been sent.
  for (std::int32_t i = 0; i < 64; ++i) {
    const std::int32_t source = 63 - i;
    device.ops().gather({to.ptr() + i * 4, 1}, {from.ptr(), 1}, {&source, 1}, 1);
    device.ops().submit();
  }
  std::reverse(values.begin(), values.end());
  CHECK(floats_from(device.ops(), to.ptr(), 64) == values);
}

TEST_CASE("tables larger than the room for them") {
  for (const WorkOrder order : {WorkOrder::early, WorkOrder::late}) {
    cuda::RecordedRuntime runtime(order);
    {
      cuda::DeviceMemory memory(runtime, 0);
      cuda::WorkQueue queue(runtime, memory);
      cuda::Transfers transfers(runtime);
      constexpr std::size_t kSizes[] = {100, 3'000'000, 200, 1'000'000, 5'000'000, 4'000'000};
      std::vector<std::pair<std::byte*, std::vector<unsigned char>>> wanted;
      for (const std::size_t bytes : kSizes) {
        std::byte* to = memory.allocate(bytes);
        std::vector<unsigned char> table = pattern(bytes, static_cast<unsigned>(bytes));
        wanted.emplace_back(to, table);
        queue.make_room(bytes);
        queue.copy(to, queue.table(std::as_bytes(std::span(table))), bytes);
        std::fill(table.begin(), table.end(), static_cast<unsigned char>(0));
      }
      queue.submit();
      for (const auto& [from, table] : wanted) {
        std::vector<unsigned char> back(table.size());
        transfers.out(reinterpret_cast<std::byte*>(back.data()), from, back.size());
        CHECK(back == table);
      }
      runtime.wait();
    }
    CHECK(runtime.faults().empty());
    CHECK(runtime.device_bytes_held() == 0);
    CHECK(runtime.pinned_buffers() == 0);
    CHECK(runtime.events() == 0);
  }
}

TEST_CASE("operations on no rows do nothing") {
  CudaDevice device;
  CudaOps& ops = device.ops();
  const Rows rows{{}, 8};
  ops.gather(rows, rows, {}, 8);
  ops.scatter(rows, rows, {}, 8);
  ops.embed(rows, {}, {}, 1.0f);
  ops.add(rows, rows, 0, 8);
  ops.blend(rows, 1.0f, rows, 1.0f, 0, 8);
  ops.rms_norm(rows, rows, {}, 0, 8, 0.0f);
  ops.matmul(rows, rows, {}, 0);
  ops.gated_silu(rows, rows, 0, 8);
  ops.rotate(rows, 0, {}, {}, {}, {}, {});
  ops.append(rows, rows, {}, {}, {});
  ops.copy_positions({}, {}, {});
  ops.attention(rows, rows, {}, {}, {});
  ops.wait();
  CHECK(device.runtime().log().empty());
}

TEST_CASE("the limits' probes run and say how much they did") {
  CudaDevice device;
  const std::vector<LimitProbe> probes = cuda_limit_probes(device.ops(), 32'768);
  REQUIRE(probes.size() == 3);
  CHECK(probes[0].limit == Limit::memory);
  CHECK(probes[0].amount == 16.0 * 32'768);
  CHECK(probes[1].limit == Limit::floats);
  CHECK(probes[1].amount == 4 * 2.0 * 64 * 64 * 64);
  device.ops().wait();
  const std::int64_t filled = device.runtime().count("copy 8192");
  CHECK(filled == 4);  // both operands of both products, since zeros are multiplied faster
  for (const LimitProbe& probe : probes) {
    probe.run();
    CHECK(device.runtime().pending() == 0);
  }
  CHECK(device.runtime().count("copy 16384") == 16);
  CHECK(device.runtime().count("gemm") == 8);
}

}  // namespace
}  // namespace tinyloop
