// SPDX-License-Identifier: Apache-2.0
// Rows for measurements. Positions are never committed: the same ones are computed each time.
#include "tinyloop/measure/speed_runs.h"

#include <algorithm>
#include <cassert>

namespace tinyloop {

SpeedRuns::SpeedRuns(Forward& forward, std::int64_t positions)
    : forward_(forward),
      count_(forward.model(), forward.plan()),
      cache_(forward.ops(), forward.plan()) {
  cache_.reserve(std::max(positions, kTile));
  fill(std::max(positions, kTile));
}

// What attention reads must be distinct memory with numbers in it as they come about. One tile of
// positions is computed, in the storage mode, and copied to the others: its angles are wrong there,
// which costs nothing.
void SpeedRuns::fill(std::int64_t positions) {
  const std::int64_t at_once =
      std::min<std::int64_t>(kTile, std::min(forward_.max_rows(), forward_.slots()));
  for (std::int64_t first = 0; first < kTile; first += at_once) {
    run(first, std::min(at_once, kTile - first));
  }
  const auto tile = static_cast<std::int64_t>(cache_.geometry().tile_bytes());
  const KvSegments segments = cache_.segments();
  const KvSegment& source = segments.front();
  for (const KvSegment& segment : segments) {
    for (std::int32_t plane = 0; plane < cache_.planes(); ++plane) {
      for (std::int32_t head = 0; head < cache_.geometry().kv_heads; ++head) {
        const DevicePtr from =
            source.base + (plane * source.plane_stride + head * source.head_stride);
        const DevicePtr to =
            segment.base + (plane * segment.plane_stride + head * segment.head_stride);
        for (std::int64_t t = 0; t < segment.tiles; ++t) {
          if (segment.first_tile + t == 0 || (segment.first_tile + t) * kTile >= positions)
            continue;
          forward_.ops().copy(to + t * tile, from, static_cast<std::size_t>(tile));
        }
      }
    }
  }
}

void SpeedRuns::place(std::int64_t first, std::int64_t rows) {
  assert(rows <= forward_.max_rows() && rows <= forward_.slots());
  rows_.clear();
  for (std::int64_t r = 0; r < rows; ++r) {
    // Ids that differ, spread over the vocabulary.
    const auto id = static_cast<TokenId>((first + r) * 7919 % forward_.model().config().vocab);
    rows_.push_back({&cache_, first + r, id, static_cast<std::int32_t>(r), 0});
  }
  forward_.enter(rows_);
}

std::span<const float> SpeedRuns::run(std::int64_t first, std::int64_t rows) {
  place(first, rows);
  for (std::int32_t loop = 0; loop < forward_.plan().loops; ++loop) forward_.pass(rows_);
  const auto last = static_cast<std::int32_t>(rows) - 1;
  return forward_.leave(rows_, {&last, 1});
}

std::span<const float> SpeedRuns::decode(std::int64_t context) { return run(context, 1); }

std::span<const float> SpeedRuns::prefill(std::int64_t rows) { return run(0, rows); }

void SpeedRuns::prepare_pass(std::int64_t rows) {
  place(0, rows);
  forward_.ops().wait();
}

void SpeedRuns::pass() {
  for (Row& row : rows_) row.loop = 0;
  forward_.pass(rows_);
  forward_.ops().wait();
}

}  // namespace tinyloop
