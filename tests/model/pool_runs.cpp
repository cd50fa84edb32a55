// SPDX-License-Identifier: Apache-2.0
// Runs with and without a pool.
#include "model/pool_runs.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "temporary_folder.h"
#include "tinyloop/engine/run_identity.h"

namespace tinyloop {

Model tiny(TinyModel which, WeightType type) {
  static const TemporaryFolder folder;
  return Model::open(write_tiny_model(folder.path(), which, type));
}

EngineSetting setting_of(StorageMode kv, std::int32_t loops, std::int64_t window) {
  EngineSetting setting;
  setting.storage = kv;
  setting.loops = loops;
  setting.window = window;
  setting.chunk = 64;
  return setting;
}

std::vector<TokenId> joined(std::span<const TokenId> a, std::span<const TokenId> b) {
  std::vector<TokenId> both(a.begin(), a.end());
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

PoolRuns::PoolRuns(const Model& model, Ops& ops, const EngineSetting& setting,
                   const std::string& folder)
    : setting_(setting),
      plan_(setting.plan(model.config())),
      forward_(model, ops, plan_, InitialStates::parse(setting.initial, model.config()),
               static_cast<std::int32_t>(setting.chunk), static_cast<std::int32_t>(setting.chunk)),
      pool_(folder, cache_identity(forward_)) {
  pool_.prepare();
}

std::string PoolRuns::path_of(std::span<const TokenId> ids) const {
  return pool_.folder().entry_path({pool_.identity().folder(), key_of(pool_.identity(), ids)});
}

EntryKey PoolRuns::add(std::span<const TokenId> ids) {
  const std::vector<TokenId> one(ids.begin(), ids.end());
  return register_prefixes(forward_, pool_, {&one, 1}, 0).front().key;
}

PooledAnswer answer_with_pool(Forward& forward, std::span<const TokenId> prompt, PrefixPool& pool,
                              const Sampler& sampler, const DecodeRequest& request, bool crop,
                              bool add) {
  Prompt read = read_prompt(forward, prompt, {.pool = &pool, .crop = crop});
  PooledAnswer result{{}, read.pool};
  Prompt kept = read.fork();
  result.answer = decode(forward, std::move(read), sampler, request);
  CHECK(count_use(pool, result.pool).empty());
  if (add && result.pool.kind != MatchKind::whole) publish(pool, kept);
  return result;
}

DecodeRequest PoolRuns::request(std::int64_t count) {
  DecodeRequest request;
  request.stop.max_tokens = count;
  request.hash_logits = true;
  return request;
}

PooledAnswer PoolRuns::pooled(std::span<const TokenId> prompt, std::int64_t count, bool crop,
                              bool add) {
  SamplingOptions sampling;
  sampling.seed = 3;
  return answer_with_pool(forward_, prompt, pool_,
                          Sampler(sampling, forward_.model().config().vocab), request(count), crop,
                          add);
}

Answer PoolRuns::plain(std::span<const TokenId> prompt, std::int64_t count) {
  SamplingOptions sampling;
  sampling.seed = 3;
  return decode(forward_, read_prompt(forward_, prompt),
                Sampler(sampling, forward_.model().config().vocab), request(count));
}

bool PoolRuns::agree(const Answer& a, const Answer& b) const {
  return a.tokens == b.tokens && a.stats.logits_hash == b.stats.logits_hash &&
         a.stats.generated == b.stats.generated;
}

std::string file_content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

void write_content(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
}

}  // namespace tinyloop
