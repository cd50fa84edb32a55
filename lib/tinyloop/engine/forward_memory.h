// SPDX-License-Identifier: Apache-2.0
// What the forward pass works on: the weights as the device sees them, the states of the rows
// between calls and the activations of one call. Private to the engine; the math is in forward.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tinyloop/device/ops.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"

namespace tinyloop {

// Owns the device's view of one mapped tensor.
class Attached {
 public:
  Attached(Ops& ops, std::span<const std::byte> host)
      : ops_(&ops), memory_(ops.attach(host)), bytes_(host.size()) {}
  Attached(Attached&& other) noexcept
      : ops_(std::exchange(other.ops_, nullptr)), memory_(other.memory_), bytes_(other.bytes_) {}
  Attached& operator=(Attached&&) = delete;
  ~Attached() {
    if (ops_ != nullptr) ops_->detach(memory_, bytes_);
  }
  DevicePtr ptr() const { return memory_; }

 private:
  Ops* ops_;
  DevicePtr memory_;
  std::size_t bytes_;
};

struct Forward::Layer {
  Matrix qkv, out, gate_up, down;
  DevicePtr norm1, norm2, norm3, norm4, q_norm, k_norm, qk_bias;
};

struct Forward::Memory {
  // Attaches the weights and allocates for calls of max_rows rows and the states of state_slots
  // rows.
  Memory(const Model& model, Ops& ops, std::int64_t max_rows, std::int64_t state_slots);

  std::vector<Attached> attached;
  std::vector<Layer> layers;
  Matrix embedding, head, adapter, exit_gate;
  DevicePtr final_norm;
  std::vector<float> frequencies;

  std::vector<DeviceBuffer> buffers;
  // Hidden states between calls, [slots][hidden]: of the loop, and what every loop reads again (the
  // prelude's output for concat, the first sub-step's result for relaxed).
  Rows state, injected;
  Rows x;       // [rows][hidden] the residual stream of this call
  Rows normed;  // [rows][hidden]
  Rows branch;  // [rows][hidden] what attention or MLP adds; the core's input for relaxed
  Rows entry;   // [rows][hidden] relaxed only: the state before the sub-step
  Rows joined;  // [rows][2 hidden] concat only
  Rows qkv, attended, gate_up, gated;
  DevicePtr angles;  // [rows][head_dim / 2][2]
  DeviceBuffer logits;

  std::vector<std::int32_t> slots;  // of the rows of this call
  std::vector<KvRow> places;        // of the rows of this call
  struct Branch {                   // a further cache that a row's K and V go to
    std::size_t row;
    std::int32_t sequence;
  };
  std::vector<Branch> branches;
  std::vector<KvCache*> caches;  // the sequences of this call
  std::vector<KvSegments> sequences;
  KvGeometry geometry;
  std::int64_t head_rows = 0;  // of the latest leave
  std::int64_t best_k = 0;     // of `best`; 0: not asked for
  TopLogits best;
  std::vector<float> host_angles, host_rows, host_logits;
  // Angles of the position that was last in each slot, [slots][head_dim / 2][2]: a row comes back
  // to its slot in every loop, and cosines take long in small models.
  std::vector<float> slot_angles;
  std::vector<std::int64_t> slot_positions;
};

}  // namespace tinyloop
