// SPDX-License-Identifier: Apache-2.0
// Decoding that begins with what a prefix pool holds. Whatever goes wrong with the pool, the answer
// is that of a plain run; what a pool is, pool/prefix_pool knows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/schedule/generate.h"
#include "tinyloop/token.h"

namespace tinyloop {

struct PoolUse {
  PrefixPool* pool = nullptr;  // null: none
  bool crop = true;            // also entries that share only their first ids
  bool add = false;            // publish the prompt afterwards
};

struct PoolReport {
  MatchKind kind = MatchKind::miss;
  std::int64_t reused = 0;  // prompt positions taken from the pool
  std::int32_t loops = 0;   // of their loops the pool had so many; all of them unless kind is warm
  std::string warning;      // may be empty; at most one a prompt
};

// Throws Error(usage) if the pool is opened for another model, device, loop count, window, storage
// mode or initial state.
void check_identity(Forward& forward, const PrefixPool& pool);
// What PrefixPool::publish() takes of a cache that holds `ids`; all of them must outlive it.
SnapshotContent content_of(KvCache& cache, std::span<const TokenId> ids,
                           std::span<const float> last, double prefill_ms);
// Bytes of the entry that publish() makes of so many ids.
std::int64_t entry_bytes(Forward& forward, std::int64_t length, bool resumable = false);
// What it took to compute the part of a snapshot that a match uses.
double computing_ms(const PoolMatch& match);

// One prompt, answered once or several times.
class PooledPrompt {
 public:
  // Looks the prompt up. forward, ids and the pool must outlive it. Throws Error(usage) if the pool
  // is opened for another model, loop count, window, storage mode or initial state.
  PooledPrompt(Forward& forward, std::span<const TokenId> ids, std::int64_t chunk, PoolUse use);

  // Reads the prompt for all answers; of use before the first of several. Its work is counted in
  // the first answer's statistics, and what the others find is no work and not reused.
  void share();
  // As tinyloop::generate(); request.prompt, chunk, last and prompt_read are set here. After
  // `final_answer` no other one may be asked for.
  Answer generate(const Sampler& sampler, DecodeRequest request, bool final_answer = true,
                  const Speculation& speculation = {});
  // Counts the use, publishes the prompt if that was wished. Call it when the answer is out.
  PoolReport finish();

  // What was found; final once the first answer is there, but for the warning.
  const PoolReport& report() const { return report_; }
  std::size_t cache_bytes() const { return cache_bytes_; }  // of the latest answer's cache

 private:
  void look_up();
  void take(const PoolMatch& match);
  void give_up(const std::string& why);
  Answer answer(const Sampler& sampler, const DecodeRequest& request,
                const Speculation& speculation, bool final_answer);
  void note_use();
  void publish();
  void note(const std::string& warning) {
    if (report_.warning.empty()) report_.warning = warning;
  }

  Forward& forward_;
  std::span<const TokenId> ids_;
  std::int64_t chunk_;
  PoolUse use_;
  PoolMatch match_;
  PoolReport report_;
  double lookup_ms_ = 0.0, prefill_ms_ = 0.0;
  std::int64_t missing_loops_ = 0;  // run on what was found, summed over positions
  KvCache cache_;
  std::size_t cache_bytes_ = 0;
  bool used_ = false;                    // an answer began with what was found
  bool shares_ = false;                  // share() was called
  bool first_ = true;                    // no answer is out since
  std::int64_t shared_ = 0;              // positions that it computed, not yet counted
  double shared_ms_ = 0.0;               // and the time that it took
  std::optional<KvCache> prompt_cache_;  // the prompt alone, to be published
  std::vector<float> last_;
};

struct PooledAnswer {
  Answer answer;
  PoolReport pool;
};
// All of the above at once.
PooledAnswer generate_with_pool(Forward& forward, const Sampler& sampler,
                                const DecodeRequest& request, const PoolUse& use);

// What became of one prefix.
struct Registration {
  EntryKey key;
  bool computed = false;  // false: it was there
};
// Registers each of `prefixes`, computing as little as it can: what is there is touched, what
// extends another one or shares its first ids is computed from it. `resumable`: the entries keep
// what a run with more loops needs to go on, and one that is there without it is replaced. In input
// order. `progress` is called after each with the number done; may be empty. Throws Error.
std::vector<Registration> register_prefixes(
    Forward& forward, PrefixPool& pool, std::span<const std::vector<TokenId>> prefixes,
    std::int64_t chunk, bool resumable = false,
    const std::function<void(std::size_t done)>& progress = {});

}  // namespace tinyloop
