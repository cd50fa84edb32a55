// SPDX-License-Identifier: Apache-2.0
// What of the GPU's kernels no check of the CPU reaches: the choice of the greatest logits, rows
// wider than shared memory, copies of positions, and that attention's ways of cutting the work give
// the same bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "cuda/tested_cuda.h"
#include "kernels/kernel_runs.h"

namespace tinyloop {
namespace {

using Floats = std::vector<float>;

constexpr KvMode kModes[] = {KvMode::f32, KvMode::f16, KvMode::int8, KvMode::int4};

// --- the greatest logits ------------------------------------------------------------------------

struct Candidates {
  Floats values;
  std::vector<TokenId> ids;
  std::vector<std::int32_t> not_finite;
};

// Results with one more element each, which must stay as it is.
Candidates top_k(const Floats& logits, std::int64_t rows, int k) {
  CudaOps& ops = tested_cuda();
  const std::int64_t vocab = static_cast<std::int64_t>(logits.size()) / rows;
  const auto count = static_cast<std::size_t>(rows * k);
  const GuardedRows in(ops, rows, vocab, logits);
  const Floats no_values(count + 1, -7.0f);
  const std::vector<TokenId> no_ids(count + 1, TokenId{-7});
  const std::vector<std::int32_t> no_flags(static_cast<std::size_t>(rows) + 1, -7);
  const DeviceBuffer values = on_device(ops, std::span(no_values));
  const DeviceBuffer ids = on_device(ops, std::span(no_ids));
  const DeviceBuffer flags = on_device(ops, std::span(no_flags));
  const GuardedWorkspace memory(ops, cuda::top_k_workspace_bytes(rows, vocab, k));
  run_kernel(ops, ops.kernels().top_k, as<float>(values), as<TokenId>(ids), as<std::int32_t>(flags),
             in.rows(), rows, vocab, k, memory.workspace());
  CHECK(memory.is_intact());
  Candidates found = {read_back<float>(ops, values), read_back<TokenId>(ops, ids),
                      read_back<std::int32_t>(ops, flags)};
  CHECK(found.values.back() == -7.0f);
  CHECK(found.ids.back() == -7);
  CHECK(found.not_finite.back() == -7);
  found.values.pop_back();
  found.ids.pop_back();
  found.not_finite.pop_back();
  return found;
}

void check_top_k(const Floats& logits, std::int64_t rows, int k) {
  const std::size_t vocab = logits.size() / static_cast<std::size_t>(rows);
  INFO("rows ", rows, " vocab ", vocab, " k ", k);
  const Candidates found = top_k(logits, rows, k);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const float* row = logits.data() + r * vocab;
    std::vector<TokenId> order(vocab);
    std::iota(order.begin(), order.end(), TokenId{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return row[a] > row[b]; });
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
      const std::size_t at = r * static_cast<std::size_t>(k) + i;
      wrong += found.ids[at] != order[i] || found.values[at] != row[order[i]];
    }
    CHECK(wrong == 0);
    CHECK(found.not_finite[r] == 0);
  }
}

TEST_CASE("the greatest logits come in order, of equals the lowest id first") {
  Random random(41);
  for (const std::int64_t vocab : {1, 2, 67, 2047, 2048, 2049, 5000}) {
    for (const int k : {1, 2, 50, 1024}) {
      if (k > vocab) continue;
      const std::int64_t rows = random.between(1, 3);
      check_top_k(random.floats(rows * vocab, 30.0f), rows, k);
      // Many ties, 0 and -0 among them.
      Floats coarse = random.floats(rows * vocab, 2.4f);
      for (float& logit : coarse) logit = std::round(logit);
      check_top_k(coarse, rows, k);
    }
  }
  check_top_k(random.floats(40000, 30.0f), 1, 1000);  // three rounds
}

TEST_CASE("logits of all magnitudes") {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  check_top_k({-most, most, -least, least, 0.0f, -0.0f, 1.0f, -1.0f, most, -most}, 1, 10);
}

TEST_CASE("a row with a logit that is not finite says so, and no other row") {
  Random random(42);
  const std::int64_t rows = 4, vocab = 3000;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
    Floats logits = random.floats(rows * vocab);
    logits[static_cast<std::size_t>(vocab + 2500)] = bad;
    const Candidates found = top_k(logits, rows, 3);
    CHECK(found.not_finite == std::vector<std::int32_t>{0, 1, 0, 0});
  }
}

// --- wide rows ----------------------------------------------------------------------------------

TEST_CASE("rms_norm of rows that are fetched in several pieces") {
  Random random(47);
  for (const std::int64_t width : {4096, 4097, 9001}) {
    const std::int64_t rows = 2;
    const Floats x = random.floats(rows * width, 4.0f), weight = random.floats(width, 2.0f);
    Floats expected;
    for (const TestedDevice& device : tested_devices()) {
      const GuardedRows in(*device.ops, rows, width, x), out(*device.ops, rows, width);
      const GuardedRows factors(*device.ops, 1, width, weight);
      device.ops->rms_norm(out.rows(), in.rows(), factors.ptr(), rows, width, 1e-5f);
      if (expected.empty()) expected = out.read();
      CHECK(same_bits(out.read(), expected));
    }
  }
}

// --- keys and values ----------------------------------------------------------------------------

// One sequence of `planes` planes in one segment, filled with random keys and values.
class FilledCache {
 public:
  FilledCache(Ops& ops, const KvGeometry& geometry, std::int64_t planes, std::int64_t positions,
              std::uint64_t seed)
      : ops_(ops), geometry_(geometry) {
    segment_.tiles = (positions + 15) / 16;
    segment_.head_stride = segment_.tiles * static_cast<std::int64_t>(geometry.tile_bytes());
    segment_.plane_stride = segment_.head_stride * geometry.kv_heads;
    memory_ = DeviceBuffer(ops, static_cast<std::size_t>(segment_.plane_stride * planes));
    const std::vector<std::byte> junk(memory_.bytes(), std::byte{0xff});
    ops.upload(memory_.ptr(), junk.data(), junk.size());
    segment_.base = memory_.ptr();
    segments_ = {&segment_, 1};
    std::vector<KvRow> rows;
    for (std::int32_t plane = 0; plane < planes; ++plane) {
      for (std::int64_t p = 0; p < positions; ++p) rows.push_back({0, plane, p});
    }
    Random random(seed);
    const auto count = static_cast<std::int64_t>(rows.size());
    const std::int64_t width = std::int64_t{geometry.kv_heads} * geometry.head_dim;
    const GuardedRows k(ops, count, width, random.floats(count * width, 2.0f));
    const GuardedRows v(ops, count, width, random.floats(count * width, 2.0f));
    ops.append(k.rows(), v.rows(), rows, sequences(), geometry);
  }
  FilledCache(const FilledCache&) = delete;
  FilledCache& operator=(const FilledCache&) = delete;

  std::span<const KvSegments> sequences() const { return {&segments_, 1}; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(memory_.bytes());
    ops_.download(all.data(), memory_.ptr(), all.size());
    return all;
  }

 private:
  Ops& ops_;
  KvGeometry geometry_;
  KvSegment segment_;
  KvSegments segments_;
  DeviceBuffer memory_;
};

TEST_CASE("copies of positions are made one after another, bit for bit") {
  Random random(43);
  for (const KvMode mode : kModes) {
    for (const std::int32_t head_dim : {1, 7, 24, 130}) {
      INFO(name_of(mode), " head_dim ", head_dim);
      const KvGeometry geometry = {mode, 2, head_dim};
      const std::int64_t planes = 4, positions = 40;
      // Chains from plane to plane, and neighbours that share bytes.
      std::vector<KvCopy> copies;
      for (int i = 0; i < 60; ++i) {
        copies.push_back({0, static_cast<std::int32_t>(random.between(0, planes - 1)),
                          static_cast<std::int32_t>(random.between(0, planes - 1)),
                          random.between(0, positions - 1)});
      }
      std::vector<std::byte> expected;
      for (const TestedDevice& device : tested_devices()) {
        const FilledCache cache(*device.ops, geometry, planes, positions, 44);
        device.ops->copy_positions(copies, cache.sequences(), geometry);
        if (expected.empty()) expected = cache.bytes();
        CHECK(cache.bytes() == expected);
      }
    }
  }
}

TEST_CASE("attention gives the same bits however its work is cut") {
  CudaOps& ops = tested_cuda();
  Random random(45);
  for (const KvMode mode : kModes) {
    for (const std::int32_t head_dim : {24, 64, 128, 144, 256}) {
      const std::int64_t positions = 530, window = random.between(0, 1) * 300;
      const std::int32_t kv_heads = 1, group = static_cast<std::int32_t>(random.between(1, 3));
      INFO(name_of(mode), " head_dim ", head_dim, " group ", group, " window ", window);
      const AttentionShape shape = {group * kv_heads, {mode, kv_heads, head_dim}, window, 0.2f};
      const FilledCache cache(ops, shape.kv, 1, positions, 46);
      std::vector<KvRow> rows;
      for (const std::int64_t position : {0, 254, 255, 256, 300, 511, 512, 529}) {
        rows.push_back({0, 0, position});
      }
      const auto count = static_cast<std::int64_t>(rows.size());
      const std::int64_t width = std::int64_t{shape.heads} * head_dim;
      const Floats queries = random.floats(count * width, 2.0f);

      const DeviceBuffer row_table = on_device(ops, std::span<const KvRow>(rows));
      const KvSegments segments = cache.sequences()[0];
      const cuda::KvSequence one = {0, static_cast<std::int32_t>(segments.size())};
      const DeviceBuffer segment_table = on_device(ops, segments);
      const DeviceBuffer sequence_table = on_device(ops, std::span(&one, 1));
      const cuda::KvTables tables = {as<KvSegment>(segment_table),
                                     as<cuda::KvSequence>(sequence_table)};
      const GuardedRows q(ops, count, width, queries);
      const auto attend = [&](const cuda::AttentionPlan& plan) {
        const GuardedRows out(ops, count, width);
        const DeviceBuffer tiles = on_device(ops, std::span<const cuda::AttentionTile>(plan.tiles));
        const GuardedWorkspace memory(ops, plan.workspace_bytes);
        run_kernel(ops, ops.kernels().attention, out.rows(), q.rows(), as<KvRow>(row_table), tables,
                   shape, plan, as<cuda::AttentionTile>(tiles), memory.workspace());
        CHECK(memory.is_intact());
        return out.read();
      };

      cuda::AttentionPlan plan = cuda::plan_attention(rows, shape);
      CHECK(plan.split);
      const Floats expected = attend(plan);
      plan.split = false;
      CHECK(same_bits(attend(plan), expected));

      // Each row alone: by the kernel for few queries, and by the one for many.
      std::vector<KvRow> all = rows;
      for (const bool split : {true, false}) {
        Floats alone;
        for (std::size_t r = 0; r < all.size(); ++r) {
          cuda::AttentionPlan single = cuda::plan_attention(std::span(all).subspan(r, 1), shape);
          single.split = split;
          for (cuda::AttentionTile& tile : single.tiles) tile.row = static_cast<std::int32_t>(r);
          single.workspace_bytes = static_cast<std::size_t>(single.units * kv_heads) * 16 *
                                   static_cast<std::size_t>(head_dim + 18) * sizeof(float);
          const auto row_of = [&](const Floats& made) {
            const auto at = static_cast<std::ptrdiff_t>(r) * width;
            return Floats(made.begin() + at, made.begin() + at + width);
          };
          const Floats few = row_of(attend(single));
          single.most_queries = 16;
          CHECK(same_bits(row_of(attend(single)), few));
          alone.insert(alone.end(), few.begin(), few.end());
        }
        CHECK(same_bits(alone, expected));
      }
    }
  }
}

}  // namespace
}  // namespace tinyloop
