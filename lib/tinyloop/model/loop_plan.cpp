// SPDX-License-Identifier: Apache-2.0
// Checks a requested loop count and window against the model and lays out the planes.
// Not the cache itself: that is kv/.
#include "tinyloop/model/loop_plan.h"

#include <fmt/format.h>

#include <iterator>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"

namespace tinyloop {

namespace {

// In the order of the enumeration.
constexpr std::string_view kStorageNames[] = {"f32", "f16", "int8", "int4", "h16", "h8", "h4"};

}  // namespace

std::string_view name_of(StorageMode mode) { return kStorageNames[static_cast<std::size_t>(mode)]; }

StorageMode parse_storage_mode(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kStorageNames); ++i) {
    if (kStorageNames[i] == name) return static_cast<StorageMode>(i);
  }
  throw Error(ErrorKind::usage, "unknown storage mode '{}'; known: {}", excerpt(name),
              fmt::join(kStorageNames, ", "));
}

bool stores_inputs(StorageMode mode) { return mode >= StorageMode::h16; }

LoopPlan make_loop_plan(const ModelConfig& config, std::int32_t loops, std::int64_t window,
                        StorageMode storage) {
  const std::int32_t wanted = loops == 0 ? config.default_loops : loops;
  if (wanted < 1 || wanted > config.max_loops) {
    if (config.max_loops == 1 && wanted > 1) {
      throw Error(ErrorKind::usage,
                  "{} loops: a plain {} model has no looped block to repeat; convert it with "
                  "`loop_layers` to loop some of its layers",
                  wanted, config.family);
    }
    throw Error(ErrorKind::usage, "{} loops: this model supports 1 to {}", wanted,
                config.max_loops);
  }
  if (window < 0) {
    throw Error(ErrorKind::usage, "a cache window of {} is negative; 0 means no window", window);
  }
  LoopPlan plan;
  plan.loops = wanted;
  plan.prelude_layers = config.prelude_layers;
  plan.core_layers = config.core_layers;
  plan.coda_layers = config.coda_layers;
  plan.kv_heads = config.kv_heads;
  plan.head_dim = config.head_dim;
  plan.window = window;
  plan.hidden = config.hidden;
  plan.storage = storage;
  return plan;
}

}  // namespace tinyloop
