// SPDX-License-Identifier: Apache-2.0
// Runs of the engine with a prefix pool, and the plain runs they are compared with.
// Not a reference: that is reference_model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/engine_runs.h"
#include "tiny_models.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/prompt/registration.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop {

// A tiny model of this process's own folder.
Model tiny(TinyModel which, WeightType type = WeightType::f32);
EngineSetting setting_of(StorageMode kv, std::int32_t loops, std::int64_t window = 0);
std::vector<TokenId> joined(std::span<const TokenId> a, std::span<const TokenId> b);

struct PooledAnswer {
  Answer answer;
  PoolReport pool;
};
// Reads the prompt with the pool, answers, counts the use, and with `add` publishes it.
PooledAnswer answer_with_pool(Forward& forward, std::span<const TokenId> prompt, PrefixPool& pool,
                              const Sampler& sampler, const DecodeRequest& request,
                              bool crop = true, bool add = false);

// One model opened with one setting, and a pool for it.
class PoolRuns {
 public:
  PoolRuns(const Model& model, Ops& ops, const EngineSetting& setting, const std::string& folder);

  Forward& forward() { return forward_; }
  PrefixPool& pool() { return pool_; }
  std::string path_of(std::span<const TokenId> ids) const;

  EntryKey add(std::span<const TokenId> ids);  // registers
  PooledAnswer pooled(std::span<const TokenId> prompt, std::int64_t count, bool crop = true,
                      bool add = false);
  // Without pool, all positions computed.
  Answer plain(std::span<const TokenId> prompt, std::int64_t count);
  // The prompt's answers with and without pool agree in every id and every logit's bits.
  bool agree(const Answer& a, const Answer& b) const;

 private:
  static DecodeRequest request(std::int64_t count);

  EngineSetting setting_;
  LoopPlan plan_;
  Forward forward_;
  PrefixPool pool_;
};

// Bytes of a file, and the other way round.
std::string file_content(const std::string& path);
void write_content(const std::string& path, const std::string& content);

}  // namespace tinyloop
