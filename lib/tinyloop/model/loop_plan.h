// SPDX-License-Identifier: Apache-2.0
// Turns (model, loops, window) into planes: which K/V array each layer at each loop uses. Here
// loops become data.
#pragma once

#include <cstdint>
#include <string_view>

#include "tinyloop/model/model_config.h"

namespace tinyloop {

// What the cache keeps for a position and plane: its keys and values, rounded as named, or (h16,
// h8, h4) the rounded input of its layer, from which f16 keys and values are computed and which a
// snapshot holds in place of them.
enum class StorageMode { f32, f16, int8, int4, h16, h8, h4 };
std::string_view name_of(StorageMode mode);
StorageMode parse_storage_mode(std::string_view name);  // throws Error(usage) naming the known ones
bool stores_inputs(StorageMode mode);                   // h16, h8, h4

// A plane is one K/V array: one for each prelude layer, each (loop, core layer), each coda layer.
struct LoopPlan {
  std::int32_t loops = 1;
  std::int32_t prelude_layers = 0, core_layers = 0, coda_layers = 0;
  std::int32_t kv_heads = 0, head_dim = 0;
  std::int64_t window = 0;  // 0 = full attention
  std::int32_t hidden = 0;  // width of a layer's input
  StorageMode storage = StorageMode::f16;
  // Planes that the loops share: loop r uses those of r mod shared_planes. 0 = every loop has its
  // own.
  std::int32_t shared_planes = 0;

  std::int32_t loop_planes() const { return shared_planes > 0 ? shared_planes : loops; }

  std::int32_t prelude_plane(std::int32_t layer) const { return layer; }
  std::int32_t core_plane(std::int32_t loop, std::int32_t layer) const {
    return prelude_layers + loop % loop_planes() * core_layers + layer;
  }
  std::int32_t coda_plane(std::int32_t layer) const {
    return prelude_layers + loop_planes() * core_layers + layer;
  }
  std::int32_t planes() const { return prelude_layers + loop_planes() * core_layers + coda_layers; }
};

// loops 0 = the model's default. Throws Error(usage) if loops is outside 1 .. max_loops or the
// window is negative.
LoopPlan make_loop_plan(const ModelConfig& config, std::int32_t loops, std::int64_t window,
                        StorageMode storage = StorageMode::f16);

}  // namespace tinyloop
