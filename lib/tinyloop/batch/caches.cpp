// SPDX-License-Identifier: Apache-2.0
// Forks, look-ups and the bookkeeping of memory.
#include "tinyloop/batch/caches.h"

#include <algorithm>

#include "tinyloop/error.h"
#include "tinyloop/prompt/prompt.h"
#include "tinyloop/prompt/registration.h"

namespace tinyloop {

BatchCaches::BatchCaches(Forward& forward, const BatchOptions& options, std::int64_t chunk,
                         std::string& warning)
    : forward_(forward),
      options_(options),
      chunk_(chunk),
      warning_(warning),
      empty_(forward.ops(), forward.plan()) {}

std::size_t BatchCaches::bytes_of(const BatchJob& job, std::int64_t shared) const {
  return job.stop.max_tokens == 0 ? 0 : bytes_to(shared, end_of(job));
}

// The last token is picked, not read.
std::int64_t BatchCaches::end_of(const BatchJob& job) const {
  const std::int64_t context = forward_.model().config().context;
  return std::min(context, std::ssize(job.prompt) + std::min(job.stop.max_tokens, context) - 1);
}

void BatchCaches::check(const BatchJob& job) const {
  const std::size_t bytes = bytes_of(job, 0);
  if (options_.memory == 0 || options_.memory_guessed || bytes <= options_.memory) return;
  throw Error(ErrorKind::device,
              "its keys and values may need {} bytes, more than the {} of `memory` for all lanes",
              bytes, options_.memory);
}

CacheStart BatchCaches::start(std::span<const TokenId> ids, std::int64_t end, SharedCache* shared,
                              std::size_t bytes) {
  CacheStart start = begin(ids, shared, bytes);
  start.cache.set_end(end);
  return start;
}

CacheStart BatchCaches::begin(std::span<const TokenId> ids, SharedCache* shared,
                              std::size_t bytes) {
  CacheStart start{
      shared != nullptr ? shared->start->cache.fork() : KvCache(forward_.ops(), forward_.plan()),
      MemoryShare(taken_, bytes),
      false,
      {},
      0,
      0.0};
  if (options_.pool == nullptr) return start;
  const PoolMatch match = options_.pool->lookup(ids, options_.pool_crop);
  note(match.warning);
  start.pool_usable = match.usable;
  if (!match.snapshot) return start;
  try {
    if (match.length > start.cache.length()) begin_with(match, start);
    start.key = match.key;
    start.pool_reused = match.length;
    start.prefill_ms = computing_ms(match);
  } catch (const Error& error) {
    note(error.what());
  }
  return start;
}

// All planes are checked here: damage found in the middle of a pass would spoil the other lanes'.
void BatchCaches::begin_with(const PoolMatch& match, CacheStart& start) {
  if (!latest_ || latest_key_ != match.key) {
    latest_.reset();
    match.snapshot->verify_all();
    latest_ = match.snapshot;
    latest_key_ = match.key;
  }
  start.cache = cache_from(forward_, latest_, match.length);
}

bool BatchCaches::count(const CacheStart& start) {
  if (options_.pool == nullptr || !start.pool_usable) return false;
  try {
    if (start.key.length > 0) {
      options_.pool->count_hit(start.key, start.pool_reused);
    } else {
      options_.pool->count_miss();
    }
  } catch (const Error& error) {
    note(error.what());
  }
  return true;
}

void BatchCaches::publish(SharedCache& shared, bool computed, double prefill_ms) {
  CacheStart& start = *shared.start;
  try {
    if (computed) {
      options_.pool->publish(content_of(start.cache, shared.ids, prefill_ms + start.prefill_ms));
    } else {
      options_.pool->touch(start.key);
    }
  } catch (const Error& error) {
    note(error.what());
  }
}

}  // namespace tinyloop
