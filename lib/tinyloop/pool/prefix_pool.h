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
#include "tinyloop/kv/snapshot.h"
#include "tinyloop/pool/folder.h"
#include "tinyloop/pool/uses.h"

namespace tinyloop {

enum class MatchKind {
  miss,
  prefix,  // the entry is a prefix of the prompt
  crop,    // the entry and the prompt share their first ids
  whole,   // the entry is the prompt
  warm,    // any of the last three, but from a run with fewer loops: the missing loops can be run
};
std::string_view name_of(MatchKind kind);

struct PoolMatch {
  MatchKind kind = MatchKind::miss;
  std::shared_ptr<const Snapshot> snapshot;  // null for a miss
  std::int64_t length = 0;                   // ids served
  EntryKey key;
  bool usable = true;   // false: there is no pool, or none that this program may touch
  std::string warning;  // a problem with the pool or an entry; may be empty
};

struct EvictionRequest {
  std::int64_t entries = -1;  // maximum to keep, -1: any number
  std::int64_t bytes = -1;    // and maximum bytes
  EvictionPolicy policy = EvictionPolicy::lru;
  // Neither counted nor removed: it is about to be replaced.
  std::optional<PoolEntry> replaced = std::nullopt;
};

class PrefixPool {
 public:
  // Touches nothing yet. `identity`: of the runs that will use the pool through this object.
  PrefixPool(std::string folder, CacheIdentity identity);

  const PoolFolder& folder() const { return folder_; }
  const CacheIdentity& identity() const { return identity_; }

  // Creates the folder if needed. With settings: stores them in it and evicts what exceeds them.
  // Damaged settings are rewritten. Also removes files left by killed processes. Returns a warning
  // about the settings; may be empty. Throws Error(io) or Error(data), and
  // Error(usage) for invalid settings, before it changes anything.
  std::string prepare(const std::optional<PoolSettings>& settings = std::nullopt);

  // The longest match, checked except for its planes, which are checked when read. At least
  // one id is left to compute unless the match is whole. Never throws: problems are warnings.
  PoolMatch lookup(std::span<const TokenId> ids, bool crop = true) const;
  // The match that saves the most loops among the resumable entries of runs that had fewer of them
  // and are otherwise the same; kind warm or miss. Never throws.
  PoolMatch lookup_to_resume(std::span<const TokenId> ids, bool crop = true) const;
  // The entry of exactly these ids, if it exists and is intact in every byte; a damaged one is
  // removed. Throws Error(io) if it exists and cannot be read.
  std::shared_ptr<const Snapshot> verified(std::span<const TokenId> ids) const;

  // Writes an entry (identity and creation time are filled in here), evicts what exceeds the
  // limits, counts a registration. An existing entry is success, unless it is to be replaced.
  // Throws Error.
  EntryKey publish(SnapshotContent content, bool replace = false);
  // Registers an existing entry; repairs the order if it is out of date.
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
