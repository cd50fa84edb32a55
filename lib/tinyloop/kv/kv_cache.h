// SPDX-License-Identifier: Apache-2.0
// The K/V cache of one sequence: a list of segments over all planes, shared read-only ones first,
// then a writable tail. Knows which positions have room and where; what is in a tile is
// device/kv_tile, who fills it the forward pass.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "tinyloop/device/kv_tile.h"
#include "tinyloop/device/ops.h"
#include "tinyloop/kv/hidden_codec.h"
#include "tinyloop/kv/snapshot.h"
#include "tinyloop/model/loop_plan.h"

namespace tinyloop {

// The tiles of the plan's planes.
KvGeometry geometry_of(const LoopPlan& plan);

class KvCache {
 public:
  // Holds no memory until reserve(). `ops` must outlive the cache.
  KvCache(Ops& ops, const LoopPlan& plan);
  // Begins with the first `length` positions of a snapshot, used where it is mapped but for a last
  // partial tile, which is copied. The snapshot serves(length). Throws Error(data) if its shape is
  // another one. In the store-h modes the planes are checked here, throwing DamagedSnapshot, and
  // the tiles are empty: Forward::restore() fills them from the records.
  KvCache(Ops& ops, const LoopPlan& plan, std::shared_ptr<const Snapshot> snapshot,
          std::int64_t length);
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  const LoopPlan& plan() const { return plan_; }
  const KvGeometry& geometry() const { return geometry_; }
  std::int32_t planes() const { return plan_.planes(); }
  std::int64_t length() const {
    return length_;
  }  // positions 0 .. length-1 are valid (within the window)

  // No position from `end` on will be asked for: memory for it is not taken.
  void set_end(std::int64_t end) { end_tiles_ = (end + kTile - 1) / kTile; }
  // Makes room for positions up to `end` (exclusive) and drops segments that no position from
  // length() on can see. Tail segments hold 256 positions (16 with a window, so that memory is
  // bounded by window + chunk + 16 positions). Throws Error(device) if memory is refused; the cache
  // is then as it was.
  void reserve(std::int64_t end);
  // Positions up to `length` now hold K and V in all planes; only grows.
  void commit(std::int64_t length);
  // Forgets the positions from `length` on; a shared tile that becomes partial is copied. Throws
  // Error(usage) if a window has already dropped positions that the position `length` would see.
  void crop(std::int64_t length);
  // A second sequence with the same first length() positions: full tiles are shared, the last
  // partial tile is copied, so each may go on alone.
  KvCache fork();
  // The same positions with planes for `slots` loops only: plane s gets what the last loop r with
  // r mod slots == s wrote. Shares nothing with this one. Needs a plan without sharing.
  KvCache share_loops(std::int32_t slots) const;

  // The most device memory of its own that a cache of this shape takes on its way from `begin`
  // positions that it shares to `end`, which was set, reserved at most `step` at a time.
  std::size_t bytes_to(std::int64_t begin, std::int64_t end, std::int64_t step) const;
  // The host memory of its records then, which are its own from the first position on; 0 unless in
  // a store-h mode.
  std::size_t record_bytes_to(std::int64_t end) const;

  // To be called before a plane is read: compares what came from a snapshot with its checksum.
  // Throws DamagedSnapshot; the cache is then void.
  void verify(std::int32_t plane) const;

  // The store-h modes' records, [planes][positions], kept in host memory from first_record() on.
  std::int64_t first_record() const { return first_record_; }
  std::span<std::byte> record(std::int32_t plane, std::int64_t position);

  // What a snapshot of the whole cache holds, and how it gets there; see SnapshotContent.
  SnapshotShape snapshot_shape() const;
  // The same for one that has read so many positions; at least what it will be.
  SnapshotShape snapshot_shape(std::int64_t length) const;
  void read_plane(std::int32_t plane, std::span<std::byte> to) const;
  // Stores what read_plane() gave for `shape` in this cache's own plane; there is room for it.
  void write_plane(std::int32_t plane, const SnapshotShape& shape, std::span<const std::byte> from);

  KvSegments segments() const { return segments_; }
  std::int64_t first_position() const;  // the first one that still has memory
  std::size_t bytes() const;            // device memory of all segments, shared ones included

 private:
  KvCache(const KvCache&) = default;  // fork() completes the copy
  void add_segment(std::int64_t first_tile, std::int64_t tiles);
  std::int64_t next_segment_end(std::int64_t have) const;
  void reserve_records(std::int64_t end);
  void end_sharing_at(std::int64_t length);
  void take_records(const Snapshot& snapshot, std::int64_t length);

  Ops* ops_;
  KvGeometry geometry_;
  LoopPlan plan_;
  std::int64_t length_ = 0;
  std::int64_t shared_tiles_ = 0;  // tiles below this one are read-only
  std::int64_t end_tiles_ = std::numeric_limits<std::int64_t>::max() / kTile;  // see set_end()
  // Keeps a segment's memory alive; `snapshot` is where its content is from, if it is from one.
  struct Holder {
    std::shared_ptr<const void> memory;
    std::shared_ptr<const Snapshot> snapshot;
  };
  std::vector<Holder> memory_;  // in the segments' order
  std::vector<KvSegment> segments_;
  std::size_t record_bytes_ = 0;  // 0: not a store-h mode
  std::int64_t first_record_ = 0;
  std::vector<std::vector<std::byte>> records_;  // of each plane
};

}  // namespace tinyloop
