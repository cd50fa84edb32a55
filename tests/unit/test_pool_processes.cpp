// SPDX-License-Identifier: Apache-2.0
// Many processes at one pool, and processes killed in the middle of what they do to it. Entries are
// made up; the tools themselves are tested by tests/cli.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

using Ids = std::vector<TokenId>;

PrefixPool opened(const std::string& folder) {
  CacheIdentity identity;
  identity.model = "a";
  identity.arithmetic = "cpu-1";
  identity.kv = "f16";
  identity.loops = 4;
  return PrefixPool(folder, identity);
}

// Sequence number `number`: all share their first half, `length` ids.
Ids ids_of(std::uint32_t number, std::uint32_t length) {
  Ids ids;
  for (std::uint32_t i = 0; i < length; ++i) {
    ids.push_back(
        static_cast<TokenId>(philox(i < length / 2 ? 1 : number + 2, {i, 0, 0, 0})[0] & 0xffff));
  }
  return ids;
}

// Every byte of the planes is a function of the ids, so that a mixture would show.
void publish(PrefixPool& pool, const Ids& ids, std::int64_t tile_bytes) {
  SnapshotContent content;
  content.shape = {3, 2, 0, (static_cast<std::int64_t>(ids.size()) + 15) / 16, tile_bytes};
  content.ids = ids;
  content.read_plane = [&](std::int32_t plane, std::span<std::byte> to) {
    std::fill(to.begin(), to.end(), static_cast<std::byte>(ids.back() + plane));
  };
  pool.publish(content);
}

bool right(const Snapshot& snapshot) {
  const std::size_t plane = static_cast<std::size_t>(snapshot.shape().plane_bytes());
  for (std::size_t i = 0; i < snapshot.kv().size(); ++i) {
    const auto wanted =
        static_cast<std::byte>(snapshot.ids().back() + static_cast<TokenId>(i / plane));
    if (snapshot.kv()[i] != wanted) return false;
  }
  return true;
}

// Every entry of the pool is complete and what it says.
std::size_t sound_entries(const PrefixPool& pool) {
  std::size_t count = 0;
  for (const PoolEntry& entry : pool.folder().entries()) {
    std::shared_ptr<const Snapshot> snapshot;
    try {
      snapshot = Snapshot::open(pool.folder().entry_path(entry));
    } catch (const Error&) {
      if (pool.folder().bytes_of(entry) < 0) continue;  // evicted in between
      throw;
    }
    snapshot->verify_all();
    if (!right(*snapshot) || key_of(pool.identity(), snapshot->ids()) != entry.key) return 0;
    ++count;
  }
  return count;
}

std::size_t temporaries(const std::string& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(".tmp")) ++count;
  }
  return count;
}

// A child that runs `body`; its status is 0 if that returns true.
pid_t start(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  bool good = false;
  try {
    good = body();
  } catch (...) {
  }
  ::_exit(good ? 0 : 1);
}

bool succeeded(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("a registration killed at any moment leaves a usable pool") {
  const TemporaryFolder folder;
  opened(folder.path()).prepare(PoolSettings{6, 0, EvictionPolicy::lru});
  std::size_t killed_in_the_middle = 0, hits = 0;
  // Set by a child while it publishes.
  auto* const publishes = static_cast<std::atomic<bool>*>(
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0));
  REQUIRE(publishes != MAP_FAILED);
  for (std::uint32_t round = 0; round < 200; ++round) {
    publishes->store(false);
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = start([&] {
      PrefixPool pool = opened(folder.path());
      (void)!::write(ready[1], "r", 1);
      for (std::uint32_t i = 0;; ++i) {
        pool.prepare();
        publishes->store(true);
        publish(pool, ids_of(round * 7 + i % 9, 200), 1024);
        publishes->store(false);
        const PoolMatch match = pool.lookup(ids_of(round * 7, 200));
        if (match.snapshot) pool.count_hit(match.key, match.length);
      }
      return true;
    });
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(philox(9, {round, 0, 0, 0})[0] % 6000));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (publishes->load()) ++killed_in_the_middle;

    PrefixPool pool = opened(folder.path());
    const std::size_t count = sound_entries(pool);
    CHECK(static_cast<std::int64_t>(count) == pool.size());
    CHECK(count <= 6);
    const PoolMatch match = pool.lookup(ids_of(round * 7, 200));
    CHECK(match.warning.empty());
    if (match.snapshot) {
      ++hits;
      CHECK(right(*match.snapshot));
    }
    // The next registration sweeps and works.
    if (round % 10 == 0) {
      pool.prepare();
      CHECK(temporaries(folder.path()) == 0);
      publish(pool, ids_of(1'000'000 + round, 200), 1024);
      CHECK(pool.verified(ids_of(1'000'000 + round, 200)) != nullptr);
    }
  }
  ::munmap(publishes, sizeof(std::atomic<bool>));
  CHECK(killed_in_the_middle > 0);  // or the test tests nothing
  CHECK(hits > 0);
}

TEST_CASE("U-07: eight different prefixes, eight times a common one, four readers, twenty times") {
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    std::vector<pid_t> children;
    for (std::uint32_t i = 0; i < 16; ++i) {
      children.push_back(start([&folder, i] {
        PrefixPool pool = opened(folder.path());
        pool.prepare();
        publish(pool, ids_of(i < 8 ? i : 8, 100), 256);
        return true;
      }));
    }
    for (std::uint32_t i = 0; i < 4; ++i) {
      children.push_back(start([&folder, i] {
        const PrefixPool pool = opened(folder.path());
        for (std::uint32_t j = 0; j < 20; ++j) {
          const PoolMatch match = pool.lookup(ids_of((i + j) % 9, 100));
          if (match.snapshot) match.snapshot->verify_all();
          if (match.snapshot && !right(*match.snapshot)) return false;
        }
        return true;
      }));
    }
    for (const pid_t child : children) CHECK(succeeded(child));
    const PrefixPool pool = opened(folder.path());
    CHECK(sound_entries(pool) == 9);
    CHECK(pool.size() == 9);
    CHECK(temporaries(folder.path()) == 0);
    for (std::uint32_t i = 0; i < 9; ++i) {
      CHECK(pool.lookup(ids_of(i, 100)).kind == MatchKind::whole);
    }
    CHECK(pool.counts().entries.size() == 9);
  }
}

TEST_CASE("writers, readers and evictors at once: never above capacity, no use lost") {
  const TemporaryFolder folder;
  opened(folder.path()).prepare(PoolSettings{5, 0, EvictionPolicy::lru});
  std::vector<pid_t> children;
  for (std::uint32_t i = 0; i < 6; ++i) {
    children.push_back(start([&folder, i] {
      PrefixPool pool = opened(folder.path());
      for (std::uint32_t j = 0; j < 25; ++j) {
        publish(pool, ids_of(i * 100 + j % 7, 100), 256);
        if (pool.size() > 5) return false;
      }
      return true;
    }));
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    children.push_back(start([&folder, i] {
      const PrefixPool pool = opened(folder.path());
      for (std::uint32_t j = 0; j < 50; ++j) {
        const PoolMatch match = pool.lookup(ids_of(i * 100 + j % 7, 100));
        if (!match.warning.empty()) return false;
        if (match.snapshot) match.snapshot->verify_all();
        if (match.snapshot && !right(*match.snapshot)) return false;
        pool.count_miss();
      }
      return true;
    }));
  }
  children.push_back(start([&folder] {
    for (std::uint32_t j = 0; j < 20; ++j) {
      evict_now(PoolFolder(folder.path()), {3, -1, EvictionPolicy::lru});
    }
    return true;
  }));
  for (const pid_t child : children) CHECK(succeeded(child));
  const PrefixPool pool = opened(folder.path());
  CHECK(pool.counts().misses == 200);
  CHECK(static_cast<std::int64_t>(sound_entries(pool)) == pool.size());
  CHECK(temporaries(folder.path()) == 0);
}

}  // namespace
}  // namespace tinyloop
