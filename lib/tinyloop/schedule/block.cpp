// SPDX-License-Identifier: Apache-2.0
// Block speculation: k tokens are guessed one after another from loop 0 to d, then their rows and
// the newest token's go on from d to the last loop in shared passes. The first d loops of a draft
// are the first d loops of its verification, so nothing is computed twice.
#include <algorithm>

#include "tinyloop/schedule/answer_stream.h"
#include "tinyloop/schedule/live_rows.h"
#include "tinyloop/schedule/speculation.h"

namespace tinyloop {

Answer speculate_block(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                       const DecodeRequest& request, const Speculation& speculation) {
  AnswerStream stream(forward, sampler, request, prompt);
  if (stream.ended()) return stream.finish();
  const auto vocab = static_cast<std::size_t>(forward.model().config().vocab);
  KvCache& cache = prompt.cache;
  LiveRows rows(forward, request.exit, stream.stats(), speculation.drafts + 1);
  TokenId id = stream.pick(stream.begin(prompt));
  std::vector<LiveRow> round;
  std::vector<TokenId> drafts;
  while (!stream.ended()) {
    // Each row gives one token, so more rows than tokens wanted would be idle work.
    const auto most = static_cast<std::size_t>(
        std::min<std::int64_t>(speculation.drafts + 1, stream.remaining()));
    const std::int64_t first = stream.position() - 1;  // of the token just picked
    round.clear();
    drafts.clear();
    cache.reserve(first + static_cast<std::int64_t>(most));
    for (;;) {
      const auto index = static_cast<std::int32_t>(round.size());
      round.push_back(rows.at({&cache, first + index, id, index, 0}));
      const std::span<LiveRow> newest = std::span(round).last(1);
      rows.enter(newest);
      while (!newest[0].done && newest[0].row.loop < speculation.draft_loops) rows.pass(newest);
      if (round.size() == most) break;
      const std::vector<TokenId> guess = stream.guess(rows.leave(newest), drafts);
      if (guess.empty()) break;
      id = guess.front();
      drafts.push_back(id);
    }
    while (std::any_of(round.begin(), round.end(), [](const LiveRow& r) { return !r.done; })) {
      rows.pass(round);
    }
    const std::span<const float> logits = rows.leave(round);
    for (std::size_t i = 0; i < round.size(); ++i) {
      cache.commit(round[i].row.position + 1);
      rows.confirm(round[i]);
      const std::span<const TokenId> guesses =
          std::span(drafts).subspan(i, i < drafts.size() ? 1 : 0);
      id = stream.pick(logits.subspan(i * vocab, vocab), guesses);
      // The rows behind a wrong guess are forgotten; their K and V will be overwritten.
      if (stream.ended() || guesses.empty() || guesses.front() != id) break;
    }
  }
  return stream.finish();
}

}  // namespace tinyloop
