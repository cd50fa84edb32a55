// SPDX-License-Identifier: Apache-2.0
// The running jobs of a batch: their rows and those of the prompts being read, in shared passes.
// Not which job comes next: generate_batch decides that.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/batch/caches.h"
#include "tinyloop/batch/plan.h"
#include "tinyloop/schedule/answer_stream.h"
#include "tinyloop/schedule/live_rows.h"

namespace tinyloop {

class BatchLanes {
 public:
  // The outcome of the jobs given to start(): one of these calls for each.
  struct Events {
    std::function<void(const PlannedJob&, BatchOutcome)> ended;
    // Its cache got no memory. Returns false if a retry is pointless and the job has failed.
    std::function<bool(PlannedJob&)> refused;
  };
  // `chunk`: prompt rows of a pass.
  BatchLanes(Forward& forward, const BatchOptions& options, std::int64_t chunk, BatchCaches& caches,
             BatchStats& stats, Events events);

  bool full() const { return stats_.busy == options_.lanes; }
  bool idle() const { return stats_.busy == 0 && readings_.empty(); }
  // Whether a shared prefix is being computed.
  bool reads_prefix() const;

  // Gives the job a free lane. `base`: the prefix that its cache starts with; null: none.
  void start(PlannedJob job, SharedCache* base, std::size_t bytes);
  // Starts computing `prefix`, whose cache exists, from its first positions.
  void read(const std::shared_ptr<SharedPrefix>& prefix);
  // Due rows enter, all rows advance by one loop, finished rows leave and tokens are picked.
  // `gather`: lanes that have read their prompts wait.
  void turn(bool gather);

 private:
  struct Lane {
    enum class State { reading, waiting, moving };

    PlannedJob planned;
    std::optional<Sampler> sampler;
    DecodeRequest request;
    std::optional<AnswerStream> stream;
    std::optional<CacheStart> start;
    State state = State::reading;
    bool first = true;  // no token has been picked
    LiveRow row;
    double queue_ms = -1.0;
  };
  // Ids being read into a cache, a chunk at a time: a lane's prompt, or a shared prefix.
  struct Reading {
    Lane* lane = nullptr;
    std::shared_ptr<SharedPrefix> prefix;
    std::span<const TokenId> ids;
    KvCache* cache = nullptr;
    bool wants_last = false;    // the logits after the last id
    std::vector<LiveRow> rows;  // the current chunk
    double ms = 0.0;            // its share of the passes

    // Whether the logits of the chunk's last row are needed.
    bool wants_logits() const {
      return wants_last && rows.back().row.position + 1 == std::ssize(ids);
    }
  };
  using Readings = std::list<Reading>;

  bool lockstep() const { return options_.schedule == BatchSchedule::lockstep; }
  bool selects() const { return options_.exit.kind != ExitRule::Kind::none; }

  void enter_lanes(std::vector<LiveRow*>& entering);
  void enter_prompts(std::vector<LiveRow*>& entering);
  void begin_chunk(Reading& reading, std::int64_t end);
  void pass();
  void leave();
  std::vector<Lane*> lanes_done() const;
  std::vector<float> commit(std::span<Lane* const> lanes, std::span<const float> logits);
  void finish_chunk(Readings::iterator at, std::span<const float> logits);
  void prefix_read(const SharedPrefix& prefix, bool computed, double ms);
  void read_last(Lane& lane);
  void settle(Lane& lane, std::span<const float> logits);
  void refuse(Lane& lane, std::string error);
  void end(Lane& lane, std::string error);
  void leaves_queue(Lane& lane);

  Forward& forward_;
  const BatchOptions& options_;
  BatchCaches& caches_;
  BatchStats& stats_;
  Events events_;
  DecodeStats uncounted_;  // for rows that belong to no stream
  LiveRows rows_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // lane i has slot i
  Readings readings_;                         // in the order they get rows
  std::vector<std::int32_t> free_slots_;      // for rows of prompts
};

}  // namespace tinyloop
