// SPDX-License-Identifier: Apache-2.0
// Checks rotation, the storing of K and V and attention on every instruction set, against loops in
// double and against each other bit for bit. Memory around the stored positions is filled with NaN:
// nothing of it may be used.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "kernels/kernel_runs.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

constexpr double kUnit = 0x1p-24;  // of rounding in float

using Floats = std::vector<float>;

constexpr KvMode kModes[] = {KvMode::f32, KvMode::f16, KvMode::int8, KvMode::int4};

// A value as the cache gives it back, by the definition in kv_tile.h.
Floats stored(KvMode mode, std::span<const float> x) {
  Floats back(x.begin(), x.end());
  if (mode == KvMode::f32) return back;
  if (mode == KvMode::f16) {
    for (float& value : back) value = half_to_float(float_to_half(value));
    return back;
  }
  float greatest = 0.0f;
  for (const float value : x) greatest = std::max(greatest, std::fabs(value));
  const float scale = greatest / (mode == KvMode::int8 ? 127.0f : 7.0f);
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (float& value : back) value = std::nearbyint(value * inverse) * scale;
  return back;
}

// One sequence in device memory: planes x segments, all bytes 0xff before anything is stored (NaN
// in every mode).
class Sequence {
 public:
  // lengths: tiles of each segment; first_tile: of the first one.
  Sequence(Ops& ops, const KvGeometry& geometry, std::int64_t planes, std::int64_t first_tile,
           std::span<const std::int64_t> lengths)
      : ops_(ops), geometry_(geometry) {
    for (const std::int64_t tiles : lengths) {
      KvSegment segment;
      segment.first_tile = first_tile;
      segment.tiles = tiles;
      segment.head_stride = tiles * static_cast<std::int64_t>(geometry.tile_bytes()) + 64;
      segment.plane_stride = segment.head_stride * geometry.kv_heads + 128;
      memory_.emplace_back(ops, static_cast<std::size_t>(segment.plane_stride * planes));
      const std::vector<std::byte> junk(memory_.back().bytes(), std::byte{0xff});
      ops.upload(memory_.back().ptr(), junk.data(), junk.size());
      segment.base = memory_.back().ptr();
      segments_.push_back(segment);
      first_tile += tiles;
    }
  }
  KvSegments segments() const { return segments_; }

  // All bytes, to compare what two devices have stored.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const DeviceBuffer& memory : memory_) {
      std::vector<std::byte> part(memory.bytes());
      ops_.download(part.data(), memory.ptr(), part.size());
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // K and V of one head and position as the tile holds them; reads the layout by its description.
  Floats key(std::int64_t plane, std::int64_t head, std::int64_t position) const {
    return read(plane, head, position, false);
  }
  Floats value(std::int64_t plane, std::int64_t head, std::int64_t position) const {
    return read(plane, head, position, true);
  }

 private:
  Floats read(std::int64_t plane, std::int64_t head, std::int64_t position, bool is_value) const {
    const KvSegment* segment = segments_.data();
    while (position / 16 >= segment->first_tile + segment->tiles) ++segment;
    std::vector<unsigned char> tile(geometry_.tile_bytes());
    ops_.download(tile.data(),
                  segment->base + (plane * segment->plane_stride + head * segment->head_stride +
                                   (position / 16 - segment->first_tile) *
                                       static_cast<std::int64_t>(tile.size())),
                  tile.size());
    const std::size_t lane = static_cast<std::size_t>(position % 16);
    const unsigned char* part = tile.data() + (is_value ? geometry_.key_bytes() : 0);
    const unsigned char* values = part + geometry_.scale_bytes();
    Floats result;
    for (std::size_t d = 0; d < static_cast<std::size_t>(geometry_.head_dim); ++d) {
      // Vectors of 16: K has one for each channel (lane = position), V one for each panel and
      // position (lane = channel).
      const std::size_t vector = is_value ? d / 16 * 16 + lane : d, at = is_value ? d % 16 : lane;
      float scale = 1.0f;
      if (geometry_.scale_bytes() > 0) std::memcpy(&scale, part + lane * 4, 4);
      float x = 0.0f;
      if (geometry_.mode == KvMode::f32) {
        std::memcpy(&x, values + (vector * 16 + at) * 4, 4);
      } else if (geometry_.mode == KvMode::f16) {
        std::uint16_t half;
        std::memcpy(&half, values + (vector * 16 + at) * 2, 2);
        x = half_to_float(half);
      } else if (geometry_.mode == KvMode::int8) {
        x = static_cast<float>(static_cast<signed char>(values[vector * 16 + at]));
      } else {
        const int pair = values[vector * 8 + at % 8];
        x = static_cast<float>((at < 8 ? pair & 15 : pair >> 4) - 8);
      }
      result.push_back(x * scale);
    }
    return result;
  }

  Ops& ops_;
  KvGeometry geometry_;
  std::vector<DeviceBuffer> memory_;
  std::vector<KvSegment> segments_;
};

struct Shape {
  std::int32_t heads, kv_heads, head_dim;
};

// A pass: rows of several sequences and planes, with all earlier positions of each stored before.
struct Pass {
  AttentionShape shape;
  std::int64_t planes = 2;
  std::vector<std::vector<std::int64_t>> segment_tiles;  // of each sequence
  std::vector<std::int64_t> first_tile;                  // of each sequence
  std::vector<KvRow> rows;
  std::vector<KvRow> stored;  // all positions to be stored, the rows' own included
  Floats k, v;                // [stored][kv_heads * head_dim]
  Floats q;                   // [rows][heads * head_dim]
};

// Positions count - fresh .. count - 1 of each (sequence, plane) are rows.
Pass make_pass(Random& random, KvMode mode, Shape shape, std::int64_t window,
               std::span<const std::int64_t> counts, std::int64_t fresh) {
  Pass pass;
  pass.shape = {shape.heads,
                {mode, shape.kv_heads, shape.head_dim},
                window,
                1.0f / std::sqrt(static_cast<float>(shape.head_dim))};
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const std::int64_t tiles = (counts[s] + 15) / 16;
    // With a window the tiles that nobody sees do not exist; the rest comes in two segments.
    const std::int64_t oldest = counts[s] - std::min(fresh, counts[s]) - window + 1;
    const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, oldest) / 16 : 0;
    const std::int64_t left = tiles - first, half = (left + 1) / 2;
    pass.first_tile.push_back(first);
    pass.segment_tiles.push_back(left > half ? std::vector{half, left - half} : std::vector{half});
    for (std::int32_t plane = 0; plane < pass.planes; ++plane) {
      for (std::int64_t p = first * 16; p < counts[s]; ++p) {
        pass.stored.push_back({static_cast<std::int32_t>(s), plane, p});
        if (p >= counts[s] - fresh) pass.rows.push_back(pass.stored.back());
      }
    }
  }
  const auto stored_count = static_cast<std::int64_t>(pass.stored.size());
  pass.k = random.floats(stored_count * shape.kv_heads * shape.head_dim, 2.0f);
  pass.v = random.floats(stored_count * shape.kv_heads * shape.head_dim, 2.0f);
  pass.q = random.floats(static_cast<std::int64_t>(pass.rows.size()) * shape.heads * shape.head_dim,
                         2.0f);
  return pass;
}

struct Stored {
  std::vector<Sequence> sequences;
  std::vector<KvSegments> segments;
};

Stored store_all(Ops& ops, const Pass& pass, bool one_by_one) {
  Stored made;
  for (std::size_t s = 0; s < pass.segment_tiles.size(); ++s) {
    made.sequences.emplace_back(ops, pass.shape.kv, pass.planes, pass.first_tile[s],
                                pass.segment_tiles[s]);
  }
  for (const Sequence& sequence : made.sequences) made.segments.push_back(sequence.segments());
  const auto rows = static_cast<std::int64_t>(pass.stored.size());
  const std::int64_t width = std::int64_t{pass.shape.kv.kv_heads} * pass.shape.kv.head_dim;
  const GuardedRows k(ops, rows, width, pass.k), v(ops, rows, width, pass.v);
  const std::int64_t step = one_by_one ? 1 : rows;
  for (std::int64_t r = 0; r < rows; r += step) {
    const auto at = [&](Rows all) { return Rows{all.data + r * all.stride * 4, all.stride}; };
    ops.append(
        at(k.rows()), at(v.rows()),
        std::span(pass.stored).subspan(static_cast<std::size_t>(r), static_cast<std::size_t>(step)),
        made.segments, pass.shape.kv);
  }
  return made;
}

Floats attend(Ops& ops, const Pass& pass, const Stored& cache, std::int64_t first,
              std::int64_t count) {
  const std::int64_t width = std::int64_t{pass.shape.heads} * pass.shape.kv.head_dim;
  const GuardedRows q(ops, count, width,
                      std::span(pass.q).subspan(static_cast<std::size_t>(first * width),
                                                static_cast<std::size_t>(count * width)));
  const GuardedRows out(ops, count, width);
  ops.attention(out.rows(), q.rows(),
                std::span(pass.rows).subspan(static_cast<std::size_t>(first),
                                             static_cast<std::size_t>(count)),
                cache.segments, pass.shape);
  return out.read();
}

// Rows whose result is not softmax(scale q K^T) V of the stored values, within the error that float
// sums may have.
std::int64_t wrong_rows(const Pass& pass, const Stored& cache, const Floats& out) {
  const std::int64_t head_dim = pass.shape.kv.head_dim,
                     group = pass.shape.heads / pass.shape.kv.kv_heads;
  using Place = std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>;
  std::map<Place, std::pair<Floats, Floats>> tiles;
  std::int64_t wrong = 0;
  for (std::size_t r = 0; r < pass.rows.size(); ++r) {
    const KvRow& row = pass.rows[r];
    for (std::int64_t head = 0; head < pass.shape.heads; ++head) {
      const float* q =
          pass.q.data() + (static_cast<std::int64_t>(r) * pass.shape.heads + head) * head_dim;
      const float* actual =
          out.data() + (static_cast<std::int64_t>(r) * pass.shape.heads + head) * head_dim;
      const std::int64_t window = pass.shape.window;
      const std::int64_t first =
          window > 0 ? std::max<std::int64_t>(0, row.position - window + 1) : 0;
      std::vector<double> scores;
      std::vector<const Floats*> values;
      double score_error = 0.0;
      for (std::int64_t p = first; p <= row.position; ++p) {
        auto& [k, v] = tiles[{row.sequence, row.plane, head / group, p}];
        if (k.empty()) {
          const Sequence& sequence = cache.sequences[static_cast<std::size_t>(row.sequence)];
          k = sequence.key(row.plane, head / group, p);
          v = sequence.value(row.plane, head / group, p);
        }
        double score = 0.0, magnitude = 0.0;
        for (std::int64_t d = 0; d < head_dim; ++d) {
          const double term =
              static_cast<double>(q[d]) * static_cast<double>(k[static_cast<std::size_t>(d)]);
          score += term;
          magnitude += std::fabs(term);
        }
        const double scale = static_cast<double>(pass.shape.scale);
        scores.push_back(score * scale);
        score_error =
            std::max(score_error, static_cast<double>(head_dim + 3) * kUnit * magnitude * scale);
        values.push_back(&v);
      }
      const double most = *std::max_element(scores.begin(), scores.end());
      double sum = 0.0;
      for (double& score : scores) sum += score = std::exp(score - most);
      bool good = true;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        double exact = 0.0, magnitude = 0.0;
        for (std::size_t i = 0; i < scores.size(); ++i) {
          const double term =
              scores[i] * static_cast<double>((*values[i])[static_cast<std::size_t>(d)]) / sum;
          exact += term;
          magnitude += std::fabs(term);
        }
        const double bound =
            magnitude * (2.0 * score_error + (static_cast<double>(scores.size()) + 20.0) * kUnit);
        good = good && std::fabs(static_cast<double>(actual[d]) - exact) <= bound;
      }
      wrong += !good;
    }
  }
  return wrong;
}

void check_pass(const Pass& pass) {
  Floats expected;
  std::vector<std::byte> expected_bytes;
  const auto rows = static_cast<std::int64_t>(pass.rows.size());
  for (const TestedDevice& device : tested_devices()) {
    INFO("device ", device.label);
    const bool is_first = expected.empty();
    const Stored cache = store_all(*device.ops, pass, !is_first);
    std::vector<std::byte> bytes;
    for (const Sequence& sequence : cache.sequences) {
      const std::vector<std::byte> part = sequence.bytes();
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    const Floats all = attend(*device.ops, pass, cache, 0, rows);
    if (is_first) {
      expected = all;
      expected_bytes = bytes;
      CHECK(wrong_rows(pass, cache, all) == 0);
    }
    CHECK(bytes == expected_bytes);
    CHECK(same_bits(all, expected));
    Floats single;
    for (std::int64_t r = 0; r < rows; ++r) {
      const Floats row = attend(*device.ops, pass, cache, r, 1);
      single.insert(single.end(), row.begin(), row.end());
    }
    CHECK(same_bits(single, expected));
  }
}

TEST_CASE("append stores what the mode's definition says") {
  Random random(20);
  for (const KvMode mode : kModes) {
    for (std::int32_t head_dim = 1; head_dim <= 67; head_dim += 3) {
      const std::int64_t counts[] = {random.between(1, 40)};
      const Pass pass = make_pass(random, mode, {2, 2, head_dim}, 0, counts, 1);
      for (const TestedDevice& device : tested_devices()) {
        const Stored cache = store_all(*device.ops, pass, false);
        std::int64_t wrong = 0;
        for (std::size_t r = 0; r < pass.stored.size(); ++r) {
          for (std::int64_t head = 0; head < 2; ++head) {
            const auto at = (static_cast<std::int64_t>(r) * 2 + head) * head_dim;
            const auto part = [&](const Floats& x) {
              return stored(mode, std::span(x).subspan(static_cast<std::size_t>(at),
                                                       static_cast<std::size_t>(head_dim)));
            };
            const KvRow& row = pass.stored[r];
            wrong += cache.sequences[0].key(row.plane, head, row.position) != part(pass.k);
            wrong += cache.sequences[0].value(row.plane, head, row.position) != part(pass.v);
          }
        }
        INFO(name_of(mode), " head_dim ", head_dim, " on ", device.label);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("attention of every head size, 1 to 67") {
  Random random(21);
  for (const KvMode mode : kModes) {
    for (std::int32_t head_dim = 1; head_dim <= 67; head_dim += 2) {
      const auto kv_heads = static_cast<std::int32_t>(random.between(1, 2));
      const auto heads = static_cast<std::int32_t>(kv_heads * random.between(1, 3));
      const std::int64_t window = random.between(0, 1) * random.between(1, 30);
      const std::int64_t counts[] = {random.between(1, 40), random.between(1, 40)};
      const std::int64_t fresh = random.between(1, 5);
      INFO(name_of(mode), " heads ", heads, "/", kv_heads, " x ", head_dim, " window ", window,
           " positions ", counts[0], ", ", counts[1], " rows ", fresh);
      check_pass(make_pass(random, mode, {heads, kv_heads, head_dim}, window, counts, fresh));
    }
  }
}

TEST_CASE("attention across blocks of 256 positions") {
  Random random(22);
  for (const KvMode mode : kModes) {
    for (const std::int64_t window : {0, 1, 100, 300}) {
      const std::int64_t counts[] = {random.between(255, 262), random.between(510, 530)};
      INFO(name_of(mode), " window ", window, " positions ", counts[0], ", ", counts[1]);
      check_pass(make_pass(random, mode, {6, 2, 32}, window, counts, random.between(1, 13)));
      check_pass(make_pass(random, mode, {2, 2, 128}, window, counts, 3));
    }
  }
}

TEST_CASE("attention of distant rows in one call") {
  // Rows of one sequence that see quite different positions share tiles of queries; tiles in
  // between do not exist.
  Random random(23);
  for (const KvMode mode : kModes) {
    const std::int64_t counts[] = {600};
    Pass pass = make_pass(random, mode, {2, 1, 16}, 20, counts, 600);
    pass.rows.clear();
    for (const std::int64_t position : {3, 40, 41, 255, 256, 599, 270})
      pass.rows.push_back({0, 1, position});
    pass.q.resize(pass.rows.size() * 32);
    check_pass(pass);
  }
}

TEST_CASE("attention where all scores lie far below zero") {
  // A masked position must weigh nothing even then: its score is minus infinity and not some low
  // number.
  Random random(25);
  for (const KvMode mode : kModes) {
    const std::int64_t counts[] = {random.between(3, 14), random.between(260, 270)};
    Pass pass = make_pass(random, mode, {2, 1, 16}, 0, counts, 3);
    for (std::size_t i = 0; i < pass.k.size(); i += 16) pass.k[i] = 20.0f + pass.k[i] / 16.0f;
    for (std::size_t i = 0; i < pass.q.size(); i += 16) pass.q[i] = -100.0f;
    INFO(name_of(mode), " positions ", counts[0], ", ", counts[1]);
    check_pass(pass);
  }
}

TEST_CASE("rotate") {
  Random random(24);
  for (const Shape shape : {Shape{1, 1, 2}, {4, 2, 6}, {3, 1, 16}, {8, 2, 34}, {16, 16, 128}}) {
    for (const int variant : {0, 1, 2, 3}) {
      const bool interleaved = variant & 1, all_parts = variant & 2;
      const std::int64_t rows = 5, head_dim = shape.head_dim;
      const std::int64_t width = (shape.heads + shape.kv_heads) * head_dim;
      INFO("heads ", shape.heads, "/", shape.kv_heads, " x ", head_dim, " variant ", variant);
      const Floats x = random.floats(rows * width, 2.0f), bias = random.floats(width);
      const Floats q_norm = random.floats(head_dim), k_norm = random.floats(head_dim);
      Floats angles;
      for (std::int64_t i = 0; i < rows * head_dim / 2; ++i) {
        const float angle = random.uniform(-3.0f, 3.0f);
        angles.push_back(std::cos(angle));
        angles.push_back(std::sin(angle));
      }
      const float eps = 1e-6f;
      const auto run = [&](Ops& ops, std::int64_t first, std::int64_t count) {
        const auto part = [&](const Floats& all, std::int64_t size) {
          return std::span(all).subspan(static_cast<std::size_t>(first * size),
                                        static_cast<std::size_t>(count * size));
        };
        const GuardedRows qkv(ops, count, width, part(x, width)),
            turn(ops, 1, count * head_dim, part(angles, head_dim));
        const GuardedRows b(ops, 1, width, bias), qn(ops, 1, head_dim, q_norm),
            kn(ops, 1, head_dim, k_norm);
        const auto given = [&](const GuardedRows& rows_of) {
          return all_parts ? rows_of.ptr() : DevicePtr{};
        };
        ops.rotate(qkv.rows(), count,
                   {shape.heads, shape.kv_heads, shape.head_dim, interleaved, eps}, turn.ptr(),
                   given(b), given(qn), given(kn));
        return qkv.read();
      };
      const Floats y = run(*tested_devices()[0].ops, 0, rows);
      for (const TestedDevice& device : tested_devices()) {
        INFO("device ", device.label);
        CHECK(same_bits(run(*device.ops, 0, rows), y));
        Floats single;
        for (std::int64_t r = 0; r < rows; ++r) {
          const Floats row = run(*device.ops, r, 1);
          single.insert(single.end(), row.begin(), row.end());
        }
        CHECK(same_bits(single, y));
      }

      std::int64_t beyond = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
          std::vector<double> h(static_cast<std::size_t>(head_dim));
          double squares = 0.0;
          for (std::int64_t d = 0; d < head_dim; ++d) {
            const std::int64_t at = head * head_dim + d;
            double& value = h[static_cast<std::size_t>(d)];
            value = x[static_cast<std::size_t>(r * width + at)];
            if (all_parts) value += static_cast<double>(bias[static_cast<std::size_t>(at)]);
            squares += value * value;
          }
          if (all_parts) {
            const double factor =
                1.0 / std::sqrt(squares / static_cast<double>(head_dim) + static_cast<double>(eps));
            const Floats& norm = head < shape.heads ? q_norm : k_norm;
            for (std::size_t d = 0; d < h.size(); ++d)
              h[d] *= factor * static_cast<double>(norm[d]);
          }
          for (std::int64_t i = 0; i < head_dim / 2; ++i) {
            const std::int64_t first = interleaved ? 2 * i : i,
                               second = interleaved ? 2 * i + 1 : i + head_dim / 2;
            const double a = h[static_cast<std::size_t>(first)],
                         b = h[static_cast<std::size_t>(second)];
            const double c = angles[static_cast<std::size_t>(r * head_dim + 2 * i)];
            const double s = angles[static_cast<std::size_t>(r * head_dim + 2 * i + 1)];
            const auto error = [&](std::int64_t d, double exact) {
              const double actual = y[static_cast<std::size_t>(r * width + head * head_dim + d)];
              return std::fabs(actual - exact) > 30 * kUnit * (std::fabs(a) + std::fabs(b)) + 1e-30;
            };
            beyond += error(first, a * c - b * s) + error(second, b * c + a * s);
          }
        }
      }
      // A sum of a bias may cancel: its rounding is relative to what was added.
      CHECK(beyond == 0);
    }
  }
}

}  // namespace
}  // namespace tinyloop
