// SPDX-License-Identifier: Apache-2.0
// The law with a prefix pool: miss, hit, crop, whole prompt, extended entries, damage; every answer
// is compared with a run that knows no pool.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "guarded_ops.h"
#include "model/pool_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/error.h"
#include "tinyloop/prompt/prompt.h"

namespace tinyloop {
namespace {

constexpr StorageMode kModes[] = {StorageMode::f32, StorageMode::f16, StorageMode::int8,
                                  StorageMode::int4};

std::int64_t shared_ids(std::span<const TokenId> a, std::span<const TokenId> b) {
  std::size_t shared = 0;
  while (shared < std::min(a.size(), b.size()) && a[shared] == b[shared]) ++shared;
  return static_cast<std::int64_t>(shared);
}

TEST_CASE("U-01 U-02: warm equals cold in every mode, at every length, also the whole prompt") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  for (const StorageMode kv : kModes) {
    for (const std::int32_t loops : {1, 4}) {
      for (const std::size_t length : {1u, 2u, 15u, 16u, 17u, 31u, 32u, 33u, 58u}) {
        CAPTURE(name_of(kv));
        CAPTURE(length);
        const TemporaryFolder folder;
        PoolRuns runs(model, *ops, setting_of(kv, loops), folder.path());
        const std::vector<TokenId> prefix = random_ids(30, length, 64);
        const std::vector<TokenId> prompt = joined(prefix, random_ids(31, 2, 64));
        const Answer cold = runs.plain(prompt, 4), whole = runs.plain(prefix, 4);
        runs.add(prefix);
        const std::string bytes = file_content(runs.path_of(prefix));
        for (int round = 0; round < 2; ++round) {
          const PooledAnswer warm = runs.pooled(prompt, 4);
          CHECK(runs.agree(warm.answer, cold));
          CHECK(warm.pool.kind == MatchKind::prefix);
          CHECK(warm.pool.reused == static_cast<std::int64_t>(length));
          CHECK(warm.answer.stats.prefilled == 2);
          CHECK(warm.answer.stats.prefilled < cold.stats.prefilled);
          CHECK(warm.answer.stats.loops_run < cold.stats.loops_run);
          const PooledAnswer hit = runs.pooled(prefix, 4);
          CHECK(runs.agree(hit.answer, whole));
          CHECK(hit.pool.kind == MatchKind::whole);
          CHECK(hit.answer.stats.prefilled == 1);  // the last position, for its logits
          CHECK(hit.answer.stats.reused == static_cast<std::int64_t>(length) - 1);
          CHECK(hit.pool.warning.empty());
        }
        CHECK(file_content(runs.path_of(prefix)) == bytes);
        CHECK(runs.pool().counts().hits == 4);
        CHECK(runs.pool().counts().misses == 0);
      }
    }
  }
}

TEST_CASE("U-03: an entry serves its first ids, and the rest of it leaves no trace") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  for (const StorageMode kv : kModes) {
    const TemporaryFolder folder;
    PoolRuns runs(model, *ops, setting_of(kv, 4), folder.path());
    const std::vector<TokenId> entry = random_ids(32, 40, 64);
    runs.add(entry);
    const std::span<const TokenId> ids = entry;
    std::vector<std::vector<TokenId>> prompts;
    for (const std::size_t length : {1u, 12u, 16u, 39u}) {
      prompts.emplace_back(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length));
    }
    prompts.push_back(joined(ids.first(12), random_ids(33, 5, 64)));
    prompts.push_back(entry);
    for (const std::vector<TokenId>& prompt : prompts) {
      CAPTURE(prompt.size());
      const std::int64_t shared = shared_ids(prompt, entry);
      const PooledAnswer warm = runs.pooled(prompt, 16);
      CHECK(runs.agree(warm.answer, runs.plain(prompt, 16)));
      CHECK(warm.pool.reused <= shared);
      CHECK(warm.answer.stats.reused + warm.answer.stats.prefilled ==
            static_cast<std::int64_t>(prompt.size()));
      CHECK(warm.pool.reused == std::min(shared, static_cast<std::int64_t>(prompt.size()) - 1));
      const PooledAnswer uncropped = runs.pooled(prompt, 16, false);
      CHECK(runs.agree(uncropped.answer, runs.plain(prompt, 16)));
      CHECK(uncropped.pool.kind == (prompt == entry ? MatchKind::whole : MatchKind::miss));
    }
  }
}

TEST_CASE("every family and weight type: warm equals cold, with guarded memory too") {
  GuardedOps guarded(1);
  const auto plain = cpu("", 2);
  for (const TinyModel which : all_tiny_models()) {
    if (which == TinyModel::nan) continue;
    for (const WeightType type : {WeightType::f16, WeightType::q8}) {
      const Model model = tiny(which, type);
      CAPTURE(model.path());
      const std::vector<TokenId> prompt = random_ids(34, 41, model.config().vocab);
      const std::span<const TokenId> ids = prompt;
      for (Ops* ops : {static_cast<Ops*>(&guarded), plain.get()}) {
        const TemporaryFolder folder;
        PoolRuns runs(model, *ops, setting_of(StorageMode::f16, 0), folder.path());
        runs.add(ids.first(37));
        for (const std::size_t length : {41u, 37u, 20u}) {
          const PooledAnswer warm = runs.pooled(ids.first(length), 6);
          CHECK(runs.agree(warm.answer, runs.plain(ids.first(length), 6)));
          CHECK(warm.pool.kind != MatchKind::miss);
          CHECK(warm.pool.warning.empty());
        }
      }
    }
  }
  CHECK(guarded.live_bytes() == 0);
}

TEST_CASE("windows: what is still seen is stored, and what is not is not served") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::huginn);
  for (const std::int64_t window : {1, 7, 8, 15, 16, 17, 32, 40}) {
    for (const std::size_t length : {6u, 7u, 8u, 9u, 16u, 17u, 33u, 48u}) {
      CAPTURE(window);
      CAPTURE(length);
      const TemporaryFolder folder;
      PoolRuns runs(model, *ops, setting_of(StorageMode::int8, 2, window), folder.path());
      const std::vector<TokenId> all = random_ids(35, length + 3, model.config().vocab);
      const std::span<const TokenId> ids = all;
      runs.add(ids.first(length));
      const auto snapshot = Snapshot::open(runs.path_of(ids.first(length)));
      CHECK(snapshot->shape().tiles * kTile <= window + 2 * kTile);
      for (const std::size_t asked : {length + 3, length, length - 1, length / 2}) {
        if (asked == 0) continue;
        const PooledAnswer warm = runs.pooled(ids.first(asked), 7);
        CHECK(runs.agree(warm.answer, runs.plain(ids.first(asked), 7)));
        if (asked >= length) {
          CHECK(warm.pool.reused == static_cast<std::int64_t>(std::min(length, asked - 1)));
        }
      }
      const std::vector<TokenId> changed = joined(ids.first(length / 2), random_ids(36, 9, 32));
      CHECK(runs.agree(runs.pooled(changed, 7).answer, runs.plain(changed, 7)));
    }
  }
}

TEST_CASE("store-h: warm equals cold, also cropped, extended, windowed, and in any chunks") {
  GuardedOps guarded(1);
  const auto plain = cpu("", 2);
  for (const TinyModel which :
       {TinyModel::m, TinyModel::odd, TinyModel::huginn, TinyModel::nanbeige}) {
    const Model model = tiny(which, WeightType::q8);
    for (const StorageMode mode : {StorageMode::h16, StorageMode::h8, StorageMode::h4}) {
      for (const std::int64_t window : {0, 9}) {
        CAPTURE(model.path());
        CAPTURE(name_of(mode));
        CAPTURE(window);
        EngineSetting setting = setting_of(StorageMode::f16, 2, window);
        setting.storage = mode;
        const std::vector<TokenId> all = random_ids(60, 44, model.config().vocab);
        const std::span<const TokenId> ids = all;
        EngineSetting single = setting;
        single.chunk = 1;
        CHECK(same_bits(all_logits(model, *plain, setting, ids, 40),
                        all_logits(model, *plain, single, ids, 40)));
        for (Ops* ops : {static_cast<Ops*>(&guarded), plain.get()}) {
          const TemporaryFolder folder;
          PoolRuns runs(model, *ops, setting, folder.path());
          PoolRuns other(model, *ops, setting_of(StorageMode::f16, 2, window), folder.path());
          runs.add(ids.first(33));
          runs.add(ids.first(37));  // extends
          const auto snapshot = Snapshot::open(runs.path_of(ids.first(33)));
          CHECK(snapshot->identity().kv == name_of(mode));
          for (const std::size_t length : {44u, 37u, 33u, 35u, 20u}) {
            const PooledAnswer warm = runs.pooled(ids.first(length), 6);
            CHECK(runs.agree(warm.answer, runs.plain(ids.first(length), 6)));
            CHECK(warm.pool.warning.empty());
            if (window == 0 || length >= 33) CHECK(warm.pool.kind != MatchKind::miss);
          }
          CHECK(other.pooled(ids, 2).pool.kind == MatchKind::miss);
          // Damage is found before anything is read.
          std::string content = file_content(runs.path_of(ids.first(37)));
          content[content.size() - 2] = static_cast<char>(content[content.size() - 2] ^ 1);
          write_content(runs.path_of(ids.first(37)), content);
          const PooledAnswer damaged = runs.pooled(ids.first(37), 6);
          CHECK(runs.agree(damaged.answer, runs.plain(ids.first(37), 6)));
          CHECK(damaged.pool.kind == MatchKind::miss);
        }
      }
    }
  }
}

TEST_CASE("store-h keeps half the bytes of f16, and its answers stay near those of f16") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);  // as many kv heads as heads
  const std::vector<TokenId> ids = random_ids(61, 32, 64);
  const TemporaryFolder folder;
  EngineSetting f16 = setting_of(StorageMode::f16, 4), h16 = f16;
  h16.storage = StorageMode::h16;
  PoolRuns with_f16(model, *ops, f16, folder.path()), with_h16(model, *ops, h16, folder.path());
  with_f16.add(ids);
  with_h16.add(ids);
  CHECK(2 * Snapshot::open(with_h16.path_of(ids))->kv().size() ==
        Snapshot::open(with_f16.path_of(ids))->kv().size());
  const std::vector<float> exact =
      all_logits(model, *ops, setting_of(StorageMode::f32, 4), ids, 32);
  double range = 0.0;
  for (const float logit : exact) range = std::max(range, std::fabs(double{logit}));
  double previous = 0.0;
  const std::pair<StorageMode, double> bounds[] = {// of the greatest logit
                                                   {StorageMode::h16, 0.005},
                                                   {StorageMode::h8, 0.1},
                                                   {StorageMode::h4, 1.0}};
  for (const auto& [mode, bound] : bounds) {
    EngineSetting setting = f16;
    setting.storage = mode;
    const std::vector<float> logits = all_logits(model, *ops, setting, ids, 32);
    double error = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      error = std::max(error, std::fabs(double{logits[i]} - double{exact[i]}));
    }
    CAPTURE(name_of(mode));
    CHECK(error > previous);
    CHECK(error < bound * range);
    previous = error;
  }
}

TEST_CASE("the bytes of an entry are known before it is computed") {
  const auto ops = cpu();
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn}) {
    const Model model = tiny(which);
    for (const std::int64_t window : {0, 9}) {
      for (const bool resumable : {false, true}) {
        const TemporaryFolder folder;
        PoolRuns runs(model, *ops, setting_of(StorageMode::int8, 3, window), folder.path());
        for (const std::size_t length : {1u, 16u, 17u, 40u}) {
          const std::vector<TokenId> ids = random_ids(70, length, model.config().vocab);
          register_prefixes(runs.forward(), runs.pool(), {&ids, 1}, 0, resumable);
          CHECK(Snapshot::open(runs.path_of(ids))->file_bytes() ==
                entry_bytes(runs.forward(), std::ssize(ids), resumable));
        }
      }
    }
  }
}

TEST_CASE("U-05 U-06: other weights, loops, windows, modes and initial states are misses") {
  const auto ops = cpu();
  const TemporaryFolder folder;
  const Model m = tiny(TinyModel::m), m2 = tiny(TinyModel::m2);
  const std::vector<TokenId> ids = random_ids(37, 20, 64);
  PoolRuns first(m, *ops, setting_of(StorageMode::f16, 4), folder.path());
  first.add(ids);
  PoolRuns other_weights(m2, *ops, setting_of(StorageMode::f16, 4), folder.path());
  PoolRuns other_loops(m, *ops, setting_of(StorageMode::f16, 8), folder.path());
  PoolRuns other_window(m, *ops, setting_of(StorageMode::f16, 4, 8), folder.path());
  PoolRuns other_mode(m, *ops, setting_of(StorageMode::int8, 4), folder.path());
  for (PoolRuns* runs : {&other_weights, &other_loops, &other_window, &other_mode}) {
    const PooledAnswer answer = runs->pooled(ids, 8);
    CHECK(answer.pool.kind == MatchKind::miss);
    CHECK(answer.pool.warning.empty());
    CHECK(runs->agree(answer.answer, runs->plain(ids, 8)));
  }
  CHECK(first.pooled(ids, 8).pool.kind == MatchKind::whole);
  CHECK(first.pool().counts().misses == 4);
  CHECK(first.pool().counts().hits == 1);

  const Model huginn = tiny(TinyModel::huginn);
  EngineSetting zero = setting_of(StorageMode::f16, 2), noise = zero;
  zero.initial = "zero";
  noise.initial = "seed:5";
  const std::vector<TokenId> more = random_ids(38, 20, huginn.config().vocab);
  PoolRuns with_zero(huginn, *ops, zero, folder.path());
  PoolRuns with_noise(huginn, *ops, noise, folder.path());
  with_zero.add(more);
  CHECK(with_noise.pooled(more, 4).pool.kind == MatchKind::miss);
  CHECK(with_zero.pooled(more, 4).pool.kind == MatchKind::whole);
}

TEST_CASE("an entry computed from another one is the same file content as one from scratch") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::ouro, WeightType::f16);
  const std::vector<TokenId> all = random_ids(39, 50, model.config().vocab);
  const std::span<const TokenId> ids = all;
  for (const std::int64_t window : {0, 9}) {
    const TemporaryFolder one, two;
    PoolRuns extended(model, *ops, setting_of(StorageMode::f16, 3, window), one.path());
    PoolRuns scratch(model, *ops, setting_of(StorageMode::f16, 3, window), two.path());
    extended.add(ids.first(21));
    extended.add(ids);
    scratch.add(ids);
    const auto a = Snapshot::open(extended.path_of(ids)), b = Snapshot::open(scratch.path_of(ids));
    CHECK(a->shape() == b->shape());
    if (window == 0) CHECK(std::ranges::equal(a->kv(), b->kv()));
    CHECK(a->prefill_ms() > 0.0);
    const std::vector<TokenId> prompt = joined(ids, random_ids(40, 3, 60));
    CHECK(extended.agree(extended.pooled(prompt, 5).answer, scratch.plain(prompt, 5)));
  }
}

TEST_CASE("many prefixes at once, in any order, give what each gives alone") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const std::vector<TokenId> base = random_ids(41, 30, 64);
  const std::span<const TokenId> ids = base;
  const std::vector<std::vector<TokenId>> prefixes = {joined(ids.first(20), random_ids(42, 7, 64)),
                                                      base,
                                                      random_ids(43, 18, 64),
                                                      {base.begin(), base.begin() + 10},
                                                      joined(ids.first(20), random_ids(44, 20, 64)),
                                                      base};
  for (const std::int64_t window : {0, 12}) {
    const TemporaryFolder folder;
    PoolRuns runs(model, *ops, setting_of(StorageMode::int4, 4, window), folder.path());
    std::size_t steps = 0;
    const auto results = register_prefixes(runs.forward(), runs.pool(), prefixes, 0, false,
                                           [&](std::size_t done) { CHECK(done == ++steps); });
    CHECK(steps == 6);
    CHECK(results[1].key == results[5].key);
    CHECK(results[1].computed != results[5].computed);
    CHECK(runs.pool().size() == 5);
    CHECK(runs.pool().cached_tokens() == 27 + 30 + 18 + 10 + 40);
    for (std::size_t i = 0; i < prefixes.size(); ++i) {
      CHECK(results[i].key.length == static_cast<std::int64_t>(prefixes[i].size()));
      const PooledAnswer warm = runs.pooled(prefixes[i], 6);
      CHECK(warm.pool.kind == MatchKind::whole);
      CHECK(runs.agree(warm.answer, runs.plain(prefixes[i], 6)));
    }
  }
}

TEST_CASE("added prompts are hits of the next run, and longer ones extend them") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::f16, 4), folder.path());
  const std::vector<TokenId> all = random_ids(45, 50, 64);
  const std::span<const TokenId> ids = all;
  const MatchKind expected[] = {MatchKind::miss, MatchKind::prefix, MatchKind::prefix,
                                MatchKind::whole, MatchKind::crop};
  std::size_t i = 0;
  for (const std::size_t length : {17u, 32u, 50u, 32u, 40u}) {
    const PooledAnswer answer = runs.pooled(ids.first(length), 6, true, true);
    CHECK(answer.pool.kind == expected[i++]);
    CHECK(answer.pool.warning.empty());
    CHECK(runs.agree(answer.answer, runs.plain(ids.first(length), 6)));
  }
  CHECK(runs.pool().size() == 4);
  for (const std::size_t length : {17u, 32u, 50u, 40u}) {
    CHECK(runs.pool().verified(ids.first(length)) != nullptr);
    const PooledAnswer answer = runs.pooled(ids.first(length), 6);
    CHECK(answer.pool.kind == MatchKind::whole);
    CHECK(runs.agree(answer.answer, runs.plain(ids.first(length), 6)));
  }
}

TEST_CASE("several answers to one prompt share what the pool gave and what was computed") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::int8, 4), folder.path());
  const std::vector<TokenId> prefix = random_ids(53, 30, 64);
  const std::vector<TokenId> longer = joined(prefix, random_ids(54, 5, 64));
  runs.add(prefix);
  for (const std::vector<TokenId>& ids : {prefix, longer}) {
    Prompt prompt = read_prompt(runs.forward(), ids, {.pool = &runs.pool()});
    for (std::uint64_t sample = 0; sample < 3; ++sample) {
      SamplingOptions sampling;
      sampling.seed = sample;
      DecodeRequest request;
      request.stop.max_tokens = 9;
      request.hash_logits = true;
      const Sampler sampler(sampling, 64);
      const Answer answer = decode(runs.forward(), prompt.fork(), sampler, request);
      CHECK(answer.stats.prefilled + answer.stats.reused == 0);  // the prompt's, not an answer's
      CHECK(runs.agree(answer,
                       decode(runs.forward(), read_prompt(runs.forward(), ids), sampler, request)));
    }
    CHECK(count_use(runs.pool(), prompt.pool).empty());
    if (prompt.pool.kind != MatchKind::whole) publish(runs.pool(), prompt);
  }
  CHECK(runs.pool().counts().hits == 2);  // one a prompt
  CHECK(runs.pooled(longer, 3).pool.kind == MatchKind::whole);
}

TEST_CASE("an answer of no tokens needs no prompt") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::f16, 4), folder.path());
  const std::vector<TokenId> ids = random_ids(55, 10, 64);
  DecodeRequest request;
  request.stop.max_tokens = 0;
  const Answer answer =
      decode(runs.forward(), unread_prompt(runs.forward(), ids), Sampler({}, 64), request);
  CHECK(answer.tokens.empty());
  CHECK(answer.stats.loops_run == 0);
}

TEST_CASE("prefixes in memory go on as a fresh run would, and know their model") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m), other = tiny(TinyModel::m2);
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::f16, 4), folder.path());
  PoolRuns others(other, *ops, setting_of(StorageMode::f16, 4), folder.path());
  const std::vector<TokenId> prefix = random_ids(56, 21, 64);
  Prompt held = read_prompt(runs.forward(), prefix);
  SamplingOptions sampling;
  sampling.seed = 3;
  const Sampler sampler(sampling, 64);
  DecodeRequest request;
  request.stop.max_tokens = 8;
  request.hash_logits = true;
  const PromptSource source{.shared = &held};
  // Longer, the same, shorter, and one that leaves it on the way.
  for (const std::vector<TokenId>& prompt :
       {joined(prefix, random_ids(57, 4, 64)), prefix, joined(std::span(prefix).first(9), {}),
        joined(std::span(prefix).first(9), random_ids(57, 4, 64)), random_ids(58, 30, 64)}) {
    const Answer answer =
        decode(runs.forward(), read_prompt(runs.forward(), prompt, source), sampler, request);
    CHECK(runs.agree(answer, runs.plain(prompt, 8)));
    CHECK(answer.stats.reused == std::min(shared_ids(prompt, prefix), std::ssize(prompt) - 1));
  }
  CHECK_THROWS_AS(read_prompt(others.forward(), prefix, source), Error);
  // A pool opened for another model is refused, too.
  CHECK_THROWS_AS(read_prompt(runs.forward(), prefix, {.pool = &others.pool()}), Error);
  CHECK_THROWS_AS(read_prompt(runs.forward(), {}), Error);
  CHECK_THROWS_AS(read_prompt(runs.forward(), random_ids(59, 65, 64)), Error);
}

}  // namespace
}  // namespace tinyloop
