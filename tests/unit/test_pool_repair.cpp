// SPDX-License-Identifier: Apache-2.0
// Damaged files of a pool that are no entries, the order and the settings: what is sound is found
// all the same, and registering mends them. Entries are made up, and none of them is damaged here.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/pool/order.h"
#include "tinyloop/pool/prefix_pool.h"

namespace tinyloop {
namespace {

using Ids = std::vector<TokenId>;

constexpr TokenId kEntries = 100;  // more than are looked at one by one
constexpr std::int64_t kLength = 20;

CacheIdentity identity() {
  CacheIdentity identity;
  identity.model = "a";
  identity.arithmetic = "cpu-1";
  identity.kv = "f16";
  identity.loops = 4;
  return identity;
}

Ids entry_ids(TokenId number) {
  Ids ids(static_cast<std::size_t>(kLength));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 1000 * number + static_cast<TokenId>(i);
  return ids;
}

EntryKey publish(PrefixPool& pool, const Ids& ids) {
  SnapshotContent content;
  content.shape = {2, 1, 0, (kLength + 15) / 16, 64};
  content.ids = ids;
  content.prefill_ms = 1.0;
  content.read_plane = [](std::int32_t, std::span<std::byte> to) {
    std::memset(to.data(), 7, to.size());
  };
  return pool.publish(content);
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

void check_hits(const PrefixPool& pool, TokenId number) {
  CAPTURE(number);
  Ids ids = entry_ids(number);
  CHECK(pool.lookup(ids).kind == MatchKind::whole);
  ids[10] = 7;
  const PoolMatch match = pool.lookup(ids);
  CHECK(match.kind == MatchKind::crop);
  CHECK(match.length == 10);
}

TEST_CASE("the order's header says how many keys there are and the hash of all its bytes") {
  const TemporaryFolder folder;
  const std::string path = folder.file("order");
  const std::vector<EntryKey> keys{{5, 1, 2}, {7, 3, 4}};
  write_order(path, {123, keys});
  const std::string rest = "\n" + keys[0].text() + "\n" + keys[1].text() + "\n";
  const std::string hashed = "listing 123 keys 2 xxh3 " + rest;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(hashed.data(), hashed.size())));
  const std::string text = "listing 123 keys 2 xxh3 " + std::string(digits) + rest;
  CHECK(content(path) == text);
  CHECK(read_order(path).listing == 123);
  CHECK(read_order(path).keys == keys);
  // No byte may be another one, be lacking or be one too many.
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    for (const std::string& damaged : {bad, text.substr(0, at), text + text.substr(at)}) {
      CAPTURE(damaged);
      std::ofstream(path) << damaged;
      CHECK(read_order(path).listing == 0);
      CHECK(read_order(path).keys.empty());
    }
  }
  write_order(path, {});
  CHECK(read_order(path).keys.empty());
}

TEST_CASE("a damaged order hides nothing, and registering what is there mends it") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity());
  pool.prepare(PoolSettings{1000, 0, EvictionPolicy::lru});
  // Not in the order of ids, which is the order of the numbers.
  for (TokenId i = 0; i < kEntries; ++i) publish(pool, entry_ids(i * 37 % kEntries));
  const std::string path = pool.folder().order_path(pool.identity().folder());
  const std::string good = content(path);
  const std::size_t header = good.find('\n') + 1;
  const std::size_t line = good.find('\n', header) + 1 - header;
  REQUIRE(read_order(path).keys.size() == kEntries);
  REQUIRE(read_order(path).listing != 0);
  std::string flipped = good, removed = good;
  flipped[header + 50 * line + 10] ^= 1;
  removed.erase(header + 50 * line, line);
  const std::pair<const char*, std::string> damages[] = {
      {"header", good.substr(0, header)},
      {"half", good.substr(0, good.size() / 2)},
      {"flipped", flipped},
      {"key removed", removed},
      {"empty", ""},
  };
  const EntryKey known = key_of(pool.identity(), entry_ids(3));
  for (const auto& [name, bytes] : damages) {
    for (const bool touched : {true, false}) {
      CAPTURE(name);
      CAPTURE(touched);
      std::ofstream(path) << bytes;
      for (TokenId i = 0; i < kEntries; i += 7) {
        CHECK(pool.lookup(entry_ids(i)).kind == MatchKind::whole);
      }
      if (touched) {
        pool.touch(known);
      } else {
        CHECK(publish(pool, entry_ids(3)) == known);
      }
      for (TokenId i = 0; i < kEntries; i += 7) check_hits(pool, i);
      CHECK(content(path).substr(header) == good.substr(header));
      CHECK(read_order(path).listing == pool.folder().listing_state(pool.identity().folder()));
    }
  }
  std::filesystem::remove(path);
  pool.touch(known);
  CHECK(content(path).substr(header) == good.substr(header));
}

TEST_CASE("a damaged order of a small pool: crops are found before it is mended, too") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity());
  pool.prepare();
  for (TokenId i = 0; i < 10; ++i) publish(pool, entry_ids(i));
  const std::string path = pool.folder().order_path(pool.identity().folder());
  const std::string good = content(path);
  const std::size_t header = good.find('\n') + 1;
  for (std::size_t kept = 0; kept < good.size(); kept += header / 2) {
    CAPTURE(kept);
    std::ofstream(path) << good.substr(0, kept);
    for (TokenId i = 0; i < 10; ++i) check_hits(pool, i);
  }
}

TEST_CASE("settings that cannot be read: nothing is evicted, nothing written over, entries hit") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity());
  pool.prepare(PoolSettings{100, 0, EvictionPolicy::shortest});
  for (TokenId i = 0; i < 20; ++i) publish(pool, entry_ids(i));  // more than the default allows
  const std::string path = folder.file("pool.json");
  const std::string good = content(path);
  using Damage = std::function<void()>;
  const auto holding = [&](const std::string& bytes) -> Damage {
    return [&path, bytes] { std::ofstream(path, std::ios::binary) << bytes; };
  };
  const std::pair<Damage, bool> damages[] = {
      {[] {}, true},  // missing
      {holding(""), true},
      {holding("{"), true},
      {holding("{}"), true},
      {holding("[1]"), true},
      {holding(good.substr(0, good.size() / 2)), true},
      {holding(good + "x"), true},
      {holding(std::string("\xff\0\x01{", 4)), true},
      {holding(R"({"format":0,"capacity":4,"max_bytes":0,"policy":"lru"})"), true},
      {holding(R"({"format":1,"capacity":1.5,"max_bytes":0,"policy":"lru"})"), true},
      {holding(R"({"format":1,"capacity":9,"max_bytes":1.5,"policy":"lru"})"), true},
      {holding(R"({"format":1.9,"capacity":1,"max_bytes":0,"policy":"lru"})"), true},
      {holding(R"({"format":1,"capacity":-1,"max_bytes":0,"policy":"lru"})"), true},
      {holding(R"({"format":1,"capacity":4,"max_bytes":0,"policy":"new"})"), true},
      {[&] { std::filesystem::create_symlink("pool.json", path); }, true},
      {[&] { std::filesystem::create_directory(path); }, false},
      {[&] { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }, false},
  };
  TokenId next = 20;
  for (std::size_t i = 0; i < std::size(damages); ++i) {
    CAPTURE(i);
    const auto& [damage, mended] = damages[i];
    std::filesystem::remove(path);
    damage();
    const auto status = std::filesystem::symlink_status(path).type();
    const std::string bytes =
        status == std::filesystem::file_type::regular ? content(path) : std::string();
    const PoolMatch match = pool.lookup(entry_ids(1));
    CHECK(match.usable);
    CHECK(match.kind == MatchKind::whole);
    CHECK(match.warning.find(path + ": ") == 0);
    CHECK(match.warning.find("`capacity`") != std::string::npos);
    CHECK(!pool.folder().settings().known);
    CHECK(pool.folder().settings().warning == match.warning);
    CHECK(pool.prepare() == match.warning);
    publish(pool, entry_ids(next++));
    CHECK(pool.size() == next);
    CHECK(std::filesystem::symlink_status(path).type() == status);
    if (status == std::filesystem::file_type::regular) CHECK(content(path) == bytes);
    for (TokenId number = 0; number < next; ++number) check_hits(pool, number);
    if (mended) {
      CHECK(pool.prepare(PoolSettings{100, 0, EvictionPolicy::shortest}) == match.warning);
      CHECK(content(path) == good);
      CHECK(pool.size() == next);
      CHECK(pool.prepare().empty());
      CHECK(pool.lookup(entry_ids(1)).warning.empty());
    } else {
      CHECK_THROWS_AS(pool.prepare(PoolSettings{100, 0, EvictionPolicy::shortest}), Error);
      CHECK(pool.size() == next);
    }
  }
}

TEST_CASE("damaged settings of a pool without entries are written anew") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity());
  pool.prepare();
  const std::string path = folder.file("pool.json");
  const std::string good = content(path);
  std::ofstream(path) << "{";
  CHECK(pool.prepare() == path + ": damaged");
  CHECK(content(path) == good);
}

TEST_CASE("a folder of somebody else's is no pool, and nothing is written into it") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("letter")) << "dear";
  PrefixPool pool(folder.path(), identity());
  CHECK_THROWS_AS(pool.folder().require_ours(), Error);
  CHECK_THROWS_AS(pool.prepare(), Error);
  const PoolMatch match = pool.lookup(entry_ids(1));
  CHECK(!match.usable);
  CHECK(match.kind == MatchKind::miss);
  std::size_t names = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++names;
  }
  CHECK(names == 1);
}

TEST_CASE("files of somebody else's with a pool's names stay what they are") {
  for (const std::string name : {"pool.json", "uses.log", "uses.sum"}) {
    for (const std::string text :
         {R"({"name":"my app","workers":8})", "not json at all", "[1,2]"}) {
      const TemporaryFolder folder;
      std::ofstream(folder.file(name)) << text;
      std::ofstream(folder.file("main.c")) << "int main;";
      PrefixPool pool(folder.path(), identity());
      CHECK_THROWS_AS(pool.prepare(), Error);
      CHECK_THROWS_AS(pool.prepare(PoolSettings{}), Error);
      CHECK(content(folder.file(name)) == text);
    }
  }
}

TEST_CASE("a link in a pool's folder is replaced or refused, what it leads to stays") {
  const TemporaryFolder folder;
  const TemporaryFolder elsewhere;
  const std::string victim = elsewhere.file("victim");
  PrefixPool pool(folder.path(), identity());
  pool.prepare();
  publish(pool, entry_ids(0));
  const std::string order = pool.folder().order_path(pool.identity().folder());
  for (const std::string& path :
       {folder.file("pool.json"), folder.file("uses.sum"), folder.file("uses.log"), order}) {
    CAPTURE(path);
    std::ofstream(victim) << "dear";
    std::filesystem::remove(path);
    std::filesystem::create_symlink(victim, path);
    try {
      pool.prepare(PoolSettings{});
      publish(pool, entry_ids(1));
      pool.touch(key_of(identity(), entry_ids(0)));
      evict_now(pool.folder(), {1, -1, EvictionPolicy::lru});
    } catch (const Error&) {
    }
    CHECK(content(victim) == "dear");
    std::filesystem::remove(path);
    pool.prepare(PoolSettings{});
  }
}

TEST_CASE("names that only look like a pool's make none, and none of them is removed") {
  const TemporaryFolder folder;
  const std::string hash(32, 'a');
  std::filesystem::create_directory(folder.file(hash));  // a cache with MD5 names
  std::ofstream(folder.file(hash + "/data")) << "x";
  std::ofstream(folder.file(std::string(32, 'b'))) << "x";
  std::ofstream(folder.file(".tmp.letter")) << "dear";
  std::ofstream(folder.file(".tmp.12")) << "dear";
  PrefixPool pool(folder.path(), identity());
  CHECK_THROWS_AS(pool.prepare(), Error);
  CHECK(std::filesystem::exists(folder.file(".tmp.letter")));
  // Nor where there is a pool.
  for (const std::string& name : {hash, std::string(32, 'b')}) {
    std::filesystem::remove_all(folder.file(name));
  }
  std::filesystem::remove(folder.file(".tmp.letter"));
  std::filesystem::remove(folder.file(".tmp.12"));
  std::ofstream(folder.file(".tmp.4194305.7")) << "left by a process that never was";
  CHECK(pool.prepare().empty());
  CHECK(!std::filesystem::exists(folder.file(".tmp.4194305.7")));
  for (const std::string name : {".tmp.letter", ".tmp.12", ".tmp.1.x", ".tmp.1.2.3", ".tmp..1"}) {
    std::ofstream(folder.file(name)) << "dear";
    pool.prepare();
    CHECK_MESSAGE(std::filesystem::exists(folder.file(name)), name);
  }
}

TEST_CASE("an empty folder passes, but only whoever registers makes a pool of it") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity());
  pool.folder().require_ours();
  CHECK(!pool.lookup(entry_ids(1)).usable);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(pool.prepare().empty());
  CHECK(pool.lookup(entry_ids(1)).usable);
}

TEST_CASE("where the uses are lost, entries go by the time at which they were written") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity());
  pool.prepare(PoolSettings{3, 0, EvictionPolicy::lru});
  for (TokenId i = 0; i < 3; ++i) {
    const EntryKey key = publish(pool, entry_ids(i));
    // The third is the oldest file.
    const timespec times[] = {{1000 - 100 * i, 0}, {1000 - 100 * i, 0}};
    const std::string path = pool.folder().entry_path({pool.identity().folder(), key});
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  }
  std::filesystem::remove(folder.file("uses.sum"));
  std::filesystem::remove(folder.file("uses.log"));
  publish(pool, entry_ids(3));
  CHECK(pool.lookup(entry_ids(2)).kind == MatchKind::miss);
  for (const TokenId there : {0, 1, 3}) {
    CHECK(pool.lookup(entry_ids(there)).kind == MatchKind::whole);
  }
}

TEST_CASE("a damaged file with an entry's name and an old date goes before what is in use") {
  const TemporaryFolder folder;
  PrefixPool pool(folder.path(), identity());
  pool.prepare(PoolSettings{3, 0, EvictionPolicy::lru});
  publish(pool, entry_ids(0));
  publish(pool, entry_ids(1));
  const PoolEntry bad{pool.identity().folder(), key_of(identity(), entry_ids(50))};
  const std::string path = pool.folder().entry_path(bad);
  std::ofstream(path) << "no entry";
  const timespec times[] = {{1000, 0}, {1000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  publish(pool, entry_ids(2));
  CHECK(!std::filesystem::exists(path));
  for (TokenId there = 0; there < 3; ++there) {
    CHECK(pool.lookup(entry_ids(there)).kind == MatchKind::whole);
  }
}

}  // namespace
}  // namespace tinyloop
