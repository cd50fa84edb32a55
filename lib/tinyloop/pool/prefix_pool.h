// SPDX-License-Identifier: Apache-2.0
// A folder of computed prefixes shared by every process: finds the longest match for a prompt,
// publishes, evicts and counts; see tl-pool(5). Knows files, never devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/kv/cache_identity.h"
#include "tinyloop/pool/folder.h"
#include "tinyloop/pool/uses.h"
#include "tinyloop/kv/snapshot.h"

namespace tinyloop {

enum class MatchKind {
  miss,
  prefix,  // the entry is a prefix of the prompt
  crop,    // the entry and the prompt share their first ids
  whole,   // the entry is the prompt
  warm,    // as any of the last three, but of a run with fewer loops: the missing ones can be run
};
std::string_view name_of(MatchKind kind);

struct PoolMatch {
  MatchKind kind = MatchKind::miss;
  std::shared_ptr<const Snapshot> snapshot;  // null for a miss
  std::int64_t length = 0;                   // ids served
  EntryKey key;
  bool usable = true;   // false: there is no pool, or none that this program may touch
  std::string warning;  // what was wrong with the pool or an entry on the way; may be empty
};

struct EvictionRequest {
  std::int64_t entries = -1;  // keep at most so many, -1: any number
  std::int64_t bytes = -1;    // and at most so many bytes
  EvictionPolicy policy = EvictionPolicy::lru;
  // Neither counted nor removed: another one is about to take its place.
  std::optional<PoolEntry> replaced = std::nullopt;
};

class PrefixPool {
 public:
  // Touches nothing yet. `identity`: of the runs that will use the pool through this object.
  PrefixPool(std::string folder, CacheIdentity identity);

  const PoolFolder& folder() const { return folder_; }
  const CacheIdentity& identity() const { return identity_; }

  // Makes the folder if need be. With settings: keeps them in it and evicts what is too much.
  // Settings that are damaged are written anew. Also sweeps left-overs of killed processes. Returns
  // what was wrong with the settings; may be empty. Throws Error(io) or Error(data), and
  // Error(usage) for settings that no pool can have, before it changes anything.
  std::string prepare(const std::optional<PoolSettings>& settings = std::nullopt);

  // The longest match, checked but for its planes, which are checked when they are read. At least
  // one id is left to compute unless the match is whole. Never throws: trouble is a warning.
  PoolMatch lookup(std::span<const TokenId> ids, bool crop = true) const;
  // The match that saves the most loops among the resumable entries of runs that had fewer of them
  // and are otherwise the same; kind warm or miss. Never throws.
  PoolMatch lookup_to_resume(std::span<const TokenId> ids, bool crop = true) const;
  // The entry of exactly these ids, if it is there and sound in every byte; a damaged one is
  // removed. Throws Error(io) if it is there and cannot be read.
  std::shared_ptr<const Snapshot> verified(std::span<const TokenId> ids) const;

  // Writes an entry (identity and creation time are filled in here), evicts what is then too much,
  // counts a registration. An entry that is there already is success, unless it is to be replaced.
  // Throws Error.
  EntryKey publish(SnapshotContent content, bool replace = false);
  // A registration of what is there already; mends the order if it is not up to date.
  void touch(const EntryKey& key) const;

  // Each throws Error(io) if the count cannot be kept.
  void count_hit(const EntryKey& key, std::int64_t reused) const { uses_.add_hit(key, reused); }
  void count_miss() const { uses_.add_miss(); }

  // Of the whole pool, all identities. Throw Error(io).
  std::int64_t size() const;           // entries
  std::int64_t cached_tokens() const;  // sum of their lengths
  PoolCounts counts() const { return uses_.read(); }

 private:
  struct Lookup;
  std::optional<PoolMatch> exact_match(Lookup& lookup) const;
  void crop_match(Lookup& lookup, PoolMatch& best) const;
  void update_order() const;

  PoolFolder folder_;
  PoolUses uses_;
  CacheIdentity identity_;
  std::string identity_folder_;
};

// Removes entries until the request is met, in the policy's order; returns those removed. The
// caller holds the lock; the counts are what it folded.
std::vector<PoolEntry> evict(const PoolFolder& folder, const PoolCounts& counts,
                             const EvictionRequest& request);
// Takes the lock, folds and evicts. Throws Error(io).
std::vector<PoolEntry> evict_now(const PoolFolder& folder, const EvictionRequest& request);

}  // namespace tinyloop
