// SPDX-License-Identifier: Apache-2.0
// The files of a prefix pool: where an entry lies, what is there, what the pool may hold,
// left-overs; see tl-pool(5). Knows names and sizes, not what is in an entry and not which one to
// take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/kv/cache_identity.h"

namespace tinyloop {

enum class EvictionPolicy {
  shortest,  // the entry of the fewest ids goes first
  lru,       // the one not used for the longest time
  cost,      // the one that saved the least computing time for its bytes
};
std::string_view name_of(EvictionPolicy policy);
EvictionPolicy parse_policy(std::string_view name);  // throws Error(usage) naming the known ones

struct PoolSettings {
  std::int64_t capacity = 16;  // entries, at least 1
  std::int64_t max_bytes = 0;  // of all entries; 0: no limit
  EvictionPolicy policy = EvictionPolicy::lru;
};

struct FoundSettings {
  PoolSettings settings;  // the defaults where there are none
  std::string warning;    // why these are the defaults although there should be others; may be empty
  // False: what the pool may hold is not known, because it has entries and its settings are missing
  // or damaged, or because they cannot be read this time. Then nothing may be evicted in their name
  // and nothing may be written in their place, unless somebody says what they are to be.
  bool known = true;
};

// One entry as the listing shows it.
struct PoolEntry {
  std::string identity;  // the folder's name
  EntryKey key;

  bool operator==(const PoolEntry&) const = default;
};

class PoolFolder {
 public:
  explicit PoolFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string identity_path(const std::string& identity) const { return path_ + "/" + identity; }
  std::string entry_path(const PoolEntry& entry) const;

  // Makes the folder and an identity's folder in it, where they are not there yet. Throws
  // Error(io).
  void create() const;
  void create(const std::string& identity) const;

  // Throws Error(usage) if the folder holds something, but nothing of a pool: it is somebody
  // else's, and nothing may be written there. A folder that is empty or missing passes.
  void require_ours() const;
  // Whether there is a pool: settings or entries.
  bool exists() const;
  // Whether this user may not list the entries of some identity.
  bool hides_entries() const;

  // Throws Error(io) if there is no such folder, Error(data) if the pool is of a newer format.
  // Capacity 0, which older programs wrote, is 1.
  FoundSettings settings() const;
  void set_settings(const PoolSettings& settings) const;  // throws Error(io)
  // Writes the defaults where there are no settings yet, so that a new pool says its format.
  void mark() const;

  // The listing is the index. Other names are left alone. Throws Error(io), but a missing identity
  // has no keys.
  std::vector<std::string> identities() const;
  std::vector<EntryKey> keys(const std::string& identity) const;
  std::vector<PoolEntry> entries() const;
  // The time of the latest change of keys(), in nanoseconds; 0 if there is no such folder.
  std::int64_t listing_state(const std::string& identity) const;
  // The same, when the file system's clock has gone on, so that any change to come gives another
  // one; 0 if it does not go on.
  std::int64_t settled_listing_state(const std::string& identity) const;
  std::string order_path(const std::string& identity) const {
    return identity_path(identity) + ".order";
  }
  // -1 if it is gone.
  std::int64_t bytes_of(const PoolEntry& entry) const;
  // When the file was written, in seconds since 1970; 0 if it is gone.
  std::int64_t written_at(const PoolEntry& entry) const;
  // Returns whether it was there; a reader that has it mapped is not hurt. Throws Error(io).
  bool remove(const PoolEntry& entry) const;

  // Removes temporary files whose writers have died. Never throws.
  void sweep() const;

 private:
  std::string settings_path() const;
  bool has_entries(const std::string& identity) const;

  std::string path_;
};

}  // namespace tinyloop
