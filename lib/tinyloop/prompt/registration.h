// SPDX-License-Identifier: Apache-2.0
// Prompts that were read become snapshots: entries of a pool, or a file of their own. What a
// snapshot holds, kv/snapshot knows; how entries are found, pool/prefix_pool.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/prompt/prompt.h"

namespace tinyloop {

// What PrefixPool::publish() takes of a cache that holds `ids`; both must outlive it.
SnapshotContent content_of(KvCache& cache, std::span<const TokenId> ids, double computing_ms);
// Bytes of the entry that publish() makes of so many ids.
std::int64_t entry_bytes(Forward& forward, std::int64_t length, bool resumable = false);

// Counts what the pool did for a prompt that was answered. Returns what went wrong; may be empty.
std::string count_use(const PrefixPool& pool, const PoolReport& report);
// Adds a prompt, all of which is read. Throws Error.
void publish(PrefixPool& pool, Prompt& prompt);
// Writes a prompt, all of which is read, as a snapshot of its own; one with states is resumable.
// Replaces a file. Throws Error(io) naming the path.
void save_prompt(const std::string& path, Prompt& prompt);

// What became of one prefix.
struct Registration {
  EntryKey key;
  bool computed = false;  // false: it was there
};
// Registers each of `prefixes`, computing as little as it can: what is there is touched, what
// extends another one or shares its first ids is computed from it. `resumable`: the entries keep
// what a run with more loops needs to go on, and one that is there without it is replaced. In input
// order. `progress` is called after each with the number done; may be empty. Throws Error.
std::vector<Registration> register_prefixes(
    Forward& forward, PrefixPool& pool, std::span<const std::vector<TokenId>> prefixes,
    std::int64_t chunk, bool resumable = false,
    const std::function<void(std::size_t done)>& progress = {});

}  // namespace tinyloop
