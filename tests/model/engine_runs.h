// SPDX-License-Identifier: Apache-2.0
// Runs of the engine whose logits the law's tests compare bit for bit.
// Not a reference: that is reference_model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/backend.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/model/model.h"
#include "tinyloop/prompt/prompt.h"
#include "tinyloop/schedule/exit_rule.h"
#include "tinyloop/token.h"

namespace tinyloop {

struct EngineSetting {
  std::int32_t loops = 0;
  StorageMode storage = StorageMode::f16;
  std::int64_t window = 0;
  std::int64_t chunk = 1;  // prompt positions that advance together
  std::string initial;     // as --init-state

  LoopPlan plan(const ModelConfig& config) const;
};

// Logits [ids][vocab] of every position: the first `prompt` ids in chunks, the others one at a
// time.
std::vector<float> all_logits(const Model& model, Ops& ops, const EngineSetting& setting,
                              std::span<const TokenId> ids, std::size_t prompt);

// Greedy continuation by schedule/decode.
std::vector<TokenId> greedy(const Model& model, Ops& ops, const EngineSetting& setting,
                            std::span<const TokenId> prompt, std::int64_t count);

// How a prompt is read for a rule: that runs the last position itself.
ReadOptions options_for(const ExitRule& exit);

// Equal lengths and equal bits, zeros' signs and NaNs included.
bool same_bits(std::span<const float> a, std::span<const float> b);

// `count` ids below vocab, from a seed.
std::vector<TokenId> random_ids(std::uint64_t seed, std::size_t count, std::int32_t vocab);

std::unique_ptr<Ops> cpu(const std::string& isa = "", int threads = 1);

}  // namespace tinyloop
