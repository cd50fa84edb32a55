// SPDX-License-Identifier: Apache-2.0
// Runs of the engine for the law's tests.
#include "model/engine_runs.h"

#include <cstring>

#include "tinyloop/prompt/prefill.h"
#include "tinyloop/random.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop {

LoopPlan EngineSetting::plan(const ModelConfig& config) const {
  return make_loop_plan(config, loops, window, storage);
}

std::vector<float> all_logits(const Model& model, Ops& ops, const EngineSetting& setting,
                              std::span<const TokenId> ids, std::size_t prompt) {
  const LoopPlan plan = setting.plan(model.config());
  const auto rows = static_cast<std::int32_t>(setting.chunk);
  Forward forward(model, ops, plan, InitialStates::parse(setting.initial, model.config()), rows,
                  rows);
  KvCache cache(ops, plan);
  std::vector<float> logits;
  PrefillHooks hooks;
  hooks.all_logits = [&](std::int64_t, std::span<const float> now) {
    logits.insert(logits.end(), now.begin(), now.end());
  };
  prefill(forward, cache, ids.first(prompt), setting.chunk, hooks);
  for (std::size_t end = prompt + 1; end <= ids.size(); ++end) {
    prefill(forward, cache, ids.first(end), 1, hooks);
  }
  return logits;
}

std::vector<TokenId> greedy(const Model& model, Ops& ops, const EngineSetting& setting,
                            std::span<const TokenId> prompt, std::int64_t count) {
  const LoopPlan plan = setting.plan(model.config());
  const auto rows = static_cast<std::int32_t>(setting.chunk);
  Forward forward(model, ops, plan, InitialStates::parse(setting.initial, model.config()), rows,
                  rows);
  SamplingOptions options;
  options.temperature = 0.0;
  DecodeRequest request;
  request.stop.max_tokens = count;
  return decode(forward, read_prompt(forward, prompt), Sampler(options, model.config().vocab),
                request)
      .tokens;
}

ReadOptions options_for(const ExitRule& exit) {
  return {.run_last = exit.kind == ExitRule::Kind::none};
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

std::vector<TokenId> random_ids(std::uint64_t seed, std::size_t count, std::int32_t vocab) {
  std::vector<TokenId> ids;
  for (std::uint32_t i = 0; i < count; ++i) {
    ids.push_back(
        static_cast<TokenId>(philox(seed, {i, 0, 0, 0})[0] % static_cast<std::uint32_t>(vocab)));
  }
  return ids;
}

std::unique_ptr<Ops> cpu(const std::string& isa, int threads) {
  return make_ops("cpu", {isa, threads});
}

}  // namespace tinyloop
