// SPDX-License-Identifier: Apache-2.0
// tl-pool-evict: removes entries from a prefix pool. See tl-pool-evict(1).
// Parses, calls the library, prints.
#include <fmt/format.h>

#include <ctime>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/error.h"
#include "tinyloop/pool/prefix_pool.h"

namespace {

using namespace tinyloop;

struct Options {
  std::string pool, model;
  std::vector<std::string> keys;
  bool all = false;
  std::optional<std::int64_t> older_than, to_bytes;
  cli::Output output;
};

// "90", "90s", "15m", "6h" or "30d" as seconds.
std::int64_t parse_duration(const std::string& text) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  std::int64_t unit = 1;
  std::string digits = text;
  const std::string_view units = "smhd";
  constexpr std::int64_t kSeconds[] = {1, 60, 3600, 86400};
  if (!digits.empty() && units.find(digits.back()) != std::string_view::npos) {
    unit = kSeconds[units.find(digits.back())];
    digits.pop_back();
  }
  std::int64_t value = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9' || value > kMax) digits.clear();
    value = value * 10 + (digit - '0');
  }
  if (digits.empty()) {
    throw Error(ErrorKind::usage,
                "--older-than: '{}' is not a duration such as 90s, 15m, 6h or 30d", text);
  }
  return value * unit;
}

// Whether the entry belongs to this model; an unreadable entry belongs to none.
bool is_of(const PoolFolder& folder, const PoolEntry& entry, const std::string& fingerprint) {
  try {
    return Snapshot::open(folder.entry_path(entry))->identity().model == fingerprint;
  } catch (const Error&) {
    return false;
  }
}

std::vector<PoolEntry> named(const PoolFolder& folder, const std::vector<std::string>& names) {
  std::vector<PoolEntry> found;
  const std::vector<PoolEntry> entries = folder.entries();
  for (const std::string& name : names) {
    const auto key = EntryKey::parse(name);
    if (!key) throw Error(ErrorKind::usage, "'{}' is not an entry key", name);
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const PoolEntry& e) { return e.key == *key; });
    if (entry == entries.end()) {
      throw Error(ErrorKind::io, "{}: no entry {}", folder.path(), name);
    }
    found.push_back(*entry);
  }
  return found;
}

int evict_entries(Options& options) {
  const bool by_rule = options.all || options.older_than || options.to_bytes;
  if (!options.keys.empty() && (by_rule || !options.model.empty())) {
    throw Error(ErrorKind::usage, "keys and {} exclude each other",
                options.all          ? "--all"
                : options.older_than ? "--older-than"
                : options.to_bytes   ? "--to-bytes"
                                     : "--model");
  }
  if (options.keys.empty() && !by_rule && options.model.empty()) {
    throw Error(ErrorKind::usage,
                "nothing to evict: give keys, --all, --older-than, --to-bytes or --model");
  }
  if (options.to_bytes && (options.all || options.older_than || !options.model.empty())) {
    throw Error(ErrorKind::usage, "--to-bytes and {} exclude each other",
                options.all          ? "--all"
                : options.older_than ? "--older-than"
                                     : "--model");
  }
  const PoolFolder folder(options.pool);
  folder.require_ours();
  const FoundSettings found = folder.settings();
  const PoolSettings& settings = found.settings;
  if (options.to_bytes && !found.known) {
    throw Error(ErrorKind::io, "--to-bytes: the pool's policy is unknown: {}", found.warning);
  }
  if (!found.warning.empty()) cli::warn(found.warning);
  std::vector<PoolEntry> chosen;
  if (!options.keys.empty()) {
    chosen = named(folder, options.keys);
  } else if (!options.to_bytes) {
    std::string fingerprint;
    if (!options.model.empty()) fingerprint = Model::open(options.model).fingerprint();
    const PoolCounts counts = PoolUses(options.pool).read();
    const auto now = static_cast<std::int64_t>(std::time(nullptr));
    for (const PoolEntry& entry : folder.entries()) {
      if (!fingerprint.empty() && !is_of(folder, entry, fingerprint)) continue;
      if (options.older_than) {
        // An entry without a recorded use counts as used just now.
        const auto known = counts.entries.find(entry.key);
        const std::int64_t used = known == counts.entries.end() ? now : known->second.last_used;
        if (now - used < *options.older_than) continue;
      }
      chosen.push_back(entry);
    }
  }
  options.output.open();
  std::vector<PoolEntry> removed;
  if (options.to_bytes) {
    removed = evict_now(folder, {-1, *options.to_bytes, settings.policy});
  } else {
    for (const PoolEntry& entry : chosen) {
      if (folder.remove(entry)) removed.push_back(entry);
    }
    evict_now(folder, {-1, -1, settings.policy});  // forgets their uses
  }
  folder.sweep();
  for (const PoolEntry& entry : removed) options.output.write(entry.key.text() + "\n");
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Removes entries from a prefix pool.", "tl-pool-evict");
  cli::add_pool(app, options.pool, "The pool's folder")->required();
  app.add_option("KEY", options.keys, "Entries to remove, as tl-pool-list shows them");
  app.add_flag("--all", options.all, "Remove all entries");
  app.add_option_function<std::string>(
         "--older-than",
         [&](const std::string& text) { options.older_than = parse_duration(text); },
         "Remove entries not used for this time: 90s, 15m, 6h, 30d")
      ->type_name("TIME");
  cli::add_bytes(app, "--to-bytes", options.to_bytes, 0,
                 "Remove entries, by the pool's policy, until at most this many bytes remain, such "
                 "as 8G or 500M");
  cli::names_source(app.add_option("--model", options.model,
                                   "Remove only entries of this model, a .tinyloop file"))
      ->type_name("MODEL");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return evict_entries(options); });
}
