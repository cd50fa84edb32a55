// SPDX-License-Identifier: Apache-2.0
// uses.log begins with "log GENERATION"; uses.sum has the totals of all lower generations, so
// that a process killed between writing the one and emptying the other counts nothing twice.
#include "tinyloop/pool/uses.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/files/temporary_file.h"
#include "tinyloop/files/text_file.h"
#include "tinyloop/parse_number.h"

namespace tinyloop {

namespace {

constexpr auto kPause = std::chrono::milliseconds(1);
constexpr int kAppendTries = 1000, kLockTries = 10'000;
// Whoever appends to a log of more bytes folds it: some 1200 uses, so that a pool that is only read
// stays small, what reads the log has little to read, and the two flushes of a fold are rare.
constexpr off_t kLongLog = off_t{64} << 10;
constexpr std::string_view kSumFormat = "uses 1", kAnySum = "uses ";
constexpr std::int64_t kMostSum = std::int64_t{64} << 20;  // of a million entries
constexpr std::size_t kHead = 256;  // more than the lines with a file's generation take

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(ErrorKind::io, "{}: {}", path, std::generic_category().message(error));
}

// Where locks are not supported going on without is better than not at all: at worst a use is not
// counted.
enum class Locked { yes, no, not_supported };
Locked lock(int file, int tries) {
  for (int i = 0; i < tries; ++i) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return Locked::yes;
    if (errno != EWOULDBLOCK && errno != EINTR) return Locked::not_supported;
    std::this_thread::sleep_for(kPause);
  }
  return Locked::no;
}

// What cannot be read counts as empty: at worst a use is not counted.
std::string contents(const std::string& path) {
  try {
    return read_text_file(path, kMostSum);
  } catch (const Error&) {
    return "";
  }
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

// A number of a line, not negative; -1 for anything else.
std::int64_t number(std::string_view text) {
  return std::max<std::int64_t>(parse_number<std::int64_t>(text).value_or(-1), -1);
}

template <typename Take>
void for_each_line(std::string_view text, const Take& take) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return;  // cut off, or still being written
    if (end > 0) take(words_of(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
}

std::int64_t log_generation(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text.substr(0, text.find('\n')));
  return words.size() == 2 && words[0] == "log" ? std::max<std::int64_t>(0, number(words[1])) : 0;
}

struct Sum {
  PoolCounts counts;
  std::int64_t generation = 0;  // logs before this one are in the counts
};

Sum parse_sum(std::string_view text) {
  Sum sum;
  if (!text.starts_with(kSumFormat)) return sum;
  for_each_line(text, [&](const std::vector<std::string_view>& words) {
    if (words.size() == 6 && words[0] == "total") {
      const std::int64_t values[] = {number(words[1]), number(words[2]), number(words[3]),
                                     number(words[4]), number(words[5])};
      for (const std::int64_t value : values) {
        if (value < 0) return;
      }
      sum.generation = values[0];
      sum.counts.hits = values[1];
      sum.counts.misses = values[2];
      sum.counts.reused = values[3];
      sum.counts.order = values[4];
    } else if (words.size() == 6 && words[0] == "entry") {
      const auto key = EntryKey::parse(words[1]);
      const EntryUse use{number(words[2]), number(words[3]), number(words[4]), number(words[5])};
      if (!key || use.hits < 0 || use.order < 0 || use.last_used < 0 || use.prefill_us < 0) return;
      sum.counts.entries[*key] = use;
    }
  });
  return sum;
}

// That of the sum, without reading all of a long one.
std::int64_t sum_generation(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return 0;
  std::string head(kHead, '\0');
  const ssize_t got = ::read(file, head.data(), head.size());
  ::close(file);
  head.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return parse_sum(head).generation;
}

void add_log(PoolCounts& counts, std::string_view text) {
  for_each_line(text, [&](const std::vector<std::string_view>& words) {
    if (words.size() == 2 && words[0] == "miss") {
      ++counts.misses;
      return;
    }
    const bool hit = !words.empty() && words[0] == "hit";
    if (words.size() != 4 || (!hit && words[0] != "register")) return;
    const auto key = EntryKey::parse(words[1]);
    const std::int64_t value = number(words[2]), time = number(words[3]);
    if (!key || value < 0 || time < 0) return;
    EntryUse& use = counts.entries[*key];
    use.order = ++counts.order;
    use.last_used = time;
    if (hit) {
      ++use.hits;
      ++counts.hits;
      counts.reused += value;
    } else if (value > 0) {
      use.prefill_us = value;
    }
  });
}

}  // namespace

void PoolUses::append(const std::string& line) const {
  const std::string path = log_path();
  const int file =
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (file < 0) fail(path, errno);
  const Locked locked =
      lock(file, held_ ? 1 : kAppendTries);  // a stopped process must not stop all
  if (locked == Locked::no) held_ = true;
  Lock holder(*this, file);  // closes it
  if (locked == Locked::yes) holder.begin_anew_if_folded();
  append_to(file, line);
  // With the lock that is held anyway; without one a line of somebody else could get lost. Which
  // entries there still are, whoever publishes or evicts looks up.
  if (locked == Locked::yes && ::lseek(file, 0, SEEK_END) > kLongLog &&
      ::access(folder_.c_str(), W_OK) == 0) {
    holder.fold([](const EntryKey&) { return true; });
  }
}

void PoolUses::append_to(int log, const std::string& line) const {
  std::string text = fmt::format("{} {}\n", line, std::max<std::time_t>(0, std::time(nullptr)));
  if (::lseek(log, 0, SEEK_END) == 0) {
    text = fmt::format("log {}\n", parse_sum(contents(sum_path())).generation) + text;
  }
  const ssize_t written = ::write(log, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) fail(log_path(), written < 0 ? errno : ENOSPC);
}

namespace {

std::string registration(const EntryKey& key, std::int64_t prefill_us) {
  return fmt::format("register {} {}", key.text(), prefill_us);
}

}  // namespace

void PoolUses::add_hit(const EntryKey& key, std::int64_t reused) const {
  append(fmt::format("hit {} {}", key.text(), reused));
}

void PoolUses::add_miss() const { append("miss"); }

void PoolUses::add_registration(const EntryKey& key, std::int64_t prefill_us) const {
  append(registration(key, prefill_us));
}

PoolCounts PoolUses::read() const {
  // The log first: if it is folded in between, it counts in the sum that is read after it only.
  const std::string log = contents(log_path());
  Sum sum = parse_sum(contents(sum_path()));
  if (log_generation(log) >= sum.generation) add_log(sum.counts, log);
  return sum.counts;
}

PoolUses::Lock::Lock(const PoolUses& uses) : uses_(uses) {
  const std::string path = uses.log_path();
  log_ =
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (log_ < 0) fail(path, errno);
  if (lock(log_, uses.held_ ? 1 : kLockTries) != Locked::no) return;
  uses.held_ = true;
  ::close(log_);
  throw Error(ErrorKind::io, "{}: another process has held it locked for ten seconds", path);
}

PoolUses::Lock::~Lock() { ::close(log_); }

// Whoever folded the log was killed before he could empty it: all its lines are in the sum, and no
// line behind them would be counted.
void PoolUses::Lock::begin_anew_if_folded() {
  std::string head(kHead, '\0');
  const ssize_t got = ::pread(log_, head.data(), head.size(), 0);
  head.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (head.empty() || log_generation(head) >= sum_generation(uses_.sum_path())) return;
  if (::ftruncate(log_, 0) != 0) fail(uses_.log_path(), errno);
}

void PoolUses::Lock::add_registration(const EntryKey& key, std::int64_t prefill_us) {
  begin_anew_if_folded();
  uses_.append_to(log_, registration(key, prefill_us));
}

void PoolUses::Lock::write(const PoolCounts& counts) {
  const std::int64_t next = std::max(log_generation(contents(uses_.log_path())),
                                     parse_sum(contents(uses_.sum_path())).generation) +
                            1;
  // Damage may be begun anew, but what is only unreadable now, or newer, is worth more than this.
  struct stat status {};
  if (::stat(uses_.sum_path().c_str(), &status) == 0) {
    const std::string there = read_text_file(uses_.sum_path(), kMostSum);
    if (there.starts_with(kAnySum) && !there.starts_with(kSumFormat)) {
      throw Error(ErrorKind::data, "{}: of another format", uses_.sum_path());
    }
  }
  AtomicFile sum(uses_.sum_path(), true);
  sum.write(fmt::format("{}\ntotal {} {} {} {} {}\n", kSumFormat, next, counts.hits, counts.misses,
                        counts.reused, counts.order));
  for (const auto& [key, use] : counts.entries) {
    sum.write(fmt::format("entry {} {} {} {} {}\n", key.text(), use.hits, use.order, use.last_used,
                          use.prefill_us));
  }
  sum.commit();
  if (::ftruncate(log_, 0) != 0) fail(uses_.log_path(), errno);
  const std::string head = fmt::format("log {}\n", next);
  if (::write(log_, head.data(), head.size()) != static_cast<ssize_t>(head.size())) {
    fail(uses_.log_path(), errno);
  }
}

}  // namespace tinyloop
