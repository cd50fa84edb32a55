// SPDX-License-Identifier: Apache-2.0
// Segments of one sequence: growing the tail, dropping what a window has left behind, sharing on
// fork. Nothing here reads or writes a key or a value, except that a shared partial tile is copied
// whole.
#include "tinyloop/kv/kv_cache.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "tinyloop/error.h"

namespace tinyloop {

namespace {

constexpr std::int64_t kTailTiles = kBlock / kTile;

std::int64_t tile_end(const KvSegment& segment) { return segment.first_tile + segment.tiles; }

// Calls copy(where it is stored, where it is in the plane's bytes, bytes) for each piece of a plane
// of `shape` that the segments hold.
template <typename Copy>
void for_each_piece(KvSegments segments, std::int32_t plane, const SnapshotShape& shape,
                    const Copy& copy) {
  for (const KvSegment& segment : segments) {
    const std::int64_t first = std::max(segment.first_tile, shape.first_tile);
    const std::int64_t end = std::min(tile_end(segment), shape.first_tile + shape.tiles);
    if (first >= end) continue;
    for (std::int32_t head = 0; head < shape.kv_heads; ++head) {
      copy(segment.base + plane * segment.plane_stride + head * segment.head_stride +
               (first - segment.first_tile) * shape.tile_bytes,
           (head * shape.tiles + first - shape.first_tile) * shape.tile_bytes,
           static_cast<std::size_t>((end - first) * shape.tile_bytes));
    }
  }
}

// The device's view of a snapshot's planes.
struct AttachedPlanes {
  AttachedPlanes(Ops& device, std::shared_ptr<const Snapshot> mapped)
      : ops(device), snapshot(std::move(mapped)), base(ops.attach(snapshot->kv())) {}
  AttachedPlanes(const AttachedPlanes&) = delete;
  AttachedPlanes& operator=(const AttachedPlanes&) = delete;
  ~AttachedPlanes() { ops.detach(base, snapshot->kv().size()); }

  Ops& ops;
  std::shared_ptr<const Snapshot> snapshot;
  DevicePtr base;
};

}  // namespace

KvGeometry geometry_of(const LoopPlan& plan) {
  const auto tiles = [](StorageMode mode) {
    switch (mode) {
      case StorageMode::f32:
        return KvMode::f32;
      case StorageMode::int8:
        return KvMode::int8;
      case StorageMode::int4:
        return KvMode::int4;
      default:  // f16, and what is computed from stored inputs
        return KvMode::f16;
    }
  };
  return {tiles(plan.storage), plan.kv_heads, plan.head_dim};
}

KvCache::KvCache(Ops& ops, const LoopPlan& plan)
    : ops_(&ops), geometry_(geometry_of(plan)), plan_(plan) {
  if (!stores_inputs(plan.storage)) return;
  record_bytes_ = hidden_record_bytes(plan.storage, plan.hidden);
  records_.resize(static_cast<std::size_t>(planes()));
}

KvCache::KvCache(Ops& ops, const LoopPlan& plan, std::shared_ptr<const Snapshot> snapshot,
                 std::int64_t length)
    : KvCache(ops, plan) {
  assert(snapshot->serves(length));
  const SnapshotShape& shape = snapshot->shape();
  const bool hidden = record_bytes_ > 0;
  const auto tile =
      static_cast<std::int64_t>(hidden ? kTile * record_bytes_ : geometry_.tile_bytes());
  if (shape.planes != planes() || shape.kv_heads != (hidden ? 1 : geometry_.kv_heads) ||
      shape.tile_bytes != tile) {
    throw Error(ErrorKind::data, "{}: its shape does not fit the model", snapshot->path());
  }
  if (hidden) {
    take_records(*snapshot, length);
    return;
  }
  auto attached = std::make_shared<const AttachedPlanes>(ops, snapshot);
  segments_.push_back(
      {attached->base, shape.first_tile, shape.tiles, shape.plane_bytes(), shape.tiles * tile});
  memory_.push_back({std::move(attached), std::move(snapshot)});
  shared_tiles_ = shape.first_tile + shape.tiles;
  length_ = length;
  end_sharing_at(length);
}

void KvCache::take_records(const Snapshot& snapshot, std::int64_t length) {
  snapshot.verify_all();
  const SnapshotShape& shape = snapshot.shape();
  first_record_ = shape.first_tile * kTile;
  const auto bytes = static_cast<std::size_t>(length - first_record_) * record_bytes_;
  for (std::int32_t plane = 0; plane < planes(); ++plane) {
    const std::span<const std::byte> stored =
        snapshot.kv().subspan(static_cast<std::size_t>(plane * shape.plane_bytes()), bytes);
    records_[static_cast<std::size_t>(plane)].assign(stored.begin(), stored.end());
  }
  std::int64_t have = shape.first_tile;
  while (have * kTile < length) {
    const std::int64_t next = std::min(next_segment_end(have), (length + kTile - 1) / kTile);
    add_segment(have, next - have);
    have = next;
  }
  length_ = length;
}

std::span<std::byte> KvCache::record(std::int32_t plane, std::int64_t position) {
  std::vector<std::byte>& records = records_[static_cast<std::size_t>(plane)];
  const auto end = static_cast<std::size_t>(position + 1 - first_record_) * record_bytes_;
  if (records.size() < end) records.resize(end);
  return std::span(records).subspan(end - record_bytes_, record_bytes_);
}

void KvCache::verify(std::int32_t plane) const {
  for (const Holder& holder : memory_) {
    if (holder.snapshot) holder.snapshot->verify(plane);
  }
}

SnapshotShape KvCache::snapshot_shape() const {
  SnapshotShape shape = snapshot_shape(length_);
  const std::int64_t dropped =
      std::max<std::int64_t>(0, first_position() / kTile - shape.first_tile);
  shape.first_tile += dropped;
  shape.tiles -= dropped;
  return shape;
}

// One position may still be taken back: the last one can be run again.
SnapshotShape KvCache::snapshot_shape(std::int64_t length) const {
  const std::int64_t first_seen =
      plan_.window > 0 ? std::max<std::int64_t>(0, length - plan_.window) : 0;
  const std::int64_t first_tile = first_seen / kTile;
  const std::int64_t tiles = (length + kTile - 1) / kTile - first_tile;
  if (record_bytes_ > 0) {
    return {planes(), 1, first_tile, tiles, kTile * static_cast<std::int64_t>(record_bytes_)};
  }
  return {planes(), geometry_.kv_heads, first_tile, tiles,
          static_cast<std::int64_t>(geometry_.tile_bytes())};
}

void KvCache::read_plane(std::int32_t plane, std::span<std::byte> to) const {
  const SnapshotShape shape = snapshot_shape();
  assert(static_cast<std::int64_t>(to.size()) == shape.plane_bytes());
  if (record_bytes_ > 0) {
    const std::vector<std::byte>& records = records_[static_cast<std::size_t>(plane)];
    const std::int64_t first = shape.first_tile * kTile;
    const std::span<const std::byte> kept =
        std::span(records).subspan(static_cast<std::size_t>(first - first_record_) * record_bytes_,
                                   static_cast<std::size_t>(length_ - first) * record_bytes_);
    std::fill(std::copy(kept.begin(), kept.end(), to.begin()), to.end(), std::byte{0});
    return;
  }
  verify(plane);
  for_each_piece(segments_, plane, shape,
                 [&](DevicePtr stored, std::int64_t at, std::size_t bytes) {
                   ops_->download(to.data() + at, stored, bytes);
                 });
}

void KvCache::write_plane(std::int32_t plane, const SnapshotShape& shape,
                          std::span<const std::byte> from) {
  if (shape.kv_heads != geometry_.kv_heads || plane >= planes() ||
      shape.tile_bytes != static_cast<std::int64_t>(geometry_.tile_bytes())) {
    throw Error(ErrorKind::data, "saved keys and values do not have the model's shape");
  }
  for_each_piece(segments_, plane, shape,
                 [&](DevicePtr stored, std::int64_t at, std::size_t bytes) {
                   ops_->upload(stored, from.data() + at, bytes);
                 });
}

void KvCache::add_segment(std::int64_t first_tile, std::int64_t tiles) {
  const auto tile = static_cast<std::int64_t>(geometry_.tile_bytes());
  KvSegment segment;
  segment.first_tile = first_tile;
  segment.tiles = tiles;
  segment.head_stride = tiles * tile;
  segment.plane_stride = geometry_.kv_heads * segment.head_stride;
  DeviceBuffer buffer(*ops_, static_cast<std::size_t>(planes() * segment.plane_stride));
  segment.base = buffer.ptr();
  memory_.reserve(memory_.size() + 1);
  segments_.reserve(segments_.size() + 1);
  memory_.push_back({std::make_shared<DeviceBuffer>(std::move(buffer)), nullptr});
  segments_.push_back(segment);
}

// Ends on a block boundary, so that later segments hold whole softmax blocks in one piece, or where
// nothing comes behind it.
std::int64_t KvCache::next_segment_end(std::int64_t have) const {
  if (plan_.window > 0) return have + 1;
  return std::max(have + 1, std::min((have / kTailTiles + 1) * kTailTiles, end_tiles_));
}

void KvCache::reserve(std::int64_t end) {
  const std::int64_t tiles = (end + kTile - 1) / kTile;
  const std::int64_t first_seen =
      plan_.window > 0 ? std::max<std::int64_t>(0, length_ - plan_.window + 1) / kTile : 0;
  std::int64_t have = segments_.empty() ? first_seen : tile_end(segments_.back());
  while (have < tiles) {
    const std::int64_t next = next_segment_end(have);
    add_segment(have, next - have);
    have = next;
  }
  reserve_records(have * kTile);
  std::size_t unseen = 0;
  while (unseen < segments_.size() && tile_end(segments_[unseen]) <= first_seen) ++unseen;
  const auto count = static_cast<std::ptrdiff_t>(unseen);
  segments_.erase(segments_.begin(), segments_.begin() + count);
  memory_.erase(memory_.begin(), memory_.begin() + count);
}

// What grows by itself would take twice its bytes.
void KvCache::reserve_records(std::int64_t end) {
  const std::int64_t blocks = (end + kBlock - 1) / kBlock * kBlock;
  const std::int64_t positions = std::max(end, std::min(blocks, end_tiles_ * kTile));
  const auto bytes = static_cast<std::size_t>(positions - first_record_) * record_bytes_;
  try {
    for (std::vector<std::byte>& records : records_) records.reserve(bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::device, "no memory: {} bytes were refused", bytes);
  }
}

void KvCache::commit(std::int64_t length) {
  assert(length >= length_);
  assert(segments_.empty() ? length == 0 : length <= tile_end(segments_.back()) * kTile);
  length_ = length;
}

void KvCache::crop(std::int64_t length) {
  assert(length >= 0 && length <= length_);
  if (plan_.window > 0 && length > 0) {
    const std::int64_t first_seen = std::max<std::int64_t>(0, length - plan_.window + 1);
    if (first_seen < first_position()) {
      throw Error(ErrorKind::usage,
                  "cannot crop to {} positions: position {} has left the window of {}", length,
                  first_seen, plan_.window);
    }
  }
  if (length == 0 && first_position() > 0) {
    segments_.clear();
    memory_.clear();
    shared_tiles_ = 0;
  }
  if (length == 0) {
    first_record_ = 0;
    for (std::vector<std::byte>& records : records_) records.clear();
  }
  if (length < shared_tiles_ * kTile) end_sharing_at(length);
  length_ = length;
}

std::int64_t KvCache::first_position() const {
  return segments_.empty() ? 0 : segments_.front().first_tile * kTile;
}

// Tiles at and after the one that holds position `length` become writable: shared segments keep the
// full tiles before it, and the partial tile is copied.
void KvCache::end_sharing_at(std::int64_t length) {
  const std::int64_t full = length / kTile;
  KvSegment partial;
  Holder partial_memory;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (full < segments_[i].first_tile || full >= tile_end(segments_[i])) continue;
    partial = segments_[i];
    partial_memory = memory_[i];
  }
  while (!segments_.empty() && segments_.back().first_tile >= full) {
    segments_.pop_back();
    memory_.pop_back();
  }
  if (!segments_.empty()) {
    KvSegment& last = segments_.back();
    last.tiles = std::min(last.tiles, full - last.first_tile);
  }
  shared_tiles_ = full;
  if (length % kTile == 0 || partial.tiles == 0) return;
  const auto tile = static_cast<std::int64_t>(geometry_.tile_bytes());
  add_segment(full, next_segment_end(full) - full);
  const KvSegment& own = segments_.back();
  memory_.back().snapshot = partial_memory.snapshot;
  for (std::int32_t plane = 0; plane < planes(); ++plane) {
    for (std::int32_t head = 0; head < geometry_.kv_heads; ++head) {
      ops_->copy(own.base + plane * own.plane_stride + head * own.head_stride,
                 partial.base + plane * partial.plane_stride + head * partial.head_stride +
                     (full - partial.first_tile) * tile,
                 static_cast<std::size_t>(tile));
    }
  }
}

KvCache KvCache::fork() {
  KvCache copy = *this;
  copy.shared_tiles_ = (length_ + kTile - 1) / kTile;
  copy.end_sharing_at(length_);
  shared_tiles_ = std::max(shared_tiles_, length_ / kTile);
  return copy;
}

KvCache KvCache::share_loops(std::int32_t slots) const {
  assert(plan_.shared_planes == 0 && slots >= 1 && slots <= plan_.loops);
  LoopPlan plan = plan_;
  plan.shared_planes = slots;
  KvCache slim(*ops_, plan);
  const auto copy_plane = [&](const KvSegment& to, std::int32_t plane, const KvSegment& from,
                              std::int32_t source) {
    verify(source);
    for (std::int32_t head = 0; head < geometry_.kv_heads; ++head) {
      ops_->copy(to.base + plane * to.plane_stride + head * to.head_stride,
                 from.base + source * from.plane_stride + head * from.head_stride,
                 static_cast<std::size_t>(from.tiles) * geometry_.tile_bytes());
    }
  };
  for (const KvSegment& from : segments_) {
    slim.add_segment(from.first_tile, from.tiles);
    const KvSegment& to = slim.segments_.back();
    for (std::int32_t layer = 0; layer < plan.prelude_layers; ++layer) {
      copy_plane(to, plan.prelude_plane(layer), from, plan_.prelude_plane(layer));
    }
    for (std::int32_t loop = plan.loops - slots; loop < plan.loops; ++loop) {
      for (std::int32_t layer = 0; layer < plan.core_layers; ++layer) {
        copy_plane(to, plan.core_plane(loop, layer), from, plan_.core_plane(loop, layer));
      }
    }
    for (std::int32_t layer = 0; layer < plan.coda_layers; ++layer) {
      copy_plane(to, plan.coda_plane(layer), from, plan_.coda_plane(layer));
    }
  }
  slim.length_ = length_;
  return slim;
}

std::size_t KvCache::bytes() const {
  std::size_t sum = 0;
  for (const KvSegment& segment : segments_) {
    sum += static_cast<std::size_t>(segment.tiles * geometry_.kv_heads * planes()) *
           geometry_.tile_bytes();
  }
  return sum;
}

std::size_t KvCache::record_bytes_to(std::int64_t end) const {
  const std::int64_t positions = (end + kTile - 1) / kTile * kTile;
  return static_cast<std::size_t>(positions * planes()) * record_bytes_;
}

std::size_t KvCache::bytes_to(std::int64_t begin, std::int64_t end, std::int64_t step) const {
  std::int64_t tiles = (end + kTile - 1) / kTile - begin / kTile;
  // A step is reserved while what the step before it saw is still there.
  if (plan_.window > 0) tiles = std::min(tiles, (plan_.window + 2 * step) / kTile + 2);
  return static_cast<std::size_t>(std::max<std::int64_t>(0, tiles) * geometry_.kv_heads *
                                  planes()) *
         geometry_.tile_bytes();
}

}  // namespace tinyloop
