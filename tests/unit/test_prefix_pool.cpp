// SPDX-License-Identifier: Apache-2.0
// The pool as files: names, look-up, order, limits, policies, counts, left-overs. Entries are made
// up; what is computed from them is tested by tests/model/test_pool.cpp.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/pool/order.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

using Ids = std::vector<TokenId>;

CacheIdentity identity_of(const std::string& model) {
  CacheIdentity identity;
  identity.model = model;
  identity.arithmetic = "cpu-1";
  identity.kv = "f16";
  identity.loops = 4;
  return identity;
}

Ids counted(std::int64_t length, TokenId first) {
  Ids ids(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = first + static_cast<TokenId>(i);
  return ids;
}

// An entry of 64 bytes a tile; the planes' bytes are all 7.
EntryKey publish(PrefixPool& pool, const Ids& ids, double prefill_ms = 1.0) {
  SnapshotContent content;
  const auto length = static_cast<std::int64_t>(ids.size());
  content.shape = {2, 1, 0, (length + 15) / 16, 64};
  content.ids = ids;
  content.prefill_ms = prefill_ms;
  content.read_plane = [](std::int32_t, std::span<std::byte> to) {
    std::memset(to.data(), 7, to.size());
  };
  return pool.publish(content);
}

bool holds(const PrefixPool& pool, const Ids& ids) { return pool.verified(ids) != nullptr; }

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

bool any_temporary(const std::string& folder) {
  const auto names = names_in(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with(".tmp"); });
}

TEST_CASE("keys depend on identity and ids only, and are read back from their text") {
  const CacheIdentity a = identity_of("a"), b = identity_of("b");
  const Ids ids = counted(20, 5);
  const EntryKey key = key_of(a, ids);
  CHECK(key == key_of(a, ids));
  CHECK(key.length == 20);
  CHECK(key != key_of(b, ids));
  CHECK(key != key_of(a, counted(20, 6)));
  CHECK(EntryKey::parse(key.text()) == key);
  // Fixed for all time. Computed by Python's xxhash: xxh3_128_hexdigest of the text that tl-pool(5)
  // gives, and of it followed by struct.pack('<20i', *range(5, 25)).
  CHECK(a.folder() == "5a8a3530ce5f42d481543b5b05fc14a5");
  CHECK(key.text() == "20-04079dffa7a19787cf05c64fd9b2c4b0");
  CacheIdentity other = {"0123456789abcdef", "cuda-1", "int4", "seed:5", 7, 8};
  CHECK(other.folder() == "e23cd45816cb2effbca707dceca92893");
  CHECK(key_of(other, Ids{2147483647, 0, 65536}).text() == "3-0b5ea910a013018be593eba74986e5cd");
  PrefixHasher hasher(a);
  hasher.add(std::span(ids).first(7));
  CHECK(hasher.key() == key_of(a, counted(7, 5)));
  hasher.add(std::span(ids).subspan(7));
  CHECK(hasher.key() == key);
  for (const char* bad :
       {"", "-", "5", "5-", "x-0123456789abcdef0123456789abcdef",
        "0-0123456789abcdef0123456789abcdef", "-1-0123456789abcdef0123456789abcdef",
        "5-0123456789ABCDEF0123456789abcdef", "05-0123456789abcdef0123456789abcdef",
        "5-0123456789abcdef0123456789abcde", "5-0123456789abcdef0123456789abcdef0"}) {
    CAPTURE(bad);
    CHECK(!EntryKey::parse(bad));
  }
}

TEST_CASE("every field of the identity makes another folder") {
  const CacheIdentity plain = identity_of("a");
  std::vector<CacheIdentity> all(7, plain);
  all[1].model = "b";
  all[2].arithmetic = "cuda-1";
  all[3].kv = "int8";
  all[4].initial_state = "zero";
  all[5].loops = 8;
  all[6].window = 16;
  std::vector<std::string> folders;
  for (const CacheIdentity& identity : all) folders.push_back(identity.folder());
  std::sort(folders.begin(), folders.end());
  CHECK(std::unique(folders.begin(), folders.end()) == folders.end());
}

TEST_CASE("the longest prefix wins, then what shares more ids by crop") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.file("pool"), identity_of("a"));
  pool.prepare();
  Ids all = counted(100, 0);
  const auto first = [&](std::int64_t n) { return Ids(all.begin(), all.begin() + n); };
  publish(pool, first(10));
  publish(pool, first(40));
  Ids other = first(70);
  other.resize(60);
  other.push_back(999);
  publish(pool, other);  // shares 60
  CHECK(pool.lookup(first(5), false).kind == MatchKind::miss);
  CHECK(pool.lookup(first(10)).kind == MatchKind::whole);
  CHECK(pool.lookup(first(39), false).length == 10);
  CHECK(pool.lookup(first(39)).kind == MatchKind::crop);
  CHECK(pool.lookup(first(39)).length == 38);  // one is left to compute
  CHECK(pool.lookup(first(41), false).length == 40);
  CHECK(pool.lookup(first(41)).length == 40);
  CHECK(pool.lookup(first(41)).kind == MatchKind::prefix);  // no gain from a crop
  CHECK(pool.lookup(first(100)).length == 60);
  CHECK(pool.lookup(first(100)).kind == MatchKind::crop);
  CHECK(pool.lookup(first(100), false).length == 40);
  CHECK(pool.lookup(Ids{500, 501}).kind == MatchKind::miss);
  CHECK(pool.lookup(first(100)).warning.empty());
  PrefixPool stranger(folder.file("pool"), identity_of("b"));
  CHECK(stranger.lookup(first(40)).kind == MatchKind::miss);
  CHECK(stranger.size() == 3);
}

TEST_CASE("crops are found without the order file, with a wrong one and after evictions") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare(PoolSettings{1000, 0, EvictionPolicy::lru});
  std::vector<Ids> entries;
  for (std::uint32_t i = 0; i < 60; ++i) {
    Ids ids;
    for (std::uint32_t j = 0; j < 30; ++j) {
      ids.push_back(static_cast<TokenId>(philox(7, {i, j, 0, 0})[0] % 3));
    }
    entries.push_back(ids);
    publish(pool, ids);
  }
  const std::string order_path = folder.file(pool.identity().folder() + ".order");
  const std::string order = content(order_path);
  CHECK(read_order(order_path).keys.size() == std::size_t(pool.size()));
  const auto check_all = [&] {
    for (std::uint32_t i = 0; i < 40; ++i) {
      Ids prompt;
      for (std::uint32_t j = 0; j < 25; ++j) {
        prompt.push_back(static_cast<TokenId>(philox(8, {i, j, 0, 0})[0] % 3));
      }
      std::int64_t best = 0;
      for (const Ids& ids : entries) {
        if (holds(pool, ids)) best = std::max(best, shared_length(ids, prompt));
      }
      CHECK(pool.lookup(prompt).length == best);
    }
  };
  check_all();
  for (std::size_t i = 0; i < entries.size(); i += 2) {
    pool.folder().remove({pool.identity().folder(), key_of(pool.identity(), entries[i])});
  }
  check_all();
  std::filesystem::remove(order_path);
  check_all();
  std::ofstream(order_path) << "nonsense\n" << order.substr(0, order.size() / 2);
  check_all();
  // Lines in the wrong order may find less, but nothing that is wrong.
  std::vector<EntryKey> keys = pool.folder().keys(pool.identity().folder());
  write_order(order_path, {pool.folder().listing_state(pool.identity().folder()), keys});
  for (const Ids& ids : entries) {
    const PoolMatch match = pool.lookup(ids);
    if (match.snapshot) CHECK(shared_length(match.snapshot->ids(), ids) >= match.length);
  }
}

TEST_CASE("an order that claims to be complete is believed until the folder changes") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare();
  publish(pool, counted(10, 0));
  publish(pool, counted(12, 100));
  const std::string path = pool.folder().order_path(pool.identity().folder());
  const std::int64_t listing = read_order(path).listing;
  CHECK(listing == pool.folder().listing_state(pool.identity().folder()));
  CHECK(listing > 0);
  // Somebody publishes without the order, evicts and damages: all is seen.
  const PrefixPool other(folder.path(), identity_of("a"));
  const PoolEntry first{pool.identity().folder(), key_of(pool.identity(), counted(10, 0))};
  pool.folder().remove(first);
  CHECK(other.lookup(counted(10, 0)).kind == MatchKind::miss);
  CHECK(other.lookup(counted(10, 0)).warning.empty());
  const std::string complete = content(path);
  publish(pool, counted(10, 0));
  std::ofstream(path) << complete;  // as if the publisher had been killed before writing it
  CHECK(other.lookup(counted(10, 0)).kind == MatchKind::whole);
  CHECK(other.lookup(counted(12, 100)).kind == MatchKind::whole);
}

TEST_CASE("U-09: never above the capacity, and the policy says who goes") {
  for (const EvictionPolicy policy :
       {EvictionPolicy::shortest, EvictionPolicy::lru, EvictionPolicy::cost}) {
    CAPTURE(name_of(policy));
    const TemporaryFolder folder;
    const auto opened = [&] { return PrefixPool(folder.path(), identity_of("a")); };  // a process
    opened().prepare(PoolSettings{3, 0, policy});
    const std::int64_t lengths[] = {30, 10, 40, 20, 25};
    const double costs[] = {500, 400, 1, 300, 200};  // ms; bytes differ by little
    for (TokenId i = 0; i < 5; ++i) {
      if (i == 3) {
        PrefixPool pool = opened();
        const PoolMatch match = pool.lookup(counted(30, 0));
        REQUIRE(match.kind == MatchKind::whole);
        pool.count_hit(match.key, match.length);
      }
      PrefixPool pool = opened();
      publish(pool, counted(lengths[i], i * 100), costs[i]);
      CHECK(pool.size() == std::min(i + 1, 3));
    }
    const auto left = [&](TokenId i) { return holds(opened(), counted(lengths[i], i * 100)); };
    const std::vector<bool> now = {left(0), left(1), left(2), left(3), left(4)};
    switch (policy) {
      case EvictionPolicy::shortest:  // 10 goes for 20, 20 for 25
        CHECK(now == std::vector<bool>{true, false, true, false, true});
        break;
      case EvictionPolicy::lru:  // the second and the third; the first was used
        CHECK(now == std::vector<bool>{true, false, false, true, true});
        break;
      case EvictionPolicy::cost:  // the third, then the fourth (300 ms are less than 400 or 1000)
        CHECK(now == std::vector<bool>{true, true, false, false, true});
        break;
    }
    // A lower capacity takes effect at once. 0 is none, and means 1 in pools of older programs.
    CHECK_THROWS_AS(opened().prepare(PoolSettings{0, 0, policy}), Error);
    CHECK(opened().size() == 3);
    opened().prepare(PoolSettings{1, 0, policy});
    std::ofstream(folder.file("pool.json"))
        << R"({"format":1,"capacity":0,"max_bytes":0,"policy":")" << name_of(policy) << "\"}\n";
    CHECK(opened().folder().settings().settings.capacity == 1);
    CHECK(opened().size() == 1);
    PrefixPool pool = opened();
    publish(pool, counted(5, 900));
    CHECK(pool.size() == 1);
    CHECK(holds(pool, counted(5, 900)));
  }
}

TEST_CASE("a limit in bytes counts what is there, and refuses what can never fit") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare();
  for (TokenId i = 0; i < 4; ++i) publish(pool, counted(16, i * 100));
  const auto bytes = [&] {
    std::int64_t sum = 0;
    for (const PoolEntry& entry : pool.folder().entries()) sum += pool.folder().bytes_of(entry);
    return sum;
  };
  const std::int64_t one = bytes() / 4;
  pool.prepare(PoolSettings{16, 3 * one + one / 2, EvictionPolicy::lru});
  CHECK(pool.size() == 3);
  for (TokenId i = 4; i < 8; ++i) {
    publish(pool, counted(16, i * 100));
    CHECK(bytes() <= 3 * one + one / 2);
    CHECK(pool.size() == 3);
  }
  CHECK_THROWS_AS(publish(pool, counted(5000, 2000)), Error);
  CHECK(pool.size() == 3);
  CHECK(!any_temporary(folder.path()));
}

TEST_CASE("last use is an order, so a clock that was set back does not matter") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare(PoolSettings{3, 0, EvictionPolicy::lru});
  std::vector<EntryKey> keys;
  for (TokenId i = 0; i < 3; ++i) keys.push_back(publish(pool, counted(10 + i, i * 100)));
  // Lines as a process with a clock of 1970 writes them: the first entry is used last.
  std::ofstream(folder.file("uses.log"), std::ios::app)
      << "hit " << keys[2].text() << " 10 9999999999\n"
      << "hit " << keys[0].text() << " 10 1\n";
  publish(pool, counted(20, 700));
  CHECK(holds(pool, counted(10, 0)));
  CHECK(!holds(pool, counted(11, 100)));
  CHECK(holds(pool, counted(12, 200)));
}

TEST_CASE("counts survive folding, damage to a line, and a process killed in the middle of it") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare();
  const EntryKey key = publish(pool, counted(10, 0));
  pool.count_hit(key, 10);
  pool.count_miss();
  pool.count_hit(key, 10);
  const auto check = [&](std::int64_t hits, std::int64_t misses) {
    const PoolCounts counts = pool.counts();
    CHECK(counts.hits == hits);
    CHECK(counts.misses == misses);
    CHECK(counts.reused == 10 * hits);
    CHECK(counts.lookups() == hits + misses);
    CHECK(counts.entries.at(key).hits == hits);
  };
  check(2, 1);
  const std::string log = content(folder.file("uses.log"));
  evict_now(pool.folder(), {});
  check(2, 1);
  CHECK(content(folder.file("uses.log")) != log);
  // Killed after the sum was written and before the log was emptied.
  std::ofstream(folder.file("uses.log")) << log;
  check(2, 1);
  // Killed before the log got its first line.
  std::ofstream(folder.file("uses.log")) << "";
  pool.count_hit(key, 10);
  check(3, 1);
  std::ofstream(folder.file("uses.log"), std::ios::app)
      << "\nhit x 3 4\nhit\nmiss\nmiss -1 2\nfoo bar\nhit " << key.text() << " 10";
  check(3, 1);
  // Uses of entries that are gone are forgotten, the totals are not.
  pool.folder().remove({pool.identity().folder(), key});
  evict_now(pool.folder(), {});
  CHECK(pool.counts().hits == 3);
  CHECK(pool.counts().entries.empty());
}

TEST_CASE("left-overs of killed processes are swept, files in the making are not") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare();
  publish(pool, counted(10, 0));
  const std::string inside = folder.file(pool.identity().folder());
  std::ofstream(inside + "/.tmp.1234.0") << "half";
  std::ofstream(folder.file(".tmp.99.7")) << "half";
  std::ofstream(inside + "/.tmp.1.1") << "in the making";
  const int held = ::open((inside + "/.tmp.1.1").c_str(), O_RDWR);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  std::ofstream(inside + "/notes.txt") << "somebody's";
  pool.prepare();
  std::vector<std::string> names = names_in(folder.path());
  CHECK(std::count(names.begin(), names.end(), ".tmp.1234.0") == 0);
  CHECK(std::count(names.begin(), names.end(), ".tmp.99.7") == 0);
  CHECK(std::count(names.begin(), names.end(), ".tmp.1.1") == 1);
  CHECK(std::count(names.begin(), names.end(), "notes.txt") == 1);
  ::close(held);
  pool.prepare();
  CHECK(!any_temporary(folder.path()));
  CHECK(holds(pool, counted(10, 0)));
}

TEST_CASE("pools of a newer format, files and nothing: a warning, untouched") {
  const TemporaryFolder folder;
  const std::string path = folder.file("pool");
  PrefixPool pool(path, identity_of("a"));
  const Ids ids = counted(10, 0);
  const auto warns = [&](const std::string& text) {
    const PoolMatch match = pool.lookup(ids);
    CHECK(match.kind == MatchKind::miss);
    CHECK(!match.usable);
    CHECK(match.warning.find(text) != std::string::npos);
    CHECK(match.warning.find(path) == 0);
  };
  warns("No such file");
  CHECK(!std::filesystem::exists(path));
  std::ofstream(path) << "a file";
  warns("Not a directory");
  CHECK_THROWS_AS(pool.prepare(), Error);
  CHECK(content(path) == "a file");
  std::filesystem::remove(path);
  pool.prepare();
  publish(pool, ids);
  const std::string settings = content(path + "/pool.json");
  std::ofstream(path + "/pool.json") << R"({"format":2,"anything":[]})";
  warns("pool of format 2, but this program reads 1");
  CHECK_THROWS_AS(pool.prepare(PoolSettings{1, 0, EvictionPolicy::lru}), Error);
  CHECK(content(path + "/pool.json") == R"({"format":2,"anything":[]})");
  CHECK(names_in(path).size() == 6);  // pool.json, uses.log, uses.sum, a folder, an entry, order
  std::ofstream(path + "/pool.json") << settings;
  CHECK(pool.lookup(ids).kind == MatchKind::whole);
}

TEST_CASE("what is there already stays what it is") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare();
  const Ids ids = counted(10, 0);
  const EntryKey key = publish(pool, ids, 1.0);
  const std::string path = pool.folder().entry_path({pool.identity().folder(), key});
  struct stat before {
  }, after{};
  REQUIRE(::stat(path.c_str(), &before) == 0);
  const std::string bytes = content(path);
  CHECK(publish(pool, ids, 99.0) == key);
  REQUIRE(::stat(path.c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK(content(path) == bytes);
  CHECK(pool.size() == 1);
  CHECK(!any_temporary(folder.path()));
}

TEST_CASE("a file system that is full or a size limit: an error, nothing partial, the rest hits") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare();
  publish(pool, counted(16, 0));
  // In a child, because the limit is one of the process.
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{8192, 8192};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    int status = 1;
    try {
      publish(pool, counted(5000, 100));
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.kind() == ErrorKind::io && text.find("File too large") != std::string::npos) {
        status = 0;
      }
    }
    ::_exit(status);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(!any_temporary(folder.path()));
  CHECK(pool.size() == 1);
  CHECK(pool.lookup(counted(16, 0)).kind == MatchKind::whole);
}

TEST_CASE("ten thousand entries: look-ups open a handful of files") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity_of("a"));
  pool.prepare(PoolSettings{20'000, 0, EvictionPolicy::lru});
  // One real entry a length class; the others are names of it (the ids decide, not the names).
  Order order;
  Ids base = counted(64, 0);
  publish(pool, base);
  const std::string inside = folder.file(pool.identity().folder());
  const std::string real = inside + "/" + key_of(pool.identity(), base).text() + ".safetensors";
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const EntryKey key{64, i, i * 0x9e3779b97f4a7c15ULL};
    std::filesystem::create_hard_link(real, inside + "/" + key.text() + ".safetensors");
    order.keys.push_back(key);
  }
  order.keys.push_back(key_of(pool.identity(), base));
  order.listing = pool.folder().listing_state(pool.identity().folder());
  write_order(inside + ".order", order);
  CHECK(pool.size() == 10'001);
  Ids prompt = base;
  prompt.resize(40);
  prompt.push_back(7);
  const PoolMatch match = pool.lookup(prompt);
  CHECK(match.length == 40);
  CHECK(match.kind == MatchKind::crop);
  // Count the openings of a bisection.
  int opened = 0;
  const auto snapshot = Snapshot::open(real);
  const auto best = most_similar(prompt, order.keys, order.keys,
                                 [&](const EntryKey&) -> std::optional<std::span<const TokenId>> {
                                   ++opened;
                                   return snapshot->ids();
                                 });
  CHECK(!best.empty());
  CHECK(opened < 40);
}

}  // namespace
}  // namespace tinyloop
