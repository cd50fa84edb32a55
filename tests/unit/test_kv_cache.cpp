// SPDX-License-Identifier: Apache-2.0
// The cache's bookkeeping: which positions have memory, what a window gives back, what a fork
// shares, and how near a stored number is. Which bits are stored is tested by
// tests/kernels/check_attention.cpp and tests/model/test_same_bits.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "tinyloop/backend.h"
#include "tinyloop/error.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/number_formats.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

LoopPlan plan_with(std::int64_t window, StorageMode storage = StorageMode::f16) {
  LoopPlan plan;
  plan.loops = 3;
  plan.core_layers = 2;
  plan.kv_heads = 2;
  plan.head_dim = 16;
  plan.window = window;
  plan.storage = storage;
  return plan;
}

std::int64_t held(const KvCache& cache) {
  std::int64_t tiles = 0, next = -1;
  for (const KvSegment& segment : cache.segments()) {
    if (next >= 0) CHECK(segment.first_tile == next);  // ascending, no gap, no overlap
    next = segment.first_tile + segment.tiles;
    tiles += segment.tiles;
  }
  return tiles;
}

TEST_CASE(
    "planes are one a prelude layer, one a loop and core layer, one a coda layer, all different") {
  LoopPlan plan = plan_with(0);
  plan.prelude_layers = 2;
  plan.coda_layers = 1;
  std::vector<bool> used(static_cast<std::size_t>(plan.planes()));
  const auto use = [&](std::int32_t plane) {
    REQUIRE(plane >= 0);
    REQUIRE(plane < plan.planes());
    CHECK(!used[static_cast<std::size_t>(plane)]);
    used[static_cast<std::size_t>(plane)] = true;
  };
  for (int layer = 0; layer < 2; ++layer) use(plan.prelude_plane(layer));
  for (int loop = 0; loop < 3; ++loop) {
    for (int layer = 0; layer < 2; ++layer) use(plan.core_plane(loop, layer));
  }
  use(plan.coda_plane(0));
  CHECK(plan.planes() == 9);
}

TEST_CASE("a cache without a window keeps every position, whole blocks at a time") {
  const auto ops = make_ops("cpu", {"", 1});
  KvCache cache(*ops, plan_with(0));
  CHECK(cache.bytes() == 0);
  cache.reserve(1);
  CHECK(held(cache) == 16);
  cache.reserve(256);
  CHECK(held(cache) == 16);
  cache.commit(256);
  cache.reserve(257);
  CHECK(held(cache) == 32);
  // 6 planes, 2 heads, K and V of 16 channels of 2 bytes.
  CHECK(cache.bytes() == 512 * 6 * 2 * 2 * 16 * 2);
}

TEST_CASE("a window bounds the memory by window + chunk + one tile") {
  const auto ops = make_ops("cpu", {"", 1});
  for (const std::int64_t window : {1, 15, 16, 17, 40}) {
    for (const std::int64_t chunk : {1, 7, 16, 33}) {
      KvCache cache(*ops, plan_with(window, StorageMode::int8));
      for (std::int64_t end = chunk; end < 300; end += chunk) {
        cache.reserve(end);
        CHECK(held(cache) * 16 <= window + chunk + 2 * 16);
        CHECK(cache.first_position() <= std::max<std::int64_t>(0, cache.length() - window + 1));
        cache.commit(end);
      }
    }
  }
}

TEST_CASE("crop forgets positions and refuses what a window has dropped") {
  const auto ops = make_ops("cpu", {"", 1});
  KvCache cache(*ops, plan_with(20));
  cache.reserve(100);
  cache.commit(100);
  cache.reserve(101);  // drops what position 100 cannot see
  CHECK(cache.first_position() == 80);
  cache.crop(99);
  CHECK(cache.length() == 99);
  CHECK_THROWS_AS(cache.crop(98), Error);
  CHECK(cache.length() == 99);
  cache.crop(0);
  cache.reserve(5);
  CHECK(cache.first_position() == 0);
}

TEST_CASE("a fork shares the full tiles and owns the rest") {
  const auto ops = make_ops("cpu", {"", 1});
  for (const std::int64_t length : {1, 16, 17, 255, 256, 300}) {
    KvCache cache(*ops, plan_with(0));
    cache.reserve(length);
    cache.commit(length);
    KvCache copy = cache.fork();
    CHECK(copy.length() == length);
    copy.reserve(length + 1);
    const std::int64_t full = length / 16;
    const auto address = [&](const KvCache& of, std::int64_t tile) {
      for (const KvSegment& s : of.segments()) {
        if (tile < s.first_tile || tile >= s.first_tile + s.tiles) continue;
        return s.base.address +
               (tile - s.first_tile) * static_cast<std::int64_t>(of.geometry().tile_bytes());
      }
      return static_cast<std::byte*>(nullptr);
    };
    for (std::int64_t tile = 0; tile < full; ++tile) {
      CHECK(address(copy, tile) == address(cache, tile));
    }
    REQUIRE(address(copy, full) != nullptr);
    CHECK(address(copy, full) != address(cache, full));
    CHECK(held(copy) > full);
  }
}

constexpr StorageMode kModes[] = {StorageMode::f32, StorageMode::f16, StorageMode::int8,
                                  StorageMode::int4};

// A cache of `length` positions whose K and V are different in every plane.
KvCache filled(Ops& ops, const LoopPlan& plan, std::int64_t length) {
  KvCache cache(ops, plan);
  cache.reserve(length);
  const std::int64_t width = std::int64_t{plan.kv_heads} * plan.head_dim;
  const KvSegments segments = cache.segments();
  std::vector<float> values(static_cast<std::size_t>(2 * length * width));
  DeviceBuffer buffer(ops, values.size() * sizeof(float));
  for (std::int32_t plane = 0; plane < plan.planes(); ++plane) {
    std::vector<KvRow> rows;
    for (std::int64_t p = 0; p < length; ++p) rows.push_back({0, plane, p});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto word = philox(static_cast<std::uint64_t>(plane), {static_cast<std::uint32_t>(i)});
      values[i] = static_cast<float>(word[0]) * 0x1p-31f - 1.0f;
    }
    ops.upload(buffer.ptr(), values.data(), values.size() * sizeof(float));
    const Rows k{buffer.ptr(), 2 * width};
    ops.append(k, k.columns(width), rows, {&segments, 1}, cache.geometry());
  }
  cache.commit(length);
  return cache;
}

std::vector<std::byte> plane_of(const KvCache& cache, std::int32_t plane) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(cache.snapshot_shape().plane_bytes()));
  cache.read_plane(plane, bytes);
  return bytes;
}

// A channel of K or V of position 0, read by the description in kv_tile.h.
float stored_number(const KvGeometry& geometry, std::span<const std::byte> tile, bool is_value,
                    std::size_t channel) {
  const std::byte* part = tile.data() + (is_value ? geometry.key_bytes() : 0);
  const std::byte* values = part + geometry.scale_bytes();
  const std::size_t vector = is_value ? channel / 16 * 16 : channel;
  const std::size_t at = is_value ? channel % 16 : 0;
  float scale = 1.0f;
  if (geometry.scale_bytes() > 0) std::memcpy(&scale, part, sizeof(scale));
  if (geometry.mode == KvMode::f16) {
    std::uint16_t half = 0;
    std::memcpy(&half, values + (vector * 16 + at) * 2, sizeof(half));
    return half_to_float(half);
  }
  if (geometry.mode == KvMode::int8) {
    return static_cast<float>(static_cast<signed char>(values[vector * 16 + at])) * scale;
  }
  const auto pair = static_cast<int>(values[vector * 8 + at % 8]);
  return static_cast<float>((at < 8 ? pair & 15 : pair >> 4) - 8) * scale;
}

TEST_CASE("a stored number is as near to the one given as the manual says") {
  const auto ops = make_ops("cpu", {"", 1});
  LoopPlan plan = plan_with(0);
  plan.kv_heads = 1;
  for (const std::int32_t head_dim : {16, 24, 64}) {
    plan.head_dim = head_dim;
    const auto width = static_cast<std::size_t>(head_dim);
    for (const StorageMode mode : {StorageMode::f16, StorageMode::int8, StorageMode::int4}) {
      double worst = 0.0;  // in shares of the bound
      int beyond = 0;
      for (std::uint32_t round = 0; round < 100; ++round) {
        std::vector<float> given(2 * width);  // K, then V, of other sizes from round to round
        for (std::size_t i = 0; i < given.size(); ++i) {
          const auto word = philox(round, {static_cast<std::uint32_t>(i)});
          given[i] = std::ldexp(static_cast<float>(static_cast<std::int32_t>(word[0])),
                                static_cast<int>(round % 40) - 56);
        }
        plan.storage = mode;
        KvCache cache(*ops, plan);
        cache.reserve(1);
        DeviceBuffer buffer(*ops, given.size() * sizeof(float));
        ops->upload(buffer.ptr(), given.data(), given.size() * sizeof(float));
        const Rows k{buffer.ptr(), 2 * head_dim};
        const KvRow row{0, 0, 0};
        const KvSegments segments = cache.segments();
        ops->append(k, k.columns(head_dim), {&row, 1}, {&segments, 1}, cache.geometry());
        cache.commit(1);
        std::vector<std::byte> tile(cache.geometry().tile_bytes());
        ops->download(tile.data(), segments[0].base, tile.size());
        for (const std::size_t half : {std::size_t{0}, width}) {
          float greatest = 0.0f;
          for (std::size_t i = 0; i < width; ++i) {
            greatest = std::max(greatest, std::fabs(given[half + i]));
          }
          for (std::size_t i = 0; i < width; ++i) {
            const double x = given[half + i];
            const double bound = mode == StorageMode::f16
                                     ? std::max(std::fabs(x) * 0x1p-11, 0x1p-25)
                                 : mode == StorageMode::int8 ? greatest / 254.0 * 1.0001
                                                             : greatest / 14.0 * 1.0001;
            const float got = stored_number(cache.geometry(), tile, half > 0, i);
            const double error = std::fabs(got - x);
            if (!(error <= bound)) ++beyond;
            worst = std::max(worst, error / bound);
          }
        }
      }
      CHECK(beyond == 0);
      CHECK(worst > 0.9);  // the bound is not a generous one
    }
  }
}

TEST_CASE(
    "copied positions are what storing them there would have been, and nothing else changes") {
  const auto ops = make_ops("cpu", {"", 1});
  for (const std::int32_t head_dim : {16, 24, 40}) {
    LoopPlan plan = plan_with(0);
    plan.head_dim = head_dim;
    for (const StorageMode mode : kModes) {
      plan.storage = mode;
      for (const std::int64_t position : {0, 3, 8, 15, 16, 25}) {
        // All positions of plane 1 are copied to plane 4 but one: then that one too.
        KvCache cache = filled(*ops, plan, 32);
        const KvSegments segments = cache.segments();
        const std::vector<std::byte> source = plane_of(cache, 1), before = plane_of(cache, 4);
        std::vector<KvCopy> others;
        for (std::int64_t p = 0; p < 32; ++p) {
          if (p != position) others.push_back({0, 1, 4, p});
        }
        ops->copy_positions(others, {&segments, 1}, cache.geometry());
        CHECK(plane_of(cache, 4) != source);
        CHECK(plane_of(cache, 4) != before);
        const KvCopy last{0, 1, 4, position};
        ops->copy_positions({&last, 1}, {&segments, 1}, cache.geometry());
        CHECK(plane_of(cache, 4) == source);
        CHECK(plane_of(cache, 1) == source);
        for (const std::int32_t plane : {0, 2, 3, 5}) {
          CHECK(plane_of(cache, plane) == plane_of(filled(*ops, plan, 32), plane));
        }
      }
    }
  }
}

TEST_CASE("shared loops keep what the last loop of each slot wrote") {
  const auto ops = make_ops("cpu", {"", 1});
  LoopPlan plan = plan_with(0);
  plan.loops = 5;
  plan.prelude_layers = plan.coda_layers = 1;
  for (const StorageMode mode : kModes) {
    plan.storage = mode;
    for (const std::int64_t length : {1, 16, 37, 300}) {
      const KvCache cache = filled(*ops, plan, length);
      for (std::int32_t slots = 1; slots <= 5; ++slots) {
        const KvCache slim = cache.share_loops(slots);
        CHECK(slim.length() == length);
        CHECK(slim.planes() == 2 + 2 * slots);
        CHECK(plane_of(slim, 0) == plane_of(cache, 0));
        CHECK(plane_of(slim, 1 + 2 * slots) == plane_of(cache, 11));
        for (std::int32_t slot = 0; slot < slots; ++slot) {
          std::int32_t last = slot;
          while (last + slots < 5) last += slots;
          for (std::int32_t layer = 0; layer < 2; ++layer) {
            CHECK(slim.plan().core_plane(last, layer) == 1 + 2 * slot + layer);
            CHECK(plane_of(slim, 1 + 2 * slot + layer) == plane_of(cache, 1 + 2 * last + layer));
          }
        }
      }
    }
  }
}

TEST_CASE("a plane goes out of one cache and into another") {
  const auto ops = make_ops("cpu", {"", 1});
  for (const StorageMode mode : kModes) {
    const KvCache cache = filled(*ops, plan_with(0, mode), 300);
    KvCache other(*ops, plan_with(0, mode));
    other.reserve(300);
    for (std::int32_t plane = 0; plane < cache.planes(); ++plane) {
      other.write_plane(plane, cache.snapshot_shape(), plane_of(cache, plane));
    }
    other.commit(300);
    for (std::int32_t plane = 0; plane < cache.planes(); ++plane) {
      CHECK(plane_of(other, plane) == plane_of(cache, plane));
    }
    CHECK_THROWS_AS(other.write_plane(99, cache.snapshot_shape(), plane_of(cache, 0)), Error);
  }
}

}  // namespace
}  // namespace tinyloop
