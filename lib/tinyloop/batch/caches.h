// SPDX-License-Identifier: Apache-2.0
// Where the caches of a batch start: empty, with a prefix shared by other jobs, or with a pool
// entry; and the memory that they may take together. Computes nothing and schedules nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinyloop/batch/plan.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/token.h"

namespace tinyloop {

// Bytes that count as taken while this object lives.
class MemoryShare {
 public:
  MemoryShare() = default;
  MemoryShare(std::size_t& taken, std::size_t bytes) : taken_(&taken), bytes_(bytes) {
    taken += bytes;
  }
  MemoryShare(MemoryShare&& other) noexcept
      : taken_(std::exchange(other.taken_, nullptr)), bytes_(other.bytes_) {}
  MemoryShare& operator=(MemoryShare&& other) noexcept {
    std::swap(taken_, other.taken_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryShare() {
    if (taken_ != nullptr) *taken_ -= bytes_;
  }

 private:
  std::size_t* taken_ = nullptr;
  std::size_t bytes_ = 0;
};

struct CacheStart {
  KvCache cache;
  MemoryShare memory;
  bool pool_usable = false;
  EntryKey key;                  // of the pool's entry; of length 0: a miss
  std::int64_t pool_reused = 0;  // positions that the pool holds
  double prefill_ms = 0.0;       // the time it took to compute them
};

// The cache of a prefix shared by several jobs.
struct SharedCache {
  enum class State { reading, ready, failed };
  State state = State::reading;
  std::vector<TokenId> ids;
  std::optional<CacheStart> start;  // unless failed

  // There is no memory for it; its jobs run without it.
  void give_up() {
    state = State::failed;
    start.reset();
  }
};

class BatchCaches {
 public:
  // `chunk`: positions that one cache reserves at a time. The first problem with the pool is
  // stored in `warning`.
  BatchCaches(Forward& forward, const BatchOptions& options, std::int64_t chunk,
              std::string& warning);

  // The maximum bytes of the job's cache beyond its first `shared` positions. The inputs that a
  // store-h mode keeps are not shared.
  std::size_t bytes_of(const BatchJob& job, std::int64_t shared) const;
  std::size_t bytes_to(std::int64_t shared, std::int64_t end) const {
    return empty_.bytes_to(shared, end, chunk_) + empty_.record_bytes_to(end);
  }
  bool has_room(std::size_t bytes) const {
    return options_.memory == 0 || taken_ + bytes <= options_.memory;
  }
  // For a job; a single job may exceed a guessed bound.
  bool has_room_for_job(std::size_t bytes) const {
    return has_room(bytes) || (options_.memory_guessed && taken_ == 0);
  }
  // Throws Error(device) if it can never fit.
  void check(const BatchJob& job) const;

  // The maximum number of positions of the job's cache.
  std::int64_t end_of(const BatchJob& job) const;
  // A cache for `ids` that grows to at most `end` positions and starts with as many of them as
  // `shared` (null: none) or the pool holds; it counts as `bytes`. Throws Error(device) if memory
  // is refused.
  CacheStart start(std::span<const TokenId> ids, std::int64_t end, SharedCache* shared,
                   std::size_t bytes);
  // Counts a prompt's use of the pool, once it is answered; returns whether it was counted.
  bool count(const CacheStart& start);
  // Adds a shared prefix to the pool. `computed`: false if the pool held all of it.
  void publish(SharedCache& shared, bool computed, double prefill_ms);

 private:
  CacheStart begin(std::span<const TokenId> ids, SharedCache* shared, std::size_t bytes);
  void begin_with(const PoolMatch& match, CacheStart& start);
  void note(const std::string& warning) {
    if (warning_.empty()) warning_ = warning;
  }

  Forward& forward_;
  const BatchOptions& options_;
  std::int64_t chunk_;
  std::string& warning_;
  KvCache empty_;
  std::size_t taken_ = 0;
  // The latest pool entry used: mapped and checked once for consecutive jobs that use it.
  std::shared_ptr<const Snapshot> latest_;
  EntryKey latest_key_;
};

}  // namespace tinyloop
