// SPDX-License-Identifier: Apache-2.0
// The one way to read a prompt: from scratch, or starting from a pool entry, a saved state or
// another prompt. The result is the same, bit for bit, wherever it starts; schedule/ continues
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/cache_identity.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/kv/snapshot.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/token.h"

namespace tinyloop {

// The cost of reading a prompt.
struct PromptWork {
  std::int64_t prefilled = 0;  // positions computed
  std::int64_t reused = 0;     // positions found
  std::int64_t loops_run = 0;  // loops run, summed over positions
  double ms = 0.0;             // with the look-up
};

// What a pool held for a prompt.
struct PoolReport {
  MatchKind kind = MatchKind::miss;
  EntryKey key;             // of the entry, unless kind is miss
  std::int64_t reused = 0;  // prompt positions taken from it: all but the last at most
  std::int32_t loops = 0;   // how many of their loops it had; all of them unless kind is warm
  bool usable = false;      // false: no pool was given, or it may not be touched
  std::string warning;      // may be empty; at most one a prompt
};

struct Prompt {
  CacheIdentity identity;  // of the run that read it
  std::vector<TokenId> ids;
  KvCache cache;              // of all ids, or all but the last if that was not run
  std::vector<float> logits;  // [vocab] after the last id; empty if that was not run
  // [ids][hidden] after the last loop, and the injected inputs (see Forward::injected());
  // empty unless they were requested.
  std::vector<float> states = {}, injected = {};
  PromptWork work = {};
  double computing_ms = 0.0;  // the time it would take to compute all of it
  PoolReport pool = {};

  // A copy that can be continued independently: full tiles are shared. It has no states
  // and its work is zero.
  Prompt fork();
};

// Where reading starts: at most one of the three.
struct PromptSource {
  const PrefixPool* pool = nullptr;  // the entry that leaves the least to compute
  bool crop = true;                  // pool: also entries that share only their first ids
  // A snapshot of this prompt with as many loops or, if it is resumable, fewer.
  std::shared_ptr<const Snapshot> snapshot = nullptr;
  Prompt* shared = nullptr;  // another prompt that shares the first ids; it is not changed
};

struct ReadOptions {
  std::int64_t chunk = 0;  // positions that advance together; 0: as many as the forward pass can
  // False: the last position is left to a schedule whose exit rule runs it.
  bool run_last = true;
  bool keep_states = false;  // for a resumable snapshot
};

// The prompt's length; throws Error(usage) if it is empty or longer than the context.
std::int64_t checked_length(std::span<const TokenId> prompt, const ModelConfig& config);

// A prompt of which nothing is read; for an answer of no tokens. Throws as checked_length().
Prompt unread_prompt(Forward& forward, std::span<const TokenId> ids);

// Reads `ids`. Any problem with a pool becomes pool.warning and the prompt is read without
// it; every plane that came from one is checked before this returns. Throws as checked_length();
// Error(usage) if the source was computed with another model, device, loop count, storage mode,
// window or initial state, or if states are to be kept and check_resumable() says no; Error(data)
// or DamagedSnapshot naming a snapshot that is damaged or does not fit; Error(device) if memory is
// refused.
Prompt read_prompt(Forward& forward, std::span<const TokenId> ids, const PromptSource& source = {},
                   const ReadOptions& options = {});

// Throws Error(usage) if the pool was opened for another model, device, loop count, window, storage
// mode or initial state.
void check_identity(Forward& forward, const PrefixPool& pool);

// A cache of the first `length` positions of a snapshot with the forward pass's loops, store-h
// records computed. Throws as KvCache does.
KvCache cache_from(Forward& forward, std::shared_ptr<const Snapshot> snapshot, std::int64_t length);
// What it took to compute the part of a snapshot that a match uses.
double computing_ms(const PoolMatch& match);

}  // namespace tinyloop
