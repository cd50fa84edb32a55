// SPDX-License-Identifier: Apache-2.0
// The files of a prefix pool: paths, listing, settings and limits, files left behind; see
// tl-pool(5). Knows names and sizes, not the content of an entry and not which one to
// use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/kv/cache_identity.h"

namespace tinyloop {

enum class EvictionPolicy {
  shortest,  // the entry with the fewest ids goes first
  lru,       // the least recently used
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
  PoolSettings settings;  // the defaults if there are none
  std::string warning;    // why the defaults are used although there should be others; may be empty
  // False: the pool's limits are unknown, because it has entries and its settings are missing or
  // damaged, or because they cannot be read now. Then nothing may be evicted by them and they may
  // not be overwritten, unless new settings are given.
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

  // Creates the folder and an identity's folder in it, if missing. Throws
  // Error(io).
  void create() const;
  void create(const std::string& identity) const;

  // Throws Error(usage) if the folder contains files, but nothing of a pool: it is not ours,
  // and nothing may be written there. A folder that is empty or missing passes.
  void require_ours() const;
  // Whether there is a pool: settings or entries.
  bool exists() const;
  // Whether this user may not list the entries of some identity.
  bool hides_entries() const;

  // Throws Error(io) if there is no such folder, Error(data) if the pool is of a newer format.
  // Capacity 0, which older versions wrote, is 1.
  FoundSettings settings() const;
  void set_settings(const PoolSettings& settings) const;  // throws Error(io)
  // Writes the defaults if there are no settings yet, so that a new pool states its format.
  void mark() const;

  // The listing is the index. Other names are left alone. Throws Error(io), but a missing identity
  // has no keys.
  std::vector<std::string> identities() const;
  std::vector<EntryKey> keys(const std::string& identity) const;
  std::vector<PoolEntry> entries() const;
  // The time of the latest change of keys(), in nanoseconds; 0 if there is no such folder.
  std::int64_t listing_state(const std::string& identity) const;
  // The same, once the file system's clock has advanced, so that any later change gives another
  // time; 0 if it does not advance.
  std::int64_t settled_listing_state(const std::string& identity) const;
  std::string order_path(const std::string& identity) const {
    return identity_path(identity) + ".order";
  }
  // -1 if it is gone.
  std::int64_t bytes_of(const PoolEntry& entry) const;
  // When the file was written, in seconds since 1970; 0 if it is gone.
  std::int64_t written_at(const PoolEntry& entry) const;
  // Returns whether it was there; a reader that has it mapped is not affected. Throws Error(io).
  bool remove(const PoolEntry& entry) const;

  // Removes temporary files whose writers have died. Never throws.
  void sweep() const;

 private:
  std::string settings_path() const;
  bool has_entries(const std::string& identity) const;

  std::string path_;
};

}  // namespace tinyloop
