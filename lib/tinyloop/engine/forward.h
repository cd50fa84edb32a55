// SPDX-License-Identifier: Apache-2.0
// The only forward pass. A row is one position of one sequence, at some loop; a pass
// applies the looped block once to a set of rows, which may belong to different sequences,
// positions and loops. Every schedule is a choice of rows. Knows nothing of sampling or of which
// rows come next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tinyloop/device/ops.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/model/initial_state.h"
#include "tinyloop/model/loop_plan.h"
#include "tinyloop/model/model.h"
#include "tinyloop/token.h"

namespace tinyloop {

// One token position of one sequence. The caller keeps it; the forward pass moves it from loop to
// loop.
struct Row {
  KvCache* cache = nullptr;  // of its sequence; room for `position` must be reserved
  std::int64_t position = 0;
  TokenId id = 0;
  std::int32_t slot = 0;  // where its hidden state lives, 0 .. slots-1; no two live rows share one
  std::int32_t loop = 0;  // loops done so far; set to 0 by enter, raised by pass
  // Further caches that also get the row's K and V: of sequences that start with `cache`'s and this
  // row, and branch off after it. They have the same plan and room for `position`.
  std::span<KvCache* const> branch_caches = {};
};

class Forward {
 public:
  // Attaches the weights and allocates working memory for calls of up to `max_rows` rows and for
  // the states of `slots` rows. model and ops must outlive it. Throws Error(device) if memory is
  // refused.
  Forward(const Model& model, Ops& ops, const LoopPlan& plan, InitialStates initial_states,
          std::int32_t max_rows, std::int32_t slots);
  ~Forward();
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  const Model& model() const { return model_; }
  const LoopPlan& plan() const { return plan_; }
  // The identity of the initial states; empty if the model fixes them.
  const std::string& initial_identity() const { return initial_states_.identity(); }
  // Throws Error(usage) if no row can enter: the file of initial states ends before `position`.
  void check_position(std::int64_t position) const { initial_states_.check(position); }
  Ops& ops() { return ops_; }
  std::int32_t max_rows() const { return max_rows_; }
  std::int32_t slots() const { return slots_; }

  // Embeds the rows' ids, runs the prelude (writing its planes) and sets the initial state. Rows of
  // one sequence that enter together attend to each other; earlier rows must have entered
  // before. Throws Error(usage), before anything is changed, for an id outside the vocabulary.
  void enter(std::span<Row> rows);
  // One loop of the core block for each row, at its own loop. A row attends to the positions of its
  // sequence up to its own, which must have been through the same loop, in this pass or an earlier
  // one.
  void pass(std::span<Row> rows);
  // Runs the coda (writing its planes) on rows that have done all the loops they will do, and the
  // head on those named in `wanted` (indexes into rows); returns their logits, host memory
  // [wanted][vocab], valid until the next call.
  std::span<const float> leave(std::span<const Row> rows, std::span<const std::int32_t> wanted);

  // The same in two steps: the logits stay on the device until one of these asks for them. best():
  // the k largest of row `wanted[row]`, best first; nothing if the device does not choose or a
  // logit is not finite, in which case use logits().
  void leave_on_device(std::span<const Row> rows, std::span<const std::int32_t> wanted);
  std::span<const float> logits();
  std::vector<TokenLogit> best(std::int64_t row, std::int64_t k);

  // Reserves room for the logits of this many rows before caches take all memory.
  void reserve_logits(std::int64_t rows);

  // For rows that will do no further loop: later rows at higher loops find the K and V of the last
  // loop done at these positions.
  void end_early(std::span<const Row> rows);

  // Computes keys and values of a cache created from a snapshot in a store-h mode; does
  // nothing in other modes.
  void restore(KvCache& cache);

  // The current hidden states of the rows, host memory [rows][hidden], valid until the next
  // call: the input of the next loop.
  std::span<const float> states(std::span<const Row> rows);
  // The exit gate's value at each row's state, sigmoid(gate(state)) (Ouro, arXiv 2510.25741).
  // Throws Error(usage) if the model has no gate.
  std::vector<float> gates(std::span<const Row> rows);

  // The injected input that every loop reads beside the state, in the form of states(); empty if a
  // model has none. With the states it is all that a row needs to continue.
  std::span<const float> injected(std::span<const Row> rows);
  // Restores the rows' states and injected inputs as states() and injected() returned them;
  // the caller sets their `loop`.
  void restore(std::span<const Row> rows, std::span<const float> states,
               std::span<const float> injected);
  // Copies slot `from` to slot `to`.
  void copy_slot(std::int32_t to, std::int32_t from);

  std::size_t working_bytes() const;  // device memory of activations and states

 private:
  struct Layer;
  struct Memory;
  void place(std::span<const Row> rows);
  std::span<const float> angles_of(const Row& row);
  std::int32_t sequence_of(KvCache& cache);
  std::span<const float> downloaded(Rows from, std::size_t rows);
  void run_layer(const Layer& layer, std::int64_t rows);
  void run_attention(const Layer& layer, std::int64_t rows);
  void project(const Layer& layer, std::int64_t rows);
  void round_inputs(std::int64_t rows);
  void run_mlp(const Layer& layer, std::int64_t rows);
  void run_head(std::int64_t rows);

  const Model& model_;
  Ops& ops_;
  LoopPlan plan_;
  InitialStates initial_states_;
  std::int32_t max_rows_, slots_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace tinyloop
