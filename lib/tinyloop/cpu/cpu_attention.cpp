// SPDX-License-Identifier: Apache-2.0
// Attention, rotation and the storing of K and V on the CPU: finds the tiles, shares heads and
// queries among the threads. What is in a tile is the kernels' business.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "tinyloop/cpu/cpu_ops.h"
#include "tinyloop/cpu/device_floats.h"

namespace tinyloop {
namespace {

constexpr std::int64_t kBlockTiles = kBlock / kTile;

// The tile of a (sequence, plane, head).
unsigned char* find_tile(KvSegments segments, const KvGeometry& kv, std::int64_t plane,
                         std::int64_t head, std::int64_t tile) {
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), tile,
                       [](std::int64_t t, const KvSegment& s) { return t < s.first_tile; });
  assert(after != segments.begin());
  const KvSegment& segment = *(after - 1);
  assert(tile < segment.first_tile + segment.tiles);
  return bytes_at(segment.base +
                  (plane * segment.plane_stride + head * segment.head_stride +
                   (tile - segment.first_tile) * static_cast<std::int64_t>(kv.tile_bytes())));
}

// The part of the positions first .. last that lies in a block, relative to the block's start.
struct VisiblePart {
  std::int32_t first, end;
};
VisiblePart part_in_block(std::int64_t first, std::int64_t last, std::int64_t block) {
  const std::int64_t start = block * kBlock;
  const auto from = static_cast<std::int32_t>(std::clamp(first - start, std::int64_t{0}, kBlock));
  const auto end = static_cast<std::int32_t>(std::clamp(last + 1 - start, std::int64_t{0}, kBlock));
  return from < end ? VisiblePart{from, end} : VisiblePart{0, 0};
}

// Position `lane` of a tile, K and V with their scales; the layout is in device/kv_tile.h.
void copy_lane(unsigned char* to, const unsigned char* from, const KvGeometry& kv,
               std::int64_t lane) {
  const bool nibbles = kv.mode == KvMode::int4;
  const std::int64_t width = kv.mode == KvMode::f32 ? 4 : kv.mode == KvMode::f16 ? 2 : 1;
  const auto scales = static_cast<std::int64_t>(kv.scale_bytes());
  const auto values = static_cast<std::int64_t>(kv.key_bytes());
  if (scales > 0) {
    std::memcpy(to + lane * 4, from + lane * 4, 4);
    std::memcpy(to + values + lane * 4, from + values + lane * 4, 4);
  }
  for (std::int64_t d = 0; d < kv.head_dim; ++d) {
    const std::int64_t row = scales + d * (nibbles ? kTile / 2 : kTile * width);
    if (nibbles) {
      const unsigned mask = lane < 8 ? 0x0fu : 0xf0u;
      unsigned char& byte = to[row + lane % 8];
      byte = static_cast<unsigned char>((byte & ~mask) | (from[row + lane % 8] & mask));
    } else {
      std::memcpy(to + row + lane * width, from + row + lane * width,
                  static_cast<std::size_t>(width));
    }
  }
  const std::int64_t piece = nibbles ? 8 : 16 * width;
  for (std::int64_t panel = 0; panel < kv.padded_head_dim() / 16; ++panel) {
    const std::int64_t at = values + scales + (panel * kTile + lane) * piece;
    std::memcpy(to + at, from + at, static_cast<std::size_t>(piece));
  }
}

// What the queries of a tile see of one block.
struct BlockView {
  std::int32_t first[kMostTileRows] = {}, end[kMostTileRows] = {};
  const unsigned char* tiles[kBlockTiles] = {};
};

// What the queries of a tile make of one block.
struct BlockResult {
  BlockResult(float* memory, std::int64_t padded_head_dim)
      : greatest(memory),
        sum(memory + kMostTileRows),
        values(memory + 2 * kMostTileRows),
        floats(size(padded_head_dim)) {}
  static std::int64_t size(std::int64_t padded_head_dim) {
    return kMostTileRows * (2 + padded_head_dim);
  }

  float *greatest, *sum, *values;
  std::int64_t floats;
};

// Working memory of one thread.
struct AttentionMemory {
  AttentionMemory(std::byte* memory, const KvGeometry& kv)
      : scores(reinterpret_cast<float*>(memory)),
        q(scores + kMostTileRows * kBlock),
        block(q + kMostTileRows * kv.padded_head_dim(), kv.padded_head_dim()),
        total(block.greatest + block.floats, kv.padded_head_dim()) {}
  static std::size_t bytes(const KvGeometry& kv) {
    const std::int64_t padded = kv.padded_head_dim();
    return static_cast<std::size_t>(kMostTileRows * (kBlock + padded) +
                                    2 * BlockResult::size(padded)) *
           sizeof(float);
  }

  float *scores, *q;
  BlockResult block, total;
};

// One call of attention. An item of work is one tile of queries of one kv head, a unit is one block
// of an item.
struct AttentionCall {
  const KernelTable& kernels;
  Rows out, q;
  std::span<const KvRow> rows;
  std::span<const KvSegments> sequences;
  const AttentionShape& shape;
  std::int64_t group;  // query heads of one kv head
  std::span<const QueryTile> tiles;

  std::int64_t items() const { return static_cast<std::int64_t>(tiles.size()) * shape.kv.kv_heads; }
  std::int64_t units_of_head() const { return tiles.back().first_unit + tiles.back().blocks; }
  const QueryTile& tile_of(std::int64_t item) const {
    return tiles[static_cast<std::size_t>(item) % tiles.size()];
  }
  std::int64_t kv_head_of(std::int64_t item) const {
    return item / static_cast<std::int64_t>(tiles.size());
  }
  std::int64_t first_unit_of(std::int64_t item) const {
    return kv_head_of(item) * units_of_head() + tile_of(item).first_unit;
  }
  std::int64_t item_of_unit(std::int64_t unit) const {
    const auto after =
        std::upper_bound(tiles.begin(), tiles.end(), unit % units_of_head(),
                         [](std::int64_t u, const QueryTile& tile) { return u < tile.first_unit; });
    return unit / units_of_head() * static_cast<std::int64_t>(tiles.size()) +
           (after - tiles.begin() - 1);
  }

  // Of a query: its row, its first column in q and out, the positions it sees.
  std::int64_t row_of(const QueryTile& tile, int query) const {
    return tile.row + (tile.first + query) / group;
  }
  std::int64_t column_of(const QueryTile& tile, int query, std::int64_t kv_head) const {
    return (kv_head * group + (tile.first + query) % group) * shape.kv.head_dim;
  }
  std::int64_t last_seen(const QueryTile& tile, int query) const {
    return rows[static_cast<std::size_t>(row_of(tile, query))].position;
  }
  std::int64_t first_seen(const QueryTile& tile, int query) const {
    return shape.window > 0 ? std::max<std::int64_t>(0, last_seen(tile, query) - shape.window + 1)
                            : 0;
  }
  BlockView view(std::int64_t item, std::int64_t block) const;

  void pack_queries(std::int64_t item, const AttentionMemory& memory) const;
  void attend(const QueryTile& tile, const BlockView& now, const BlockView& next,
              const AttentionMemory& memory, const BlockResult& result) const;
  void start_total(const QueryTile& tile, const BlockResult& total) const;
  void fold(const QueryTile& tile, const BlockView& now, const BlockResult& result,
            const BlockResult& total) const;
  void write_out(std::int64_t item, const BlockResult& total) const;

  void run_items(Range items, const AttentionMemory& memory) const;
  void run_units(Range units, const AttentionMemory& memory,
                 float* results) const;  // [units][BlockResult]
  void fold_items(Range items, const AttentionMemory& memory, float* results) const;
};

BlockView AttentionCall::view(std::int64_t item, std::int64_t block) const {
  const QueryTile& tile = tile_of(item);
  const KvRow& row = rows[static_cast<std::size_t>(tile.row)];
  const KvSegments segments = sequences[static_cast<std::size_t>(row.sequence)];
  BlockView view;
  for (int i = 0; i < tile.count; ++i) {
    const VisiblePart part = part_in_block(first_seen(tile, i), last_seen(tile, i), block);
    view.first[i] = part.first;
    view.end[i] = part.end;
    for (std::int64_t t = part.first / kTile; t * kTile < part.end; ++t) {
      if (view.tiles[t] != nullptr) continue;
      view.tiles[t] =
          find_tile(segments, shape.kv, row.plane, kv_head_of(item), block * kBlockTiles + t);
    }
  }
  return view;
}

// Side by side, [head_dim][height].
void AttentionCall::pack_queries(std::int64_t item, const AttentionMemory& memory) const {
  const QueryTile& tile = tile_of(item);
  const std::int64_t head_dim = shape.kv.head_dim;
  const int height = kernels.attention_height(tile.count);
  std::fill_n(memory.q, head_dim * height, 0.0f);
  for (int i = 0; i < tile.count; ++i) {
    const float* from = row_at(q, row_of(tile, i)) + column_of(tile, i, kv_head_of(item));
    for (std::int64_t d = 0; d < head_dim; ++d) memory.q[d * height + i] = from[d];
  }
}

void AttentionCall::attend(const QueryTile& tile, const BlockView& now, const BlockView& next,
                           const AttentionMemory& memory, const BlockResult& result) const {
  kernels.attend[static_cast<std::size_t>(shape.kv.mode)](
      {tile.count, memory.q, shape.kv.head_dim, static_cast<std::int64_t>(shape.kv.key_bytes()),
       now.tiles, next.tiles, now.first, now.end, shape.scale, memory.scores, result.greatest,
       result.sum, result.values});
}

void AttentionCall::start_total(const QueryTile& tile, const BlockResult& total) const {
  std::fill_n(total.greatest, kMostTileRows, -std::numeric_limits<float>::infinity());
  std::fill_n(total.sum, kMostTileRows, 0.0f);
  std::fill_n(total.values, tile.count * shape.kv.padded_head_dim(), 0.0f);
}

void AttentionCall::fold(const QueryTile& tile, const BlockView& now, const BlockResult& result,
                         const BlockResult& total) const {
  kernels.fold({tile.count, shape.kv.padded_head_dim(), now.first, now.end, result.greatest,
                result.sum, result.values, total.greatest, total.sum, total.values});
}

// out = O / L
void AttentionCall::write_out(std::int64_t item, const BlockResult& total) const {
  const QueryTile& tile = tile_of(item);
  for (int i = 0; i < tile.count; ++i) {
    float* to = row_at(out, row_of(tile, i)) + column_of(tile, i, kv_head_of(item));
    const float* values = total.values + i * shape.kv.padded_head_dim();
    for (std::int64_t d = 0; d < shape.kv.head_dim; ++d) to[d] = values[d] / total.sum[i];
  }
}

void AttentionCall::run_items(Range range, const AttentionMemory& memory) const {
  const auto first_view = [&](std::int64_t item) {
    return item < range.end ? view(item, tile_of(item).first_block) : BlockView{};
  };
  BlockView now = first_view(range.first);
  for (std::int64_t item = range.first; item < range.end; ++item) {
    const QueryTile& tile = tile_of(item);
    const std::int64_t last = tile.first_block + tile.blocks - 1;
    pack_queries(item, memory);
    start_total(tile, memory.total);
    for (std::int64_t block = tile.first_block; block <= last; ++block) {
      const BlockView next = block < last ? view(item, block + 1) : first_view(item + 1);
      attend(tile, now, next, memory, memory.block);
      fold(tile, now, memory.block, memory.total);
      now = next;
    }
    write_out(item, memory.total);
  }
}

void AttentionCall::run_units(Range units, const AttentionMemory& memory, float* results) const {
  const std::int64_t padded = shape.kv.padded_head_dim();
  for (std::int64_t unit = units.first; unit < units.end; ++unit) {
    const std::int64_t item = item_of_unit(unit);
    const QueryTile& tile = tile_of(item);
    const std::int64_t block = tile.first_block + unit - first_unit_of(item);
    if (unit == units.first || block == tile.first_block) pack_queries(item, memory);
    const bool goes_on = unit + 1 < units.end && block + 1 < tile.first_block + tile.blocks;
    const BlockView next = goes_on ? view(item, block + 1) : BlockView{};
    attend(tile, view(item, block), next, memory,
           {results + unit * BlockResult::size(padded), padded});
  }
}

void AttentionCall::fold_items(Range range, const AttentionMemory& memory, float* results) const {
  const std::int64_t padded = shape.kv.padded_head_dim();
  for (std::int64_t item = range.first; item < range.end; ++item) {
    const QueryTile& tile = tile_of(item);
    start_total(tile, memory.total);
    for (std::int64_t b = 0; b < tile.blocks; ++b) {
      float* result = results + (first_unit_of(item) + b) * BlockResult::size(padded);
      fold(tile, view(item, tile.first_block + b), {result, padded}, memory.total);
    }
    write_out(item, memory.total);
  }
}

}  // namespace

void CpuOps::rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, DevicePtr angles,
                    DevicePtr bias, DevicePtr q_norm, DevicePtr k_norm) {
  const std::int64_t width = (shape.heads + shape.kv_heads) * shape.head_dim;
  share(rows, rows * width * 2, [&](int, Range range) {
    for (std::int64_t r = range.first; r < range.end; ++r) {
      kernels().rotate({row_at(qkv, r), floats_at(angles) + r * (shape.head_dim / 2) * 2,
                        floats_at(bias), floats_at(q_norm), floats_at(k_norm), shape.heads,
                        shape.kv_heads, shape.head_dim, shape.interleaved, shape.norm_eps});
    }
  });
}

void CpuOps::append(Rows k, Rows v, std::span<const KvRow> rows,
                    std::span<const KvSegments> sequences, const KvGeometry& geometry) {
  const auto store = kernels().store[static_cast<std::size_t>(geometry.mode)];
  const auto floats =
      static_cast<std::int64_t>(rows.size()) * geometry.kv_heads * geometry.head_dim * 4;
  // By heads and not by rows: two positions may share a byte.
  share(geometry.kv_heads, floats, [&](int, Range heads) {
    for (std::int64_t head = heads.first; head < heads.end; ++head) {
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const KvRow& row = rows[r];
        const auto at = static_cast<std::int64_t>(r);
        store({find_tile(sequences[static_cast<std::size_t>(row.sequence)], geometry, row.plane,
                         head, row.position / kTile),
               static_cast<std::int64_t>(geometry.key_bytes()),
               row_at(k, at) + head * geometry.head_dim, row_at(v, at) + head * geometry.head_dim,
               geometry.head_dim, static_cast<std::int32_t>(row.position % kTile)});
      }
    }
  });
}

void CpuOps::copy_positions(std::span<const KvCopy> copies, std::span<const KvSegments> sequences,
                            const KvGeometry& geometry) {
  for (const KvCopy& copy : copies) {
    const KvSegments segments = sequences[static_cast<std::size_t>(copy.sequence)];
    for (std::int64_t head = 0; head < geometry.kv_heads; ++head) {
      const std::int64_t tile = copy.position / kTile;
      copy_lane(find_tile(segments, geometry, copy.to_plane, head, tile),
                find_tile(segments, geometry, copy.from_plane, head, tile), geometry,
                copy.position % kTile);
    }
  }
}

void CpuOps::attention(Rows out, Rows q, std::span<const KvRow> rows,
                       std::span<const KvSegments> sequences, const AttentionShape& shape) {
  if (rows.empty()) return;
  const std::int64_t group = shape.heads / shape.kv.kv_heads;
  list_query_tiles(query_tiles_, rows, group, shape.window, kernels().attention_rows);
  const AttentionCall call = {kernels(), out, q, rows, sequences, shape, group, query_tiles_};
  for (WorkingMemory& memory : worker_memory_) memory.reserve(AttentionMemory::bytes(shape.kv));
  const auto memory_of = [&](int worker) {
    return AttentionMemory(worker_memory_[static_cast<std::size_t>(worker)].reserve(0), shape.kv);
  };
  std::int64_t seen = 0;
  for (const KvRow& row : rows) {
    seen += shape.window > 0 ? std::min(shape.window, row.position + 1) : row.position + 1;
  }
  const std::int64_t floats = seen * shape.heads * shape.kv.head_dim;
  const std::int64_t units = call.units_of_head() * shape.kv.kv_heads;
  if (call.items() >= workers_.count() || units == call.items()) {
    share(call.items(), floats,
          [&](int worker, Range range) { call.run_items(range, memory_of(worker)); });
    return;
  }
  // Fewer items than threads: the blocks are shared out and folded afterwards, in order, to the
  // same bits.
  const std::int64_t result_floats = units * BlockResult::size(shape.kv.padded_head_dim());
  auto* results = reinterpret_cast<float*>(
      packed_.reserve(static_cast<std::size_t>(result_floats) * sizeof(float)));
  share(units, floats,
        [&](int worker, Range range) { call.run_units(range, memory_of(worker), results); });
  share(call.items(), result_floats,
        [&](int worker, Range range) { call.fold_items(range, memory_of(worker), results); });
}

}  // namespace tinyloop
