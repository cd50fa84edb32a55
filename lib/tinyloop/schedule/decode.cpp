// SPDX-License-Identifier: Apache-2.0
// Plain decoding: pick, enter, pass, leave for one row at a time. Others by name.
#include "tinyloop/schedule/decode.h"

#include <utility>

#include "tinyloop/schedule/answer_stream.h"
#include "tinyloop/schedule/live_rows.h"

namespace tinyloop {

Answer decode(Forward& forward, Prompt&& prompt, const Sampler& sampler,
              const DecodeRequest& request) {
  AnswerStream stream(forward, sampler, request, prompt);
  if (stream.ended()) return stream.finish();
  KvCache& cache = prompt.cache;
  LiveRows rows(forward, request.exit, stream.stats(), 1);
  const std::span<const float> logits = stream.begin(prompt);
  for (bool first = true;; first = false) {
    const std::int64_t position = stream.position();
    const TokenId id = first ? stream.pick(logits) : stream.pick_on_device();
    if (stream.ended()) return stream.finish();
    cache.reserve(position + 1);
    LiveRow row = rows.at({&cache, position, id, 0, 0});
    rows.enter({&row, 1});
    while (!row.done) rows.pass({&row, 1});
    rows.leave_on_device(row);
    cache.commit(position + 1);
    rows.confirm(row);
  }
}

Answer generate(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                const DecodeRequest& request, const Speculation& speculation) {
  switch (speculation.kind) {
    case Speculation::Kind::block:
      return speculate_block(forward, std::move(prompt), sampler, request, speculation);
    case Speculation::Kind::tree:
      return speculate_tree(forward, std::move(prompt), sampler, request, speculation);
    case Speculation::Kind::wavefront:
      return speculate_wavefront(forward, std::move(prompt), sampler, request, speculation);
    default:
      return decode(forward, std::move(prompt), sampler, request);
  }
}

}  // namespace tinyloop
