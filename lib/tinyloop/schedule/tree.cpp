// SPDX-License-Identifier: Apache-2.0
// Tree speculation: a chain of best guesses as in block speculation, and beside each of them the
// next best ones as leaves. If the chain's guess is wrong but a leaf is right, the leaf's row
// has advanced with all others and yields the token after it.
//
// A leaf stands at the same position as the chain's row, so it needs a cache of its own: a fork
// that the chain's rows before it write to as well (Row::also).
#include <algorithm>
#include <memory>
#include <utility>

#include "tinyloop/schedule/answer_stream.h"
#include "tinyloop/schedule/live_rows.h"
#include "tinyloop/schedule/speculation.h"

namespace tinyloop {
namespace {

struct Leaf {
  std::unique_ptr<KvCache> cache;
  std::size_t row = 0;  // index into the round's rows, once it is known
};

class Tree {
 public:
  Tree(Forward& forward, Prompt& prompt, const Sampler& sampler, const DecodeRequest& request,
       const Speculation& speculation)
      : prompt_(prompt),
        cache_(prompt_.cache),
        schedule_(speculation),
        vocab_(static_cast<std::size_t>(forward.model().config().vocab)),
        stream_(forward, sampler, request, prompt_),
        rows_(forward, request.exit, stream_.stats(), speculation.rows(forward.plan().loops)) {}

  Answer run() {
    if (stream_.ended()) return stream_.finish();
    next_ = stream_.pick(stream_.begin(prompt_));
    while (!stream_.ended()) {
      // Each position gives one token, so more of them than tokens wanted would be idle work.
      plant(std::min<std::int64_t>(schedule_.depth, stream_.remaining() - 1));
      grow();
      harvest();
    }
    return stream_.finish();
  }

 private:
  // Forks a cache for each leaf of `depth` levels; those of level l begin with l + 1 rows of the
  // chain.
  void plant(std::int64_t depth) {
    first_ = stream_.position() - 1;
    round_.clear();
    round_.reserve(static_cast<std::size_t>(schedule_.depth * schedule_.width + 1));
    chain_.clear();
    guesses_.clear();
    leaves_.clear();
    branches_.clear();
    cache_.reserve(first_ + depth + 1);
    for (std::int64_t level = 0; level < depth; ++level) {
      leaves_.emplace_back();
      branches_.emplace_back();
      for (std::int32_t i = 1; i < schedule_.width; ++i) {
        leaves_.back().push_back({std::make_unique<KvCache>(cache_.fork()), 0});
        leaves_.back().back().cache->reserve(first_ + level + 2);
      }
    }
    // branches_[l]: the caches that the chain's row l writes to besides its own.
    for (std::size_t level = 0; level < leaves_.size(); ++level) {
      for (std::size_t row = 0; row <= level; ++row) {
        for (const Leaf& leaf : leaves_[level]) branches_[row].push_back(leaf.cache.get());
      }
    }
  }

  // Level by level from loop 0 to d: the chain's row and the leaves beside it.
  void grow() {
    std::vector<TokenId> ids = {next_};  // of this level, the chain's first
    std::vector<TokenId> drafts;
    for (std::size_t level = 0;; ++level) {
      const std::int64_t position = first_ + static_cast<std::int64_t>(level);
      chain_.push_back(round_.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        KvCache* cache = &cache_;
        if (i > 0) {
          Leaf& leaf = leaves_[level - 1][i - 1];
          leaf.row = round_.size();
          cache = leaf.cache.get();
        }
        Row row{cache, position, ids[i], static_cast<std::int32_t>(round_.size()), 0};
        if (i == 0 && level < branches_.size()) row.branch_caches = branches_[level];
        round_.push_back(rows_.at(row));
      }
      const std::span<LiveRow> newest = std::span(round_).subspan(chain_.back());
      rows_.enter(newest);
      for (std::int32_t loop = 0; loop < schedule_.draft_loops; ++loop) rows_.pass(newest);
      if (level == leaves_.size()) return;
      ids = stream_.guess(rows_.leave(newest.first(1)), drafts,
                          static_cast<std::size_t>(schedule_.width));
      if (ids.empty()) return;
      guesses_.push_back(ids);
      drafts.push_back(ids.front());
    }
  }

  // All rows to the end, then tokens from the chain as long as its guesses are right, and one more
  // from a leaf that is.
  void harvest() {
    while (std::any_of(round_.begin(), round_.end(), [](const LiveRow& r) { return !r.done; })) {
      rows_.pass(round_);
    }
    const std::span<const float> logits = rows_.leave(round_);
    const auto take = [&](std::size_t row, std::span<const TokenId> guesses) {
      rows_.confirm(round_[row]);
      next_ = stream_.pick(logits.subspan(row * vocab_, vocab_), guesses);
    };
    for (std::size_t level = 0; level < chain_.size(); ++level) {
      const std::int64_t end = first_ + static_cast<std::int64_t>(level) + 1;
      const bool more = level < guesses_.size();
      cache_.commit(end);
      take(chain_[level],
           more ? std::span<const TokenId>(guesses_[level]) : std::span<const TokenId>());
      if (stream_.ended() || !more) return;
      const std::vector<TokenId>& ids = guesses_[level];
      const auto found = std::find(ids.begin(), ids.end(), next_) - ids.begin();
      if (found == 0) continue;
      if (found == std::ssize(ids)) return;
      Leaf& leaf = leaves_[level][static_cast<std::size_t>(found) - 1];
      leaf.cache->commit(end + 1);
      cache_ = std::move(*leaf.cache);
      take(leaf.row, {});
      return;
    }
  }

  Prompt& prompt_;
  KvCache& cache_;
  const Speculation schedule_;
  std::size_t vocab_;
  AnswerStream stream_;
  LiveRows rows_;
  TokenId next_ = 0;        // the newest token, not yet read
  std::int64_t first_ = 0;  // its position
  std::vector<LiveRow> round_;
  std::vector<std::size_t> chain_;               // [levels]: the chain's rows in round_
  std::vector<std::vector<TokenId>> guesses_;    // [levels - 1][width] of the level after each
  std::vector<std::vector<Leaf>> leaves_;        // [levels - 1][width - 1] beside the next level
  std::vector<std::vector<KvCache*>> branches_;  // [levels - 1] what the chain's row writes to
};

}  // namespace

Answer speculate_tree(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                      const DecodeRequest& request, const Speculation& speculation) {
  return Tree(forward, prompt, sampler, request, speculation).run();
}

}  // namespace tinyloop
