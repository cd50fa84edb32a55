// SPDX-License-Identifier: Apache-2.0
// A prefix held in memory: computed once, continued as often as wanted. Not on disk: that is
// pool/prefix_pool with schedule/pooled_prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/cache_identity.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/kv/snapshot.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/schedule/request.h"
#include "tinyloop/token.h"

namespace tinyloop {

// A cache that begins with the first `length` positions of a snapshot, store-h records computed.
// Throws as KvCache does.
KvCache cache_from(Forward& forward, std::shared_ptr<const Snapshot> snapshot, std::int64_t length);
// What the head multiplies at the snapshot's end. Throws Error(data) if it is not of the model.
std::vector<float> last_of(Forward& forward, const Snapshot& snapshot);

class PrefixCache {
 public:
  // Computes all of `ids`, at least one and at most the context, `chunk` positions at a time (0: as
  // many as the forward pass can). `resumable`: keeps states() and injected(). Throws as decode()
  // does, and as check_resumable().
  static PrefixCache build(Forward& forward, std::span<const TokenId> ids, std::int64_t chunk = 0,
                           bool resumable = false);
  // From a snapshot of the same identity; nothing is computed. Resumable only if the snapshot is.
  static PrefixCache from(Forward& forward, std::shared_ptr<const Snapshot> snapshot,
                          bool resumable = false);
  // Computes what `ids` has beyond their first shared ids, which are kept. With a window as many as
  // it can take back, in the end none.
  void change_to(Forward& forward, std::span<const TokenId> ids, std::int64_t chunk = 0);

  const CacheIdentity& identity() const { return identity_; }
  std::span<const TokenId> ids() const { return ids_; }
  std::span<const float> last() const { return last_; }  // what the head multiplies at its end
  // After the last loop, what another run can go on from to more of them; empty unless resumable.
  std::span<const float> states() const { return states_; }      // [ids][hidden]
  std::span<const float> injected() const { return injected_; }  // [ids][hidden], or empty
  KvCache& cache() { return cache_; }

  // As decode() with a cache that holds the prefix; it stays as it is. Throws Error(usage) if the
  // prompt does not begin with ids() or the forward pass is not of the model, loops, window, device
  // and initial state that this was built with.
  Answer generate(Forward& forward, const Sampler& sampler, DecodeRequest request);

 private:
  PrefixCache(CacheIdentity identity, KvCache cache)
      : identity_(std::move(identity)), cache_(std::move(cache)) {}
  void check(Forward& forward) const;

  CacheIdentity identity_;
  KvCache cache_;
  std::vector<TokenId> ids_;
  std::vector<float> last_;
  bool resumable_ = false;
  std::vector<float> states_, injected_;
};

}  // namespace tinyloop
