// SPDX-License-Identifier: Apache-2.0
// Attention, rotation and the storing of K and V on the CPU: finds the tiles, shares heads and
// queries among the threads. What is in a tile is the kernels' business.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "cpu/cpu_ops.h"
#include "cpu/device_floats.h"

namespace tinyloop {
namespace {

constexpr std::int64_t kBlockTiles = kBlock / kTile;

// The tiles of one (sequence, plane, head); made for ascending look-ups.
class TileFinder {
 public:
  TileFinder(KvSegments segments, std::int64_t plane, std::int64_t head, std::size_t tile_bytes)
      : segments_(segments),
        plane_(plane),
        head_(head),
        tile_bytes_(static_cast<std::int64_t>(tile_bytes)) {}

  unsigned char* at(std::int64_t tile) {
    if (tile < segments_[index_].first_tile) index_ = 0;
    while (tile >= segments_[index_].first_tile + segments_[index_].tiles) ++index_;
    const KvSegment& segment = segments_[index_];
    assert(tile >= segment.first_tile);
    return bytes_at(segment.base + (plane_ * segment.plane_stride + head_ * segment.head_stride +
                                    (tile - segment.first_tile) * tile_bytes_));
  }

 private:
  KvSegments segments_;
  std::int64_t plane_, head_, tile_bytes_;
  std::size_t index_ = 0;
};

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

// Working memory of one tile of queries, in floats, all parts multiples of 16.
struct AttentionMemory {
  AttentionMemory(std::byte* memory, const KvGeometry& kv) {
    auto* next = reinterpret_cast<float*>(memory);
    const auto take = [&](std::int64_t floats) {
      float* taken = next;
      next += floats;
      return taken;
    };
    scores = take(kMostTileRows * kBlock);
    q = take(kMostTileRows * kv.padded_head_dim());
    values = take(kMostTileRows * kv.padded_head_dim());
    total_values = take(kMostTileRows * kv.padded_head_dim());
    greatest = take(kMostTileRows);
    sum = take(kMostTileRows);
    total_greatest = take(kMostTileRows);
    total_sum = take(kMostTileRows);
  }
  static std::size_t bytes(const KvGeometry& kv) {
    const std::int64_t floats = kMostTileRows * (kBlock + 3 * kv.padded_head_dim() + 4);
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  float *scores, *q, *values, *total_values, *greatest, *sum, *total_greatest, *total_sum;
};

}  // namespace

struct CpuOps::AttentionCall {
  Rows out, q;
  std::span<const KvRow> rows;
  std::span<const KvSegments> sequences;
  const AttentionShape& shape;
  std::int64_t group;  // query heads of one kv head
};

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
        TileFinder tiles(sequences[static_cast<std::size_t>(row.sequence)], row.plane, head,
                         geometry.tile_bytes());
        const auto at = static_cast<std::int64_t>(r);
        store({tiles.at(row.position / kTile), static_cast<std::int64_t>(geometry.key_bytes()),
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
      TileFinder to(segments, copy.to_plane, head, geometry.tile_bytes());
      TileFinder from(segments, copy.from_plane, head, geometry.tile_bytes());
      copy_lane(to.at(copy.position / kTile), from.at(copy.position / kTile), geometry,
                copy.position % kTile);
    }
  }
}

void CpuOps::list_query_tiles(std::span<const KvRow> rows, std::int64_t group) {
  query_tiles_.clear();
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && rows[end].sequence == rows[begin].sequence &&
           rows[end].plane == rows[begin].plane) {
      ++end;
    }
    const std::int64_t queries = static_cast<std::int64_t>(end - begin) * group;
    for (std::int64_t first = 0; first < queries; first += kernels().attention_rows) {
      const std::int64_t count = std::min<std::int64_t>(queries - first, kernels().attention_rows);
      query_tiles_.push_back({static_cast<std::int64_t>(begin), first, static_cast<int>(count)});
    }
    begin = end;
  }
}

void CpuOps::attention(Rows out, Rows q, std::span<const KvRow> rows,
                       std::span<const KvSegments> sequences, const AttentionShape& shape) {
  if (rows.empty()) return;
  const AttentionCall call = {out, q, rows, sequences, shape, shape.heads / shape.kv.kv_heads};
  list_query_tiles(rows, call.group);
  for (WorkingMemory& memory : worker_memory_) memory.reserve(AttentionMemory::bytes(shape.kv));

  std::int64_t seen = 0;
  for (const KvRow& row : rows) {
    seen += shape.window > 0 ? std::min(shape.window, row.position + 1) : row.position + 1;
  }
  const auto tiles = static_cast<std::int64_t>(query_tiles_.size());
  share(tiles * shape.kv.kv_heads, seen * shape.heads * shape.kv.head_dim,
        [&](int worker, Range range) {
          std::byte* memory = worker_memory_[static_cast<std::size_t>(worker)].reserve(0);
          for (std::int64_t item = range.first; item < range.end; ++item) {
            attend_tile(call, query_tiles_[static_cast<std::size_t>(item % tiles)], item / tiles,
                        memory);
          }
        });
}

void CpuOps::attend_tile(const AttentionCall& call, const QueryTile& tile, std::int64_t kv_head,
                         std::byte* memory) {
  const AttentionShape& shape = call.shape;
  const std::int64_t head_dim = shape.kv.head_dim, padded = shape.kv.padded_head_dim();
  const AttentionMemory work(memory, shape.kv);
  const int height = kernels().attention_height(tile.count);

  // The queries, side by side, and what each may see.
  std::int64_t first[kMostTileRows], last[kMostTileRows], out_row[kMostTileRows],
      column[kMostTileRows];
  std::int64_t from = std::numeric_limits<std::int64_t>::max(), to = 0;
  for (int i = 0; i < tile.count; ++i) {
    out_row[i] = tile.row + (tile.first + i) / call.group;
    column[i] = (kv_head * call.group + (tile.first + i) % call.group) * head_dim;
    last[i] = call.rows[static_cast<std::size_t>(out_row[i])].position;
    first[i] = shape.window > 0 ? std::max<std::int64_t>(0, last[i] - shape.window + 1) : 0;
    from = std::min(from, first[i]);
    to = std::max(to, last[i]);
  }
  for (int i = 0; i < height; ++i) {
    const float* source = i < tile.count ? row_at(call.q, out_row[i]) + column[i] : nullptr;
    for (std::int64_t d = 0; d < head_dim; ++d)
      work.q[d * height + i] = source != nullptr ? source[d] : 0.0f;
  }
  std::fill_n(work.total_greatest, kMostTileRows, -std::numeric_limits<float>::infinity());
  std::fill_n(work.total_sum, kMostTileRows, 0.0f);
  std::fill_n(work.total_values, tile.count * padded, 0.0f);

  const KvRow& row = call.rows[static_cast<std::size_t>(tile.row)];
  TileFinder finder(call.sequences[static_cast<std::size_t>(row.sequence)], row.plane, kv_head,
                    shape.kv.tile_bytes());
  for (std::int64_t block = from / kBlock; block <= to / kBlock; ++block) {
    std::int32_t begin[kMostTileRows] = {}, end[kMostTileRows] = {};
    const unsigned char* tiles[kBlockTiles] = {};
    for (int i = 0; i < tile.count; ++i) {
      const VisiblePart part = part_in_block(first[i], last[i], block);
      begin[i] = part.first;
      end[i] = part.end;
      for (std::int64_t t = part.first / kTile; t * kTile < part.end; ++t) {
        if (tiles[t] == nullptr) tiles[t] = finder.at(block * kBlockTiles + t);
      }
    }
    kernels().attend[static_cast<std::size_t>(shape.kv.mode)](
        {tile.count, work.q, head_dim, static_cast<std::int64_t>(shape.kv.key_bytes()), tiles,
         begin, end, shape.scale, work.scores, work.greatest, work.sum, work.values});
    kernels().fold({tile.count, padded, begin, end, work.greatest, work.sum, work.values,
                    work.total_greatest, work.total_sum, work.total_values});
  }
  for (int i = 0; i < tile.count; ++i) {
    float* target = row_at(call.out, out_row[i]) + column[i];
    const float* values = work.total_values + i * padded;
    for (std::int64_t d = 0; d < head_dim; ++d) target[d] = values[d] / work.total_sum[i];
  }
}

}  // namespace tinyloop
