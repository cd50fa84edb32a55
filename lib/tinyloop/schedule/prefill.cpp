// SPDX-License-Identifier: Apache-2.0
// Reads a prompt in chunks of rows.
#include "tinyloop/schedule/prefill.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <vector>

namespace tinyloop {

std::span<const float> prefill(Forward& forward, KvCache& cache, std::span<const TokenId> ids,
                               std::int64_t chunk, const PrefillHooks& hooks) {
  const std::int64_t most = std::min<std::int64_t>(forward.max_rows(), forward.slots());
  chunk = chunk == 0 ? most : std::min(chunk, most);
  const auto end = static_cast<std::int64_t>(ids.size());
  assert(cache.length() < end);
  std::span<const float> logits;
  std::vector<Row> rows;
  std::vector<std::int32_t> wanted;
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
    wanted.clear();
    if (hooks.all_logits) {
      wanted.resize(rows.size());
      std::iota(wanted.begin(), wanted.end(), 0);
    } else if (stop == end) {
      wanted.push_back(static_cast<std::int32_t>(rows.size()) - 1);
    }
    logits = forward.leave(rows, wanted);
    if (hooks.all_logits) hooks.all_logits(begin, logits);
    cache.commit(stop);
  }
  return logits.last(static_cast<std::size_t>(forward.model().config().vocab));
}

}  // namespace tinyloop
