// SPDX-License-Identifier: Apache-2.0
// The options that choose how many sequences advance together, which ones, and the shard of lines.
// What a schedule does is lib/batch's business.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "options.h"
#include "tinyloop/error.h"
#include "tinyloop/parse_number.h"

namespace tinyloop::cli {
namespace {

constexpr std::int32_t kMaxLanes = 4096, kAutoLanes = 32;
constexpr std::string_view kAuto = "auto";

// The memory this process may still take: the machine's, or its control group's if that is less.
std::int64_t available_memory() {
  std::int64_t bytes = INT64_MAX;
  std::ifstream machine("/proc/meminfo");
  for (std::string word; machine >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "MemAvailable:" && machine >> kilobytes) bytes = kilobytes * 1024;
  }
  std::int64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    bytes = std::min(bytes, std::max<std::int64_t>(limit - used, 1));
  }
  return bytes;
}

}  // namespace

void BatchFlags::add(CLI::App& app) {
  app.add_option("--lanes", lanes_,
                 "Number of sequences that advance together, or auto: as many as --memory allows")
      ->type_name("N")
      ->default_str(lanes_);
  app.add_option("--memory", memory_,
                 "Maximum bytes of keys and values, such as 8G; default: no limit, with --lanes "
                 "auto half of the available memory")
      ->type_name("BYTES");
  app.add_option("--schedule", schedule_,
                 "Whether a free lane is filled at once or waits for all lanes to finish")
      ->check(CLI::IsMember({"lockstep", "continuous"}))
      ->type_name("SCHEDULE")
      ->default_str(schedule_);
  app.add_option("--group", group_,
                 "Which jobs run next to each other and share their common prefix")
      ->check(CLI::IsMember({"prefix", "key", "none"}))
      ->type_name("BY")
      ->default_str(group_);
  app.add_option("--shard", shard_, "Answer only every N-th line, starting with line I + 1")
      ->type_name("I/N");
}

BatchOptions BatchFlags::options() const {
  BatchOptions options;
  options.schedule = schedule_ == "lockstep" ? BatchSchedule::lockstep : BatchSchedule::continuous;
  options.grouping = group_ == "none"  ? BatchGrouping::none
                     : group_ == "key" ? BatchGrouping::key
                                       : BatchGrouping::prefix;
  if (!memory_.empty()) options.memory = parse_bytes("--memory", memory_);
  if (lanes_ == kAuto) {
    // The memory decides how many of these are in use: many short jobs or a few long ones.
    options.lanes = kAutoLanes;
    options.memory_guessed = memory_.empty();
    if (options.memory_guessed) {
      options.memory = static_cast<std::size_t>(std::max<std::int64_t>(1, available_memory() / 2));
    }
    return options;
  }
  const auto lanes = parse_number<std::int64_t>(lanes_);
  if (!lanes || *lanes < 1 || *lanes > kMaxLanes) {
    throw Error(ErrorKind::usage, "--lanes: '{}' is not an integer from 1 to {} or auto", lanes_,
                kMaxLanes);
  }
  options.lanes = static_cast<std::int32_t>(*lanes);
  return options;
}

LineShare BatchFlags::share() const {
  if (shard_.empty()) return {};
  const std::string_view text = shard_;
  const std::size_t slash = text.find('/');
  const auto index = parse_number<std::int64_t>(text.substr(0, slash));
  const auto of = slash == std::string_view::npos
                      ? std::nullopt
                      : parse_number<std::int64_t>(text.substr(slash + 1));
  if (!index || !of || *index < 0 || *index >= *of) {
    throw Error(ErrorKind::usage, "--shard: '{}' is not I/N with I from 0 to N - 1", text);
  }
  return {*index, *of};
}

}  // namespace tinyloop::cli
