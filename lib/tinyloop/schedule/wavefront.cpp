// SPDX-License-Identifier: Apache-2.0
// Wavefront speculation: every pass advances all live rows, each at its own loop; every d passes
// the youngest row guesses the next token, which enters, while the oldest leaves at the last loop.
// A wrong guess costs the rows younger than it and nothing else.
#include <deque>
#include <vector>

#include "tinyloop/schedule/answer_stream.h"
#include "tinyloop/schedule/live_rows.h"
#include "tinyloop/schedule/speculation.h"

namespace tinyloop {
namespace {

class Wavefront {
 public:
  Wavefront(Forward& forward, Prompt& prompt, const Sampler& sampler, const DecodeRequest& request,
            const Speculation& speculation)
      : prompt_(prompt),
        cache_(prompt_.cache),
        vocab_(static_cast<std::size_t>(forward.model().config().vocab)),
        draft_loops_(speculation.proposal_loops()),
        lanes_(speculation.rows(forward.plan().loops)),
        stream_(forward, sampler, request, prompt_),
        rows_(forward, request.exit, stream_.stats(), lanes_) {}

  Answer run() {
    if (stream_.ended()) return stream_.finish();
    const std::int64_t position = stream_.position();
    const TokenId id = stream_.pick(stream_.begin(prompt_));
    if (!stream_.ended()) add(id, position);
    while (!stream_.ended()) {
      std::vector<LiveRow*> all;
      for (Live& live : front_) all.push_back(&live.row);
      rows_.pass(all);
      turn();
    }
    return stream_.finish();
  }

 private:
  // A row on its way, and what it has proposed for the position after it.
  struct Live {
    LiveRow row;
    std::size_t proposals = 0;  // made, or let pass
  };

  // What is due between two passes. All that leave share one reading of the head.
  void turn() {
    do {
      const bool finished = front_.front().row.done;
      std::vector<std::size_t> proposing;
      std::vector<LiveRow*> leaving;
      if (finished) leaving.push_back(&front_.front().row);
      for (std::size_t i = finished ? 1 : 0; i < front_.size(); ++i) {
        if (!proposes(i)) continue;
        proposing.push_back(i);
        leaving.push_back(&front_[i].row);
      }
      if (leaving.empty()) return;
      const std::span<const float> view = rows_.leave(leaving);
      const std::vector<float> logits(view.begin(), view.end());
      const auto of = [&](std::size_t row) {
        return std::span<const float>(logits).subspan(row * vocab_, vocab_);
      };
      std::size_t gone = 0;
      if (finished) {
        if (!settle(of(0))) return;
        gone = 1;
      }
      for (std::size_t n = 0; n < proposing.size(); ++n) {
        const std::size_t row = proposing[n] - gone;
        if (stream_.remaining() <= static_cast<std::int64_t>(row) + 1) break;
        // Where a row takes back what stood on its last guess, the younger rows are gone.
        if (propose(row, of(n + gone))) break;
      }
      // A row that its exit rule let go early may be the oldest now, with nothing left to do.
    } while (front_.front().row.done);
  }

  // Whether a row is to propose the token after it, for the first time or again. A finished row
  // gives the token itself.
  bool proposes(std::size_t i) const {
    const Live& live = front_[i];
    if (live.proposals == draft_loops_.size()) return false;
    if (!live.row.done && live.row.row.loop < draft_loops_[live.proposals]) return false;
    const bool youngest = i + 1 == front_.size();
    if (youngest && static_cast<std::int32_t>(front_.size()) == lanes_) return false;
    return stream_.remaining() > static_cast<std::int64_t>(i) + 1;
  }

  // True if that changes what is above the row.
  bool propose(std::size_t i, std::span<const float> logits) {
    ++front_[i].proposals;  // counts whether there is a guess or not
    std::vector<TokenId> drafts;
    for (std::size_t r = 1; r <= i; ++r) drafts.push_back(front_[r].row.row.id);
    const std::vector<TokenId> next = stream_.guess(logits, drafts);
    if (next.empty()) return false;
    const bool youngest = i + 1 == front_.size();
    if (!youngest && front_[i + 1].row.row.id == next.front()) return false;
    front_.erase(front_.begin() + static_cast<std::ptrdiff_t>(i) + 1, front_.end());
    add(next.front(), front_.back().row.row.position + 1);
    return true;
  }

  // Picks a token from the oldest row and lets it go. False if the front begins anew or has ended.
  bool settle(std::span<const float> logits) {
    const LiveRow oldest = front_.front().row;
    cache_.commit(oldest.row.position + 1);
    rows_.confirm(oldest);
    std::vector<TokenId> guesses;
    if (front_.size() > 1) guesses.push_back(front_[1].row.row.id);
    const TokenId id = stream_.pick(logits, guesses);
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
        {rows_.at({&cache_, position, id, static_cast<std::int32_t>(position % lanes_), 0}), 0});
    rows_.enter({&front_.back().row, 1});
  }

  Prompt& prompt_;
  KvCache& cache_;
  std::size_t vocab_;
  std::vector<std::int32_t> draft_loops_;  // of the proposals, ascending
  std::int32_t lanes_;
  AnswerStream stream_;
  LiveRows rows_;
  std::deque<Live> front_;  // oldest first; all but the first are guesses
};

}  // namespace

Answer speculate_wavefront(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                           const DecodeRequest& request, const Speculation& speculation) {
  return Wavefront(forward, prompt, sampler, request, speculation).run();
}

}  // namespace tinyloop
