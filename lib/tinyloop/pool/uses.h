// SPDX-License-Identifier: Apache-2.0
// How often a pool's entries were used: one line per use in uses.log, folded into uses.sum by
// processes that publish or evict, or that find it long; and the lock that serialises folding,
// publishing and evicting. Order of use is the order of lines, so a clock that was set back
// cannot mislead. Not files of entries.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tinyloop/error.h"
#include "tinyloop/kv/cache_identity.h"

namespace tinyloop {

struct EntryUse {
  std::int64_t hits = 0;
  std::int64_t order = 0;      // greater is later
  std::int64_t last_used = 0;  // seconds since 1970, for people
  std::int64_t prefill_us = 0;
};

struct PoolCounts {
  std::int64_t hits = 0, misses = 0, reused = 0;  // lookups = hits + misses
  std::int64_t order = 0;                         // of the latest use
  std::map<EntryKey, EntryUse> entries;
  std::int64_t lookups() const { return hits + misses; }
};

class PoolUses {
 public:
  explicit PoolUses(std::string folder) : folder_(std::move(folder)) {}

  // Each appends one line, safe with any number of processes, and folds a log that has become long
  // if it can. Throw Error(io) if the line cannot be written.
  void add_hit(const EntryKey& key, std::int64_t reused) const;
  void add_miss() const;
  // A registration, new or a touch.
  void add_registration(const EntryKey& key, std::int64_t prefill_us) const;

  // What is known now; unreadable lines are skipped.
  PoolCounts read() const;

  // Held while publishing, evicting or folding. Throws Error(io) if it cannot be acquired in ten
  // seconds, or at once if an earlier wait failed.
  class Lock {
   public:
    explicit Lock(const PoolUses& uses);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    // Like read(), and folds the log if there is room; forgets entries for which
    // `exists` returns false.
    template <typename Exists>
    PoolCounts fold(const Exists& exists) {
      PoolCounts counts = uses_.read();
      std::erase_if(counts.entries, [&](const auto& entry) { return !exists(entry.first); });
      try {
        write(counts);
      } catch (const Error&) {  // a full disk: eviction must still work
      }
      return counts;
    }

    // As that of PoolUses, whose own would wait for this lock.
    void add_registration(const EntryKey& key, std::int64_t prefill_us);

   private:
    friend class PoolUses;
    Lock(const PoolUses& uses, int log) : uses_(uses), log_(log) {}  // open and locked
    void begin_anew_if_folded();
    void write(const PoolCounts& counts);
    const PoolUses& uses_;
    int log_ = -1;
  };

 private:
  void append(const std::string& line) const;
  void append_to(int log, const std::string& line) const;
  std::string log_path() const { return folder_ + "/uses.log"; }
  std::string sum_path() const { return folder_ + "/uses.sum"; }

  std::string folder_;
  // A process has held the lock longer than we wait: do not wait for it again.
  mutable bool held_ = false;
};

}  // namespace tinyloop
