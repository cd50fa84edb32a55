// SPDX-License-Identifier: Apache-2.0
// The log of uses of a pool that is only read: it stays short, no use is lost, and nobody fails or
// waits because it cannot be folded. What happens to it on publishing is in test_prefix_pool.cpp.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "temporary_folder.h"
#include "tinyloop/pool/uses.h"

namespace tinyloop {
namespace {

constexpr std::int64_t kBound = 64 * 1024 + 100;  // and one line

EntryKey key_number(std::uint64_t number) {
  return {1000 + static_cast<std::int64_t>(number), number, ~number};
}

// So many look-ups, every tenth of them a miss.
void use(const PoolUses& uses, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % 10 == 9) {
      uses.add_miss();
    } else {
      uses.add_hit(key_number(static_cast<std::uint64_t>(i % 3)), 7);
    }
  }
}

std::int64_t log_bytes(const TemporaryFolder& folder) {
  return static_cast<std::int64_t>(std::filesystem::file_size(folder.file("uses.log")));
}

void check_counts(const PoolUses& uses, std::int64_t lookups) {
  const PoolCounts counts = uses.read();
  CHECK(counts.lookups() == lookups);
  CHECK(counts.misses == lookups / 10);
  CHECK(counts.reused == 7 * counts.hits);
  REQUIRE(counts.entries.size() == 3);
  std::int64_t hits = 0;
  for (const auto& [key, entry] : counts.entries) hits += entry.hits;
  CHECK(hits == counts.hits);
}

TEST_CASE("twenty thousand uses by one reader: the log stays short and every use counts") {
  const TemporaryFolder folder;
  const PoolUses uses(folder.path());
  for (int round = 0; round < 20; ++round) {
    use(uses, 1000);
    CHECK(log_bytes(folder) <= kBound);
  }
  check_counts(uses, 20'000);
  // The order of use outlives folding: the last hit is that of look-up 998 of a round.
  const PoolCounts counts = uses.read();
  const std::int64_t latest = counts.entries.at(key_number(998 % 3)).order;
  for (const auto& [key, entry] : counts.entries) CHECK(entry.order <= latest);
}

TEST_CASE("four readers at once: the same") {
  const TemporaryFolder folder;
  const PoolUses uses(folder.path());
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 0;
      try {
        use(uses, 3000);
      } catch (...) {
        status = 1;
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  check_counts(uses, 12'000);
  CHECK(log_bytes(folder) <= kBound);
}

TEST_CASE("where the log cannot be folded it grows, and uses are counted all the same") {
  const TemporaryFolder folder;
  const PoolUses uses(folder.path());
  std::filesystem::create_directory(folder.file("uses.sum"));  // cannot be replaced by a file
  use(uses, 3000);
  check_counts(uses, 3000);
  CHECK(log_bytes(folder) > kBound);
  std::filesystem::remove(folder.file("uses.sum"));
  // Somebody holds the lock: no reason to fold without.
  const int held = ::open(folder.file("uses.log").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  use(uses, 1);
  CHECK(!std::filesystem::exists(folder.file("uses.sum")));
  CHECK(log_bytes(folder) > kBound);
  ::close(held);
  use(uses, 1);
  CHECK(log_bytes(folder) < 100);
  CHECK(uses.read().lookups() == 3002);
}

TEST_CASE("a sum of a newer format is not written over") {
  const TemporaryFolder folder;
  const PoolUses uses(folder.path());
  std::ofstream(folder.file("uses.sum")) << "uses 2\nwhatever\n";
  use(uses, 3000);
  {
    PoolUses::Lock(uses).fold([](const EntryKey&) { return true; });
  }
  std::ifstream file(folder.file("uses.sum"));
  std::string line;
  REQUIRE(std::getline(file, line));
  CHECK(line == "uses 2");
  CHECK(uses.read().lookups() == 3000);
}

TEST_CASE("uses count after a fold whose process was killed before it emptied the log") {
  const TemporaryFolder folder;
  const PoolUses uses(folder.path());
  use(uses, 10);
  std::ifstream file(folder.file("uses.log"));
  const std::string log((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  {
    PoolUses::Lock(uses).fold([](const EntryKey&) { return true; });
  }
  std::ofstream(folder.file("uses.log")) << log;  // as if it had not been emptied
  check_counts(uses, 10);                         // nothing twice
  uses.add_hit(key_number(1), 7);
  { PoolUses::Lock(uses).add_registration(key_number(2), 5); }
  uses.add_hit(key_number(0), 7);
  const PoolCounts counts = uses.read();
  CHECK(counts.lookups() == 12);
  CHECK(counts.hits == 11);
  CHECK(counts.entries.at(key_number(2)).prefill_us == 5);
  CHECK(counts.entries.at(key_number(0)).order > counts.entries.at(key_number(2)).order);
  CHECK(counts.entries.at(key_number(2)).order > counts.entries.at(key_number(1)).order);
}

}  // namespace
}  // namespace tinyloop
