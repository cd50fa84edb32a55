// SPDX-License-Identifier: Apache-2.0
// Wavefront speculation: every pass advances all live rows, each at its own loop; every d passes
// the youngest row guesses the next token, which enters, while the oldest leaves at the last loop.
// A wrong guess costs the rows younger than it and nothing else.
#include <deque>

#include "tinyloop/schedule/answer_stream.h"
#include "tinyloop/schedule/generate.h"
#include "tinyloop/schedule/live_rows.h"

namespace tinyloop {
namespace {

class Wavefront {
 public:
  Wavefront(Forward& forward, Prompt& prompt, const Sampler& sampler, const DecodeRequest& request,
            const Speculation& speculation)
      : prompt_(prompt),
        cache_(prompt_.cache),
        vocab_(static_cast<std::size_t>(forward.model().config().vocab)),
        draft_loops_(speculation.draft_loops),
        lanes_(speculation.rows(forward.plan().loops)),
        stream_(forward, sampler, request, prompt_),
        rows_(forward, request.exit, stream_.stats(), lanes_) {}

  Answer run() {
    if (stream_.ended()) return stream_.finish();
    const std::int64_t position = stream_.position();
    const TokenId id = stream_.take(stream_.begin(prompt_));
    if (!stream_.ended()) add(id, position);
    while (!stream_.ended()) {
      std::vector<LiveRow*> all;
      for (LiveRow& row : front_) all.push_back(&row);
      rows_.pass(all);
      turn();
    }
    return stream_.finish();
  }

 private:
  // What is due between two passes. The oldest row and the youngest share one reading of the head.
  void turn() {
    do {
      const bool finished = front_.front().done;
      // A finished row that is alone gives the token itself.
      const bool guesses = wants_guess() && !(finished && front_.size() == 1);
      std::vector<LiveRow*> leaving;
      if (finished) leaving.push_back(&front_.front());
      if (guesses) leaving.push_back(&front_.back());
      if (leaving.empty()) return;
      const std::span<const float> logits = rows_.leave(leaving);
      const std::span<const float> last = logits.last(vocab_);
      const std::vector<float> youngest(last.begin(), last.end());
      if (finished && !settle(logits.first(vocab_))) return;
      if (guesses) guess(youngest);
      // A row that its exit rule let go early may be the oldest now, with nothing left to do.
    } while (front_.front().done);
  }

  bool wants_guess() const {
    const LiveRow& row = front_.back();
    return !guessed_ && static_cast<std::int32_t>(front_.size()) < lanes_ &&
           (row.done || row.row.loop >= draft_loops_) &&
           stream_.remaining() > static_cast<std::int64_t>(front_.size());
  }

  void guess(std::span<const float> logits) {
    guessed_ = true;  // once for each row, whether there is a guess or not
    std::vector<TokenId> drafts;
    for (std::size_t i = 1; i < front_.size(); ++i) drafts.push_back(front_[i].row.id);
    const std::vector<TokenId> next = stream_.guess(logits, drafts);
    if (!next.empty()) add(next.front(), front_.back().row.position + 1);
  }

  // Picks a token from the oldest row and lets it go. False if the front begins anew or has ended.
  bool settle(std::span<const float> logits) {
    const LiveRow oldest = front_.front();
    cache_.commit(oldest.row.position + 1);
    rows_.confirm(oldest);
    std::vector<TokenId> guesses;
    if (front_.size() > 1) guesses.push_back(front_[1].row.id);
    const TokenId id = stream_.take(logits, guesses);
    if (stream_.ended()) return false;
    front_.pop_front();
    if (!guesses.empty() && guesses.front() == id) return true;
    front_.clear();
    add(id, oldest.row.position + 1);
    return false;
  }

  void add(TokenId id, std::int64_t position) {
    cache_.reserve(position + 1);
    // Positions of the front are consecutive and no more than there are lanes.
    front_.push_back(
        rows_.at({&cache_, position, id, static_cast<std::int32_t>(position % lanes_), 0}));
    guessed_ = false;
    rows_.enter({&front_.back(), 1});
  }

  Prompt& prompt_;
  KvCache& cache_;
  std::size_t vocab_;
  std::int32_t draft_loops_, lanes_;
  AnswerStream stream_;
  LiveRows rows_;
  std::deque<LiveRow> front_;  // oldest first; all but the first are guesses
  bool guessed_ = false;       // the youngest has guessed
};

}  // namespace

Answer speculate_wavefront(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                           const DecodeRequest& request, const Speculation& speculation) {
  return Wavefront(forward, prompt, sampler, request, speculation).run();
}

}  // namespace tinyloop
