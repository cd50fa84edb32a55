// SPDX-License-Identifier: Apache-2.0
// A prefix pool whose files are damaged, mixed up or of a later program: the answer stays that of a
// run that knows no pool. Sound pools are in test_pool.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/pool_runs.h"
#include "temporary_folder.h"
#include "tiny_models.h"
#include "tinyloop/error.h"

namespace tinyloop {
namespace {

TEST_CASE("a flipped bit anywhere in an entry never changes an answer") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::int4, 1), folder.path());
  const std::vector<TokenId> prefix = random_ids(46, 18, 64);
  const std::vector<TokenId> longer = joined(prefix, random_ids(47, 2, 64));
  const std::vector<TokenId> shorter(prefix.begin(), prefix.begin() + 11);
  runs.add(prefix);
  const std::string path = runs.path_of(prefix), good = file_content(path);
  const std::size_t head = good.size() - Snapshot::open(path)->kv().size();
  const Answer plain[] = {runs.plain(prefix, 3), runs.plain(longer, 3), runs.plain(shorter, 3)};
  const std::vector<TokenId>* prompts[] = {&prefix, &longer, &shorter};
  std::int64_t misses = 0, flips = 0;
  for (std::size_t at = 0; at < good.size(); at += at < head ? 1 : 61) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    write_content(path, bad);
    const std::size_t which = at % 3;
    const PooledAnswer answer = runs.pooled(*prompts[which], 3);
    CHECK(runs.agree(answer.answer, plain[which]));
    ++flips;
    if (answer.pool.kind == MatchKind::miss) {
      ++misses;
      CHECK(answer.pool.warning.find(path) != std::string::npos);
      CHECK(answer.answer.stats.reused == 0);
    }
  }
  CHECK(misses == flips);
  CHECK(runs.pool().counts().misses == misses);
  write_content(path, good);
  CHECK(runs.pooled(prefix, 3).pool.kind == MatchKind::whole);
}

TEST_CASE("damage that is met while the prompt is read shows each id once") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::f16, 4), folder.path());
  const std::vector<TokenId> prefix = random_ids(48, 33, 64);
  const Answer plain = runs.plain(prefix, 12);
  runs.add(prefix);
  std::string content = file_content(runs.path_of(prefix));
  content.back() = static_cast<char>(content.back() ^ 64);  // the last plane
  write_content(runs.path_of(prefix), content);
  DecodeRequest request;
  request.stop.max_tokens = 12;
  request.hash_logits = true;
  std::vector<TokenId> streamed;
  request.released = [&](std::span<const TokenId> ids) {
    streamed.insert(streamed.end(), ids.begin(), ids.end());
  };
  SamplingOptions sampling;
  sampling.seed = 3;
  const PooledAnswer answer =
      answer_with_pool(runs.forward(), prefix, runs.pool(), Sampler(sampling, 64), request);
  CHECK(streamed == plain.tokens);
  CHECK(runs.agree(answer.answer, plain));
  CHECK(answer.pool.kind == MatchKind::miss);
  CHECK(answer.pool.warning.find("plane") != std::string::npos);
  // Registering again repairs it.
  runs.add(prefix);
  CHECK(runs.pooled(prefix, 12).pool.kind == MatchKind::whole);
}

TEST_CASE("U-04: damaged files give the plain answer, one warning and a miss; others still hit") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const std::vector<TokenId> one = random_ids(49, 20, 64), two = random_ids(50, 25, 64);
  using Damage = std::function<void(const std::string& path, const std::string& good)>;
  const auto cut = [](double share, std::size_t less) {
    return [=](const std::string& path, const std::string& good) {
      const auto kept = static_cast<std::size_t>(static_cast<double>(good.size()) * share);
      write_content(path, good.substr(0, kept - less));
    };
  };
  const Damage damages[] = {
      cut(0.0, 0),
      [](const std::string& path, const std::string& good) {
        write_content(path, good.substr(0, 1));
      },
      cut(0.5, 0),
      cut(1.0, 1),
      [](const std::string& path, const std::string& good) { write_content(path, good + "x"); },
      [](const std::string& path, const std::string&) {
        std::filesystem::remove(path);
        std::filesystem::create_directory(path);
      },
      [](const std::string& path, const std::string& good) {
        std::string newer = good;  // a file of a later program
        newer.replace(newer.find("tinyloop snapshot 2"), 19, "tinyloop snapshot 3");
        write_content(path, newer);
      }};
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::f16, 4), folder.path());
  runs.add(one);
  runs.add(two);
  const std::string path = runs.path_of(one), good = file_content(path);
  std::int64_t misses = 0, hits = 0;
  for (const Damage& damage : damages) {
    damage(path, good);
    const bool folder_now = std::filesystem::is_directory(path);
    const std::string bad = folder_now ? "" : file_content(path);
    const PooledAnswer answer = runs.pooled(one, 6);
    CHECK(runs.agree(answer.answer, runs.plain(one, 6)));
    CHECK(answer.pool.kind == MatchKind::miss);
    CHECK(answer.pool.warning.find(path) == 0);
    CHECK(runs.pool().counts().misses == ++misses);
    if (!folder_now) CHECK(file_content(path) == bad);  // untouched
    CHECK(runs.pooled(two, 6).pool.kind == MatchKind::whole);
    CHECK(runs.pool().counts().hits == ++hits);
    if (folder_now) std::filesystem::remove(path);
  }
  write_content(path, good);
  CHECK(runs.pooled(one, 6).pool.kind == MatchKind::whole);
}

TEST_CASE("a snapshot of another sequence under the right name is not believed") {
  const auto ops = cpu();
  const Model model = tiny(TinyModel::m);
  const TemporaryFolder folder;
  PoolRuns runs(model, *ops, setting_of(StorageMode::f16, 4), folder.path());
  const std::vector<TokenId> mine = random_ids(51, 20, 64), theirs = random_ids(52, 20, 64);
  runs.add(theirs);
  std::filesystem::rename(runs.path_of(theirs), runs.path_of(mine));
  const PooledAnswer answer = runs.pooled(mine, 6);
  CHECK(runs.agree(answer.answer, runs.plain(mine, 6)));
  CHECK(answer.pool.reused == 0);
  // And one of another setting moved into this one's folder is not either.
  PoolRuns other(model, *ops, setting_of(StorageMode::f16, 2), folder.path());
  other.add(mine);
  std::filesystem::copy_file(other.path_of(mine), runs.path_of(mine),
                             std::filesystem::copy_options::overwrite_existing);
  const PooledAnswer again = runs.pooled(mine, 6);
  CHECK(runs.agree(again.answer, runs.plain(mine, 6)));
  CHECK(again.pool.kind == MatchKind::miss);
  CHECK(again.pool.warning.find("its content does not match its name") != std::string::npos);
}

}  // namespace
}  // namespace tinyloop
