// SPDX-License-Identifier: Apache-2.0
// States out of a run, and into a deeper one.
#include "tinyloop/prompt/deepen.h"

#include <algorithm>

#include "tinyloop/error.h"

namespace tinyloop {

void check_resumable(Forward& forward) {
  const ModelConfig& config = forward.model().config();
  if (config.injection == Injection::relaxed) {
    throw Error(ErrorKind::usage,
                "a {} model with looped layers cannot resume with more loops: each loop's step is "
                "alpha / loops, so all steps would differ",
                config.family);
  }
  if (stores_inputs(forward.plan().storage)) {
    throw Error(ErrorKind::usage, "a state holds keys and values; {} stores layer inputs",
                name_of(forward.plan().storage));
  }
}

PrefillHooks keeping_states(Forward& forward, std::vector<float>& states,
                            std::vector<float>& injected) {
  PrefillHooks hooks;
  hooks.after_loop = [&](std::span<const Row> rows) {
    if (rows.front().loop < forward.plan().loops) return;
    const std::span<const float> now = forward.states(rows);
    states.insert(states.end(), now.begin(), now.end());
    const std::span<const float> again = forward.injected(rows);
    injected.insert(injected.end(), again.begin(), again.end());
  };
  return hooks;
}

std::span<const float> run_missing_loops(Forward& forward, KvCache& cache,
                                         std::span<const TokenId> ids, std::int32_t loops,
                                         std::span<const float> states,
                                         std::span<const float> injected) {
  const auto length = static_cast<std::int64_t>(ids.size());
  const auto hidden = static_cast<std::size_t>(forward.model().config().hidden);
  const std::int64_t chunk = std::min(forward.max_rows(), forward.slots());
  std::span<const float> logits;
  std::vector<Row> rows;
  for (std::int64_t begin = 0; begin < length; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, length);
    rows.clear();
    for (std::int64_t position = begin; position < end; ++position) {
      rows.push_back({&cache, position, ids[static_cast<std::size_t>(position)],
                      static_cast<std::int32_t>(position - begin), loops});
    }
    const auto first = static_cast<std::size_t>(begin) * hidden, count = rows.size() * hidden;
    forward.restore(rows, states.subspan(first, count),
                    injected.empty() ? injected : injected.subspan(first, count));
    while (rows.front().loop < forward.plan().loops) forward.pass(rows);
    const auto last = static_cast<std::int32_t>(rows.size()) - 1;
    const bool final_chunk = end == length;
    logits = forward.leave(rows, {&last, final_chunk ? std::size_t{1} : std::size_t{0}});
  }
  // Nothing is committed before the end, so that a window drops nothing on the way.
  cache.commit(length);
  return logits;
}

}  // namespace tinyloop
