// SPDX-License-Identifier: Apache-2.0
// A prompt that was read with some loops and can be gone on with to more of them: its rows are kept
// where they stand, so that a deeper run computes the missing loops only. In memory or as a file;
// continuations are not part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/cache_identity.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/schedule/prefill.h"
#include "tinyloop/schedule/request.h"
#include "tinyloop/token.h"

namespace tinyloop {

// Throws Error(usage) if the model's loops depend on their number, so that more of them cannot go
// on from fewer, or if the plan stores inputs in place of keys and values.
void check_resumable(Forward& forward);

// Keeps what a run with more loops needs to go on, of the rows that have done all loops: appended
// to `states` and `kept`, which must outlive it (see Forward::states() and injected()).
PrefillHooks keeping_states(Forward& forward, std::vector<float>& states,
                            std::vector<float>& injected);

// Takes the first prompt positions, whose K and V of `loops` loops are in the cache's planes, to
// the forward pass's last loop. states, injected: [ids][hidden] after those loops, as
// Forward::states() and injected() give them. There is room for ids.size() positions, none of them
// committed; afterwards they are. Returns the last position's logits, valid until the forward
// pass's next call.
std::span<const float> run_missing_loops(Forward& forward, KvCache& cache,
                                         std::span<const TokenId> ids, std::int32_t loops,
                                         std::span<const float> states,
                                         std::span<const float> injected);

class ResumeHandle {
 public:
  // Reads `ids` with the forward pass's loops into an empty cache, as prefill() does, and keeps
  // what resume() needs; `logits`, if given, becomes a view of the last position's, valid until the
  // forward pass's next call. Throws Error(usage) if the model's loops depend on their number.
  static ResumeHandle build(Forward& forward, KvCache& cache, std::span<const TokenId> ids,
                            std::int64_t chunk = 0, std::span<const float>* logits = nullptr);

  // Fills an empty cache with the prompt's K and V at the forward pass's loops, running the loops
  // that are missing; returns the last position's logits, valid until its next call. The cache and
  // the logits are those of a run from nothing, bit for bit. Throws Error(usage) if the pass has
  // fewer loops, or differs in model, device, storage mode, window or initial state.
  std::span<const float> resume(Forward& forward, KvCache& cache) const;

  // Throw Error(io) or Error(data) naming the path.
  void save(const std::string& path) const;
  static ResumeHandle open(const std::string& path);

  std::span<const TokenId> ids() const { return ids_; }
  std::int32_t loops() const { return identity_.loops; }
  const CacheIdentity& identity() const { return identity_; }

 private:
  ResumeHandle() = default;
  void check(Forward& forward, const KvCache& cache) const;

  CacheIdentity identity_;
  std::vector<TokenId> ids_;
  std::vector<float> states_;    // [ids][hidden]
  std::vector<float> injected_;  // [ids][hidden], or empty: what every loop reads again
  SnapshotShape shape_;          // of prelude and core planes
  std::vector<std::byte> kv_;    // [planes][kv_heads][tiles][tile_bytes]
};

// decode()'s reading of the prompt by resume(), for DecodeRequest::read_prompt. The handle must
// outlive it.
std::function<std::span<const float>(Forward&, KvCache&, DecodeStats&)> resuming(
    const ResumeHandle& handle);

}  // namespace tinyloop
