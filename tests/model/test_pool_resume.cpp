// SPDX-License-Identifier: Apache-2.0
// Pool entries that runs with more loops go on from (U-11), against runs that know no pool.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "guarded_ops.h"
#include "model/pool_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

void add_resumable(PoolRuns& runs, const std::vector<TokenId>& ids) {
  register_prefixes(runs.forward(), runs.pool(), {&ids, 1}, 5, true);
}

TEST_CASE("U-11: entries of 4 and 15 loops serve 5 and 16; shorter, longer and equal prompts") {
  const auto ops = cpu();
  for (const TinyModel which :
       {TinyModel::m, TinyModel::odd, TinyModel::nanbeige, TinyModel::huginn}) {
    const Model model = tiny(which);
    for (const StorageMode kv : {StorageMode::f16, StorageMode::int4}) {
      for (const std::int64_t window : {0, 9}) {
        const TemporaryFolder folder;
        const std::vector<TokenId> entry = random_ids(60, 37, model.config().vocab);
        const std::vector<TokenId> longer = joined(entry, random_ids(61, 3, model.config().vocab));
        const std::vector<TokenId> other =
            joined(std::span(entry).first(21), random_ids(62, 4, model.config().vocab));
        for (const std::int32_t from : {4, 15}) {
          PoolRuns shallow(model, *ops, setting_of(kv, from, window), folder.path());
          add_resumable(shallow, entry);
          const std::string bytes = file_content(shallow.path_of(entry));
          for (const std::int32_t to : {from + 1, 16}) {
            CAPTURE(name_of(which));
            CAPTURE(name_of(kv));
            CAPTURE(window);
            CAPTURE(from);
            CAPTURE(to);
            PoolRuns deep(model, *ops, setting_of(kv, to, window), folder.path());
            for (const auto* prompt : {&entry, &longer, &other}) {
              const PooledAnswer warm = deep.pooled(*prompt, 6);
              CHECK(deep.agree(warm.answer, deep.plain(*prompt, 6)));
              // A window has passed what the 21st id would see.
              if (prompt == &other && window > 0) continue;
              const std::int64_t reused = prompt == &other ? 21 : 37;
              const auto rest = static_cast<std::int64_t>(prompt->size()) - reused;
              CHECK(warm.pool.kind == MatchKind::warm);
              CHECK(warm.pool.reused == reused);
              CHECK(warm.pool.loops == from);
              CHECK(warm.answer.stats.prompt_loops == reused * (to - from) + rest * to);
            }
          }
          CHECK(file_content(shallow.path_of(entry)) == bytes);
          CHECK(shallow.pooled(entry, 3).pool.kind == MatchKind::whole);
        }
      }
    }
  }
}

TEST_CASE("the entry that saves most loops is taken") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  const std::vector<TokenId> ids = random_ids(63, 40, 64);
  const auto first = [&](std::size_t count) {
    return std::vector<TokenId>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  };
  PoolRuns two(model, *ops, setting_of(StorageMode::f16, 2), folder.path());
  add_resumable(two, first(39));  // 78 loops
  PoolRuns six(model, *ops, setting_of(StorageMode::f16, 6), folder.path());
  add_resumable(six, first(20));  // 120 loops
  PoolRuns eight(model, *ops, setting_of(StorageMode::f16, 8), folder.path());
  const PooledAnswer answer = eight.pooled(ids, 4);
  CHECK(eight.agree(answer.answer, eight.plain(ids, 4)));
  CHECK(answer.pool.loops == 6);
  CHECK(answer.pool.reused == 20);
  eight.add(first(16));  // 128 loops
  const PooledAnswer plain = eight.pooled(ids, 4);
  CHECK(plain.pool.kind == MatchKind::prefix);
  CHECK(plain.pool.loops == 8);
  // Entries without states are of no use to others, until they are registered with them.
  eight.add(first(38));
  PoolRuns nine(model, *ops, setting_of(StorageMode::f16, 9), folder.path());
  CHECK(nine.pooled(ids, 4).pool.loops == 6);
  add_resumable(eight, first(38));
  const PooledAnswer warm = nine.pooled(ids, 4, true, true);  // and is added
  CHECK(nine.agree(warm.answer, nine.plain(ids, 4)));
  CHECK(warm.pool.loops == 8);
  CHECK(nine.pooled(ids, 4).pool.kind == MatchKind::whole);
  CHECK(nine.agree(nine.pooled(ids, 4).answer, nine.plain(ids, 4)));
}

TEST_CASE("states of entries that extend each other are those of entries made alone") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::huginn);
  const std::vector<TokenId> whole = random_ids(64, 30, model.config().vocab);
  const std::vector<TokenId> part(whole.begin(), whole.begin() + 19);
  const TemporaryFolder together, alone;
  PoolRuns a(model, *ops, setting_of(StorageMode::f16, 3), together.path());
  add_resumable(a, part);
  add_resumable(a, whole);
  PoolRuns b(model, *ops, setting_of(StorageMode::f16, 3), alone.path());
  add_resumable(b, whole);
  const auto one = Snapshot::open(a.path_of(whole)), other = Snapshot::open(b.path_of(whole));
  CHECK(same_bits(one->states(), other->states()));
  CHECK(same_bits(one->injected(), other->injected()));
  CHECK(one->injected().size() == one->states().size());
}

TEST_CASE("damaged states are a miss with a warning") {
  GuardedOps ops;
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  PoolRuns four(model, ops, setting_of(StorageMode::f16, 4), folder.path());
  const std::vector<TokenId> ids = random_ids(65, 18, 64);
  add_resumable(four, ids);
  const std::string path = four.path_of(ids), good = file_content(path);
  PoolRuns six(model, ops, setting_of(StorageMode::f16, 6), folder.path());
  const Answer plain = six.plain(ids, 3);
  for (std::size_t at = 0; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 16);
    write_content(path, bad);
    const PooledAnswer answer = six.pooled(ids, 3);
    CHECK(six.agree(answer.answer, plain));
    CHECK(answer.pool.kind == MatchKind::miss);
  }
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  write_content(path, bad);
  CHECK(six.pooled(ids, 3).pool.warning.find(path) != std::string::npos);
  CHECK_THROWS_AS(Snapshot::open(path)->verify_all(), DamagedSnapshot);
  CHECK(four.pooled(ids, 3).pool.kind == MatchKind::whole);  // it does not need them
}

TEST_CASE("what cannot be gone on with is refused") {
  const auto ops = cpu();
  const TemporaryFolder folder;
  const std::vector<TokenId> ids = random_ids(66, 5, 60);
  const Model relaxed = tiny(TinyModel::relaxed);
  PoolRuns loops(relaxed, *ops, setting_of(StorageMode::f16, 3), folder.path());
  CHECK_THROWS_WITH_AS(add_resumable(loops, ids), doctest::Contains("alpha / loops"), Error);
  const Model model = tiny(TinyModel::m);
  EngineSetting setting = setting_of(StorageMode::f16, 3);
  setting.storage = StorageMode::h8;
  PoolRuns stored(model, *ops, setting, folder.path());
  CHECK_THROWS_WITH_AS(add_resumable(stored, ids), doctest::Contains("h8"), Error);
}

}  // namespace
}  // namespace tinyloop
