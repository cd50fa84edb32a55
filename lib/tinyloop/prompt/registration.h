// SPDX-License-Identifier: Apache-2.0
// Writes prompts that were read as snapshots: pool entries, or separate files. kv/snapshot knows
// the content of a snapshot, pool/prefix_pool how entries are found.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/prompt/prompt.h"

namespace tinyloop {

// The content for PrefixPool::publish(), from a cache that holds `ids`; both must outlive it.
SnapshotContent content_of(KvCache& cache, std::span<const TokenId> ids, double computing_ms);
// Bytes of the entry that publish() writes for this many ids.
std::int64_t entry_bytes(Forward& forward, std::int64_t length, bool resumable = false);

// Counts the pool's use for an answered prompt. Returns a warning; may be empty.
std::string count_use(const PrefixPool& pool, const PoolReport& report);
// Adds a prompt that was read completely. Throws Error.
void publish(PrefixPool& pool, Prompt& prompt);
// Writes a prompt that was read completely to its own snapshot; one with states is resumable.
// Replaces a file. Throws Error(io) naming the path.
void save_prompt(const std::string& path, Prompt& prompt);

// The outcome for one prefix.
struct Registration {
  EntryKey key;
  bool computed = false;  // false: it already existed
};
// Registers each of `prefixes`, computing as little as possible: existing ones are touched, and one
// that extends another or shares its first ids is computed from it. `resumable`: the entries store
// what a run with more loops needs to resume; one without it is replaced. Results are in input
// order. `progress` is called after each with the number done; may be empty. Throws Error.
std::vector<Registration> register_prefixes(
    Forward& forward, PrefixPool& pool, std::span<const std::vector<TokenId>> prefixes,
    std::int64_t chunk, bool resumable = false,
    const std::function<void(std::size_t done)>& progress = {});

}  // namespace tinyloop
