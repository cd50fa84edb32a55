// SPDX-License-Identifier: Apache-2.0
// Steps that were requested but not started. They start together, after one transfer of all
// their tables; sequences of equal steps that recur are captured once and then launched as one
// graph. Knows no operation of ops.h.
//
// Steps are equal if everything they are called with is, addresses and sizes; what
// stands in the tables is not part of it. Tables lie where they lay the last time, since the same
// steps ask for tables of the same sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "device_memory.h"
#include "runtime.h"

namespace tinyloop::cuda {

// The bytes of a call's arguments, without what lies between the fields of a struct.
class Signature {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>
  void add(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void add(DevicePtr ptr) { add(ptr.address); }
  void add(const Rows& rows) { add_all(rows.data, rows.stride); }
  void add(const Matrix& w) { add_all(w.type, w.n, w.k, w.data, w.scales); }
  void add(const KvGeometry& g) { add_all(g.mode, g.kv_heads, g.head_dim); }
  void add(const RotateShape& s) {
    add_all(s.heads, s.kv_heads, s.head_dim, s.interleaved, s.norm_eps);
  }
  void add(const AttentionShape& s) { add_all(s.heads, s.kv, s.window, s.scale); }
  void add(const KvTables& t) { add_all(t.segments, t.sequences); }
  void add(const Workspace& w) { add_all(w.data, w.counters); }
  // The tiles themselves are in a table.
  void add(const AttentionPlan& p) {
    add_all(p.tiles.size(), p.units, p.most_queries, p.split, p.workspace_bytes);
  }
  template <typename... Args>
  void add_all(const Args&... args) {
    (add(args), ...);
  }

  void clear() { bytes_.clear(); }
  bool operator==(const Signature&) const = default;

 private:
  std::vector<std::byte> bytes_;
};

class WorkQueue {
 public:
  WorkQueue(Runtime& runtime, DeviceMemory& memory) : runtime_(runtime), memory_(memory) {}
  ~WorkQueue();  // when no work is under way; steps that were not begun are forgotten
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // For the tables of the next step, `bytes` in all: begins what was asked for so far if there is
  // no room for them beside it.
  void make_room(std::size_t bytes);
  // Where `bytes` will be on the device when the next step runs; after make_room.
  const std::byte* table(std::span<const std::byte> bytes);

  template <typename Function, typename... Args>
  void kernel(const char* name, Function function, const Args&... args) {
    signature_.add_all(function, args...);
    steps_.push_back(
        {name, [function, ... own = args](Stream stream) { function(own..., stream); }});
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  void gemm(const Gemm& gemm);

  // Begins everything asked for so far.
  void submit();

  // Of tests: how often steps were begun by launching a graph.
  std::int64_t graph_launches() const { return graph_launches_; }

 private:
  struct Step {
    const char* kernel;  // its name; null: a call of the runtime
    std::function<void(Stream)> start;
  };
  struct Slot {
    std::byte* pinned = nullptr;
    Event* sent = nullptr;
    bool busy = false;
  };
  struct Known {
    Signature signature;
    Graph* graph = nullptr;  // null: seen once
    std::int64_t last_use = 0;
  };
  struct Table {
    std::size_t at = 0, bytes = 0;
  };
  void open_slot();
  void grow(std::size_t bytes);
  void release_slots();
  void send_tables();
  void run_steps();
  void capture(Known& known);
  Known* find();
  void remember();
  void forget();

  Runtime& runtime_;
  DeviceMemory& memory_;
  std::vector<Step> steps_;
  Signature signature_;
  bool capturable_ = true;

  std::byte* device_tables_ = nullptr;
  std::array<Slot, 4> slots_;
  std::size_t room_ = std::size_t{1} << 20;  // bytes of a slot and of device_tables_
  std::size_t slot_ = 0, used_ = 0;
  std::vector<Table> tables_;  // of this submission

  std::vector<Known> known_;
  std::int64_t submissions_ = 0, graph_launches_ = 0;
};

}  // namespace tinyloop::cuda
