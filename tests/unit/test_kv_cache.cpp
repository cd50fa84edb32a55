// SPDX-License-Identifier: Apache-2.0
// The cache's bookkeeping: which positions have memory, what a window gives back, what a fork
// shares. What is stored in the tiles is tested by tests/model/test_same_bits.cpp.
#include <doctest/doctest.h>

#include "device/backend.h"
#include "error.h"
#include "kv/kv_cache.h"

namespace tinyloop {
namespace {

LoopPlan plan_with(std::int64_t window) {
  LoopPlan plan;
  plan.loops = 3;
  plan.core_layers = 2;
  plan.kv_heads = 2;
  plan.head_dim = 16;
  plan.window = window;
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
  KvCache cache(*ops, plan_with(0), KvMode::f16);
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
      KvCache cache(*ops, plan_with(window), KvMode::int8);
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
  KvCache cache(*ops, plan_with(20), KvMode::f16);
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
    KvCache cache(*ops, plan_with(0), KvMode::f16);
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

}  // namespace
}  // namespace tinyloop
