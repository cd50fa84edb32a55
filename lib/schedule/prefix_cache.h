// SPDX-License-Identifier: Apache-2.0
// A prefix held in memory: computed once, gone on from as often as wanted. Not on disk: that is
// kv/prefix_pool with schedule/pooled_prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward.h"
#include "kv/cache_identity.h"
#include "kv/kv_cache.h"
#include "kv/snapshot.h"
#include "schedule/decode.h"
#include "token.h"

namespace tinyloop {

// What another run must have in common to use this one's keys and values.
CacheIdentity cache_identity(Forward& forward, KvMode mode);

class PrefixCache {
 public:
  // Computes all of `ids`, at least one and at most the context, `chunk` positions at a time (0: as
  // many as the forward pass can). Throws as decode() does.
  static PrefixCache build(Forward& forward, KvMode mode, std::span<const TokenId> ids,
                           std::int64_t chunk = 0);
  // From a snapshot of the same identity; nothing is computed.
  static PrefixCache from(Forward& forward, KvMode mode, std::shared_ptr<const Snapshot> snapshot);
  // Computes what `ids` has beyond their first shared ids, which are kept. With a window as many as
  // it can take back, in the end none.
  void change_to(Forward& forward, std::span<const TokenId> ids, std::int64_t chunk = 0);

  const CacheIdentity& identity() const { return identity_; }
  std::span<const TokenId> ids() const { return ids_; }
  std::span<const float> last() const { return last_; }  // what the head multiplies at its end
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
};

}  // namespace tinyloop
