// SPDX-License-Identifier: Apache-2.0
// The engine's pieces of work to measure: a decode step after a number of positions, a prefill of
// a number of rows in one chunk, one pass of the looped block over a number of rows. Each may be
// run repeatedly. Not the timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/work_count.h"
#include "tinyloop/kv/kv_cache.h"

namespace tinyloop {

class SpeedRuns {
 public:
  // Works on positions 0 .. positions-1, whose K and V it fills. forward must outlive it; uses its
  // slots from 0 on. Throws Error(device) if memory is refused.
  SpeedRuns(Forward& forward, std::int64_t positions);

  // One token at position `context`, all loops and the head. Returns its logits.
  std::span<const float> decode(std::int64_t context);
  // Positions 0 .. rows-1, all loops, the head on the last. rows: at most max_rows and slots.
  std::span<const float> prefill(std::int64_t rows);
  // One loop (the first) of positions 0 .. rows-1, which are entered by prepare_pass and may then
  // pass any number of times until another function is called.
  void prepare_pass(std::int64_t rows);
  void pass();

  Work decode_work(std::int64_t context) const { return count_.all({context, 1}); }
  Work prefill_work(std::int64_t rows) const { return count_.all({0, rows}); }
  Work pass_work(std::int64_t rows) const { return count_.pass({0, rows}); }
  std::size_t cache_bytes() const { return cache_.bytes(); }

 private:
  std::span<const float> run(std::int64_t first, std::int64_t rows);
  void place(std::int64_t first, std::int64_t rows);
  void fill(std::int64_t positions);

  Forward& forward_;
  WorkCount count_;
  KvCache cache_;
  std::vector<Row> rows_;
};

}  // namespace tinyloop
