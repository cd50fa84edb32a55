// SPDX-License-Identifier: Apache-2.0
// Prefixes in memory: prefill, fork, decode.
#include "tinyloop/schedule/prefix_cache.h"

#include <algorithm>
#include <cassert>

#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/schedule/decode.h"
#include "tinyloop/schedule/prefill.h"
#include "tinyloop/schedule/resume.h"

namespace tinyloop {

KvCache cache_from(Forward& forward, std::shared_ptr<const Snapshot> snapshot,
                   std::int64_t length) {
  KvCache cache(forward.ops(), forward.plan(), std::move(snapshot), length);
  forward.restore(cache);
  return cache;
}

std::vector<float> last_of(Forward& forward, const Snapshot& snapshot) {
  const std::span<const float> last = snapshot.last();
  if (static_cast<std::int32_t>(last.size()) != forward.model().config().hidden) {
    throw Error(ErrorKind::data, "{}: its shape does not fit the model", snapshot.path());
  }
  return {last.begin(), last.end()};
}

PrefixCache PrefixCache::build(Forward& forward, std::span<const TokenId> ids, std::int64_t chunk,
                               bool resumable) {
  if (resumable) check_resumable(forward);
  PrefixCache prefix(cache_identity(forward), KvCache(forward.ops(), forward.plan()));
  prefix.resumable_ = resumable;
  prefix.change_to(forward, ids, chunk);
  return prefix;
}

PrefixCache PrefixCache::from(Forward& forward, std::shared_ptr<const Snapshot> snapshot,
                              bool resumable) {
  assert(!resumable || snapshot->resumable());
  PrefixCache prefix(snapshot->identity(),
                     KvCache(forward.ops(), forward.plan(), snapshot, snapshot->length()));
  prefix.check(forward);
  forward.restore(prefix.cache_);
  prefix.ids_.assign(snapshot->ids().begin(), snapshot->ids().end());
  prefix.last_ = last_of(forward, *snapshot);
  prefix.resumable_ = resumable;
  if (resumable) {
    snapshot->verify_states();
    prefix.states_.assign(snapshot->states().begin(), snapshot->states().end());
    prefix.injected_.assign(snapshot->injected().begin(), snapshot->injected().end());
  }
  return prefix;
}

void PrefixCache::change_to(Forward& forward, std::span<const TokenId> ids, std::int64_t chunk) {
  check(forward);
  const std::int64_t context = forward.model().config().context;
  if (ids.empty()) throw Error(ErrorKind::usage, "empty prefix");
  if (static_cast<std::int64_t>(ids.size()) > context) {
    throw Error(ErrorKind::usage, "prefix too long: {} ids exceed the model's context of {}",
                ids.size(), context);
  }
  if (std::ranges::equal(ids, ids_)) return;
  // The last position is always computed: that is where last() comes from.
  const std::int64_t shared =
      std::min(std::ranges::mismatch(ids, std::span<const TokenId>(ids_)).in1 - ids.begin(),
               static_cast<std::ptrdiff_t>(ids.size()) - 1);
  try {
    cache_.crop(shared);
  } catch (const Error&) {  // the window has moved on
    cache_.crop(0);
  }
  ids_.clear();
  const auto hidden = static_cast<std::size_t>(forward.model().config().hidden);
  PrefillHooks hooks;
  if (resumable_) {
    const std::size_t computed = static_cast<std::size_t>(cache_.length()) * hidden;
    states_.resize(computed);
    injected_.resize(injected_.empty() ? 0 : computed);
    hooks = keeping_states(forward, states_, injected_);
  }
  prefill(forward, cache_, ids, chunk, hooks);
  const std::span<const float> inputs = forward.head_inputs();
  last_.assign(inputs.end() - static_cast<std::ptrdiff_t>(hidden), inputs.end());
  ids_.assign(ids.begin(), ids.end());
}

Answer PrefixCache::generate(Forward& forward, const Sampler& sampler, DecodeRequest request) {
  check(forward);
  if (request.prompt.size() < ids_.size() ||
      !std::ranges::equal(request.prompt.first(ids_.size()), ids_)) {
    throw Error(ErrorKind::usage, "the prompt does not begin with the prefix");
  }
  if (request.prompt.size() == ids_.size()) request.last = last_;
  KvCache own = cache_.fork();
  return decode(forward, own, sampler, request);
}

void PrefixCache::check(Forward& forward) const {
  if (cache_identity(forward) != identity_) {
    throw Error(ErrorKind::usage,
                "the prefix was computed with another model, device, loop count, window or initial "
                "state");
  }
}

}  // namespace tinyloop
