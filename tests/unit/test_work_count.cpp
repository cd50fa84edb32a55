// SPDX-License-Identifier: Apache-2.0
// Bytes and operations of passes against numbers counted by hand for tiny shapes.
#include <doctest/doctest.h>

#include "tinyloop/engine/work_count.h"
#include "tinyloop/model/model_shape.h"
#include "tinyloop/model/random_model.h"

namespace tinyloop {
namespace {

// Packed, f16: qkv 32x16 1024 bytes, out 16x16 512, gate_up 64x16 2048, down 16x32 1024, two norms
// of 64 bytes; head 48x16 1536 bytes.
constexpr std::int64_t kLayerBytes = 1024 + 512 + 2048 + 1024 + 2 * 64;
constexpr std::int64_t kHeadBytes = 1536 + 64;  // with the final norm
constexpr std::int64_t kLayerOps = 2 * (32 * 16 + 16 * 16 + 64 * 16 + 16 * 32);  // of one row
constexpr std::int64_t kHeadOps = 2 * 48 * 16;
// One KV head of 8: K [8][16] and V [16][16] of two bytes.
constexpr std::int64_t kTileBytes = 256 + 512;
constexpr std::int64_t kWritten = kTileBytes / 16;  // of one position

Model tiny(WeightType type) {
  return random_model(
      parse_model_shape("dim=16,ffn=32,heads=2,kv-heads=1,layers=1,prelude=1,coda=1,"
                        "loops=3,vocab=48"),
      type, 1);
}

void check(const Work& work, std::int64_t weights, std::int64_t kv, std::int64_t floats,
           std::int64_t int8) {
  CHECK(work.weight_bytes == weights);
  CHECK(work.kv_bytes == kv);
  CHECK(work.float_ops == floats);
  CHECK(work.int8_ops == int8);
  CHECK(work.bytes() == weights + kv);
}

}  // namespace

TEST_CASE("work of a decode step and of its parts") {
  const Model model = tiny(WeightType::f16);
  const WorkCount count(model, make_loop_plan(model.config(), 0, 0));
  // The token at position 20 sees 21 positions in two tiles, with 2 heads of 8.
  const std::int64_t kv = 2 * kTileBytes + kWritten, attention = 2 * 2 * 21 * 2 * 8;
  const PositionRun run{20, 1};
  check(count.enter(run), kLayerBytes, kv, kLayerOps + attention, 0);
  check(count.pass(run), kLayerBytes, kv, kLayerOps + attention, 0);
  check(count.leave(run, 0), kLayerBytes, kv, kLayerOps + attention, 0);
  check(count.leave(run, 1), kLayerBytes + kHeadBytes, kv, kLayerOps + attention + kHeadOps, 0);
  // A prelude layer, a core layer three times, a coda layer, the head.
  check(count.all(run), 5 * kLayerBytes + kHeadBytes, 5 * kv,
        5 * (kLayerOps + attention) + kHeadOps, 0);
}

TEST_CASE("rows that advance together read weights and tiles once") {
  const Model model = tiny(WeightType::f16);
  const WorkCount count(model, make_loop_plan(model.config(), 2, 0));
  // 20 rows see 1 + 2 + ... + 20 = 210 positions.
  check(count.all({0, 20}), 4 * kLayerBytes + kHeadBytes, 4 * (2 * kTileBytes + 20 * kWritten),
        4 * (20 * kLayerOps + 2 * 2 * 210 * 2 * 8) + kHeadOps, 0);
}

TEST_CASE("quantised weights are int8 operations, their scales are read too") {
  const Model model = tiny(WeightType::q8);
  const WorkCount count(model, make_loop_plan(model.config(), 1, 0, StorageMode::int8));
  // One group of 32 bytes and one scale of two for each output.
  const std::int64_t layer = (32 + 16 + 64 + 16) * (32 + 2) + 2 * 64;
  const std::int64_t tile = (64 + 8 * 16) + (64 + 16 * 16);
  check(count.pass({0, 2}), layer, tile + 2 * tile / 16, 2 * 2 * 3 * 2 * 8, 2 * kLayerOps);
  const Model small = tiny(WeightType::q4);
  const WorkCount q4(small, make_loop_plan(small.config(), 1, 0));
  CHECK(q4.pass({0, 2}).weight_bytes == (32 + 16 + 64 + 16) * (16 + 2) + 2 * 64);
}

TEST_CASE("a window limits what is seen") {
  const Model model = tiny(WeightType::f16);
  const WorkCount count(model, make_loop_plan(model.config(), 1, 16));
  // Position 70 sees 55 .. 70: tiles 3 and 4.
  check(count.pass({70, 1}), kLayerBytes, 2 * kTileBytes + kWritten, kLayerOps + 2 * 2 * 16 * 2 * 8,
        0);
  CHECK(count.pass({4, 1}).float_ops == kLayerOps + 2 * 2 * 5 * 2 * 8);
}

TEST_CASE("adapter and loop norm count in each pass") {
  ModelConfig config = tiny(WeightType::f16).config();
  config.injection = Injection::concat;
  config.initial_state = InitialState::free;
  config.initial_std = 1.0;
  const Model huginn = random_model(config, WeightType::f16, 1);
  const WorkCount count(huginn, make_loop_plan(config, 1, 0));
  const std::int64_t attention = 2 * 2 * 1 * 2 * 8;
  check(count.pass({0, 1}), kLayerBytes + 16 * 32 * 2, kTileBytes + kWritten,
        kLayerOps + attention + 2 * 16 * 32, 0);

  ModelConfig ouro = parse_model_shape("dim=16,ffn=32,heads=2,kv-heads=1,layers=1,vocab=48");
  ouro.loop_norm = true;
  ouro.final_norm = false;
  const Model normed = random_model(ouro, WeightType::f16, 1);
  const WorkCount with_norm(normed, make_loop_plan(ouro, 1, 0));
  CHECK(with_norm.pass({0, 1}).weight_bytes == kLayerBytes + 64);
  CHECK(with_norm.leave({0, 1}, 1).weight_bytes == 1536);
}

}  // namespace tinyloop
