// SPDX-License-Identifier: Apache-2.0
// Planes and states of prompts on their way into files, in an order that computes little.
#include "tinyloop/prompt/registration.h"

#include <algorithm>
#include <ctime>
#include <numeric>
#include <optional>
#include <utility>

#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/prompt/deepen.h"

namespace tinyloop {
namespace {

SnapshotContent content_of(Prompt& prompt) {
  SnapshotContent content = content_of(prompt.cache, prompt.ids, prompt.computing_ms);
  content.states = prompt.states;
  content.injected = prompt.injected;
  return content;
}

// Reads `ids` from what leaves the least to compute: the prefix before them or the pool's match.
Prompt read_prefix(Forward& forward, const PrefixPool& pool, std::span<const TokenId> ids,
                   std::optional<Prompt>& previous, const ReadOptions& options) {
  const std::int64_t shared =
      previous ? std::ranges::mismatch(previous->ids, ids).in1 - previous->ids.begin() : 0;
  const PoolMatch match = pool.lookup(ids);
  PromptSource source;
  if (match.length > shared && (match.snapshot->resumable() || !options.keep_states)) {
    source.pool = &pool;
  } else if (previous) {
    source.shared = &*previous;
  }
  return read_prompt(forward, ids, source, options);
}

}  // namespace

SnapshotContent content_of(KvCache& cache, std::span<const TokenId> ids, double computing_ms) {
  SnapshotContent content;
  content.shape = cache.snapshot_shape();
  content.ids = ids;
  content.prefill_ms = computing_ms;
  content.read_plane = [&cache](std::int32_t plane, std::span<std::byte> to) {
    cache.read_plane(plane, to);
  };
  return content;
}

std::int64_t entry_bytes(Forward& forward, std::int64_t length, bool resumable) {
  const ModelConfig& config = forward.model().config();
  const KvCache empty(forward.ops(), forward.plan());
  return snapshot_bytes(cache_identity(forward), empty.snapshot_shape(length), length,
                        resumable ? config.hidden : 0, config.injection != Injection::none);
}

std::string count_use(const PrefixPool& pool, const PoolReport& report) {
  if (!report.usable) return "";
  try {
    if (report.kind == MatchKind::miss) {
      pool.count_miss();
    } else {
      pool.count_hit(report.key, report.reused);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void publish(PrefixPool& pool, Prompt& prompt) { pool.publish(content_of(prompt)); }

void save_prompt(const std::string& path, Prompt& prompt) {
  SnapshotContent content = content_of(prompt);
  content.identity = prompt.identity;
  content.created = static_cast<std::int64_t>(std::max<std::time_t>(0, std::time(nullptr)));
  write_snapshot(path, content, false)->finish();
}

std::vector<Registration> register_prefixes(Forward& forward, PrefixPool& pool,
                                            std::span<const std::vector<TokenId>> prefixes,
                                            std::int64_t chunk, bool resumable,
                                            const std::function<void(std::size_t done)>& progress) {
  check_identity(forward, pool);
  if (resumable) check_resumable(forward);
  // In order of ids a prefix comes before what extends it, and its neighbour shares the most.
  std::vector<std::size_t> order(prefixes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return prefixes[a] < prefixes[b]; });
  std::vector<Registration> results(prefixes.size());
  std::optional<Prompt> previous;
  std::size_t done = 0;
  for (const std::size_t index : order) {
    const std::span<const TokenId> ids = prefixes[index];
    Registration& result = results[index];
    result.key = key_of(pool.identity(), ids);
    const auto there = pool.verified(ids);
    if (there && (there->resumable() || !resumable)) {
      pool.touch(result.key);
    } else {
      ReadOptions options;
      options.chunk = chunk;
      options.keep_states = resumable;
      previous = read_prefix(forward, pool, ids, previous, options);
      pool.publish(content_of(*previous), there != nullptr);
      result.computed = true;
    }
    if (progress) progress(++done);
  }
  return results;
}

}  // namespace tinyloop
