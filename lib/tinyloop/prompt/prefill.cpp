// SPDX-License-Identifier: Apache-2.0
// Reads a prompt in chunks of rows.
#include "tinyloop/prompt/prefill.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <vector>

namespace tinyloop {

namespace {

// The logits of every row, some rows at a time: those of a whole chunk would take its length times
// the vocabulary. Later rows of a coda find what earlier ones left there.
std::span<const float> leave_all(Forward& forward, std::span<const Row> rows,
                                 const PrefillHooks& hooks) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 22;
  const auto most = static_cast<std::size_t>(
      std::max<std::int64_t>(16, kLogits / forward.model().config().vocab));
  std::span<const float> logits;
  std::vector<std::int32_t> wanted;
  for (std::size_t first = 0; first < rows.size(); first += most) {
    const std::span<const Row> some = rows.subspan(first, std::min(most, rows.size() - first));
    wanted.resize(some.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    logits = forward.leave(some, wanted);
    hooks.all_logits(some.front().position, logits);
  }
  return logits;
}

}  // namespace

std::span<const float> prefill(Forward& forward, KvCache& cache, std::span<const TokenId> ids,
                               std::int64_t chunk, const PrefillHooks& hooks) {
  const std::int64_t most = std::min<std::int64_t>(forward.max_rows(), forward.slots());
  chunk = chunk == 0 ? most : std::min(chunk, most);
  const auto end = static_cast<std::int64_t>(ids.size());
  assert(cache.length() < end);
  std::span<const float> logits;
  std::vector<Row> rows;
  for (std::int64_t begin = cache.length(); begin < end; begin = cache.length()) {
    const std::int64_t stop = std::min(begin + chunk, end);
    cache.reserve(stop);
    rows.clear();
    for (std::int64_t position = begin; position < stop; ++position) {
      rows.push_back({&cache, position, ids[static_cast<std::size_t>(position)],
                      static_cast<std::int32_t>(position - begin), 0});
    }
    forward.enter(rows);
    for (std::int32_t loop = 0; loop < forward.plan().loops; ++loop) {
      forward.pass(rows);
      if (hooks.after_loop) hooks.after_loop(rows);
    }
    if (hooks.all_logits) {
      logits = leave_all(forward, rows, hooks);
    } else {
      const auto last = static_cast<std::int32_t>(rows.size()) - 1;
      logits = forward.leave(rows, {&last, stop == end ? std::size_t{1} : std::size_t{0}});
    }
    cache.commit(stop);
  }
  return logits.last(static_cast<std::size_t>(forward.model().config().vocab));
}

}  // namespace tinyloop
