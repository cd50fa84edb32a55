// SPDX-License-Identifier: Apache-2.0
// tl-pool-list: lists what a prefix pool holds and how it was used. See tl-pool-list(1).
// Parses, calls the library, prints; reads only.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/error.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/pool/prefix_pool.h"

namespace {

using namespace tinyloop;

struct Options {
  std::string pool;
  bool json = false, verify = false;
  cli::Output output;
};

struct Listed {
  EntryKey key;
  std::int64_t bytes = 0;
  EntryUse use;
  std::shared_ptr<const Snapshot> snapshot;  // null: damaged
  std::string error;
};

std::string time_text(std::int64_t seconds) {
  if (seconds <= 0) return "-";
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "-";
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts);
}

// Checks that the entry matches its name, and with --verify every byte.
void check(const PoolEntry& entry, const Snapshot& snapshot, bool verify) {
  const CacheIdentity& identity = snapshot.identity();
  if (identity.folder() != entry.identity || key_of(identity, snapshot.ids()) != entry.key) {
    throw Error(ErrorKind::data, "{}: its content does not match its name", snapshot.path());
  }
  if (verify) snapshot.verify_all();
}

std::vector<Listed> list(const Options& options, const PoolFolder& folder,
                         const PoolCounts& counts) {
  std::vector<Listed> all;
  for (const PoolEntry& entry : folder.entries()) {
    Listed listed{entry.key, folder.bytes_of(entry), {}, nullptr, {}};
    if (listed.bytes < 0) continue;  // evicted a moment ago
    const auto known = counts.entries.find(entry.key);
    if (known != counts.entries.end()) listed.use = known->second;
    try {
      const auto snapshot = Snapshot::open(folder.entry_path(entry));
      check(entry, *snapshot, options.verify);
      listed.snapshot = snapshot;
    } catch (const Error& error) {
      if (folder.bytes_of(entry) < 0) continue;
      listed.error = error.what();
      cli::warn(listed.error);
    }
    all.push_back(std::move(listed));
  }
  return all;
}

JsonObject json_entry(const Listed& entry) {
  JsonObject object;
  object.add("key", entry.key.text()).add("tokens", entry.key.length).add("bytes", entry.bytes);
  if (entry.snapshot) {
    const CacheIdentity& identity = entry.snapshot->identity();
    object.add("model", identity.model)
        .add("arithmetic", identity.arithmetic)
        .add("kv", identity.kv)
        .add("loops", identity.loops)
        .add("cache_window", identity.window)
        .add("initial_state", identity.initial_state)
        .add("created", entry.snapshot->created())
        .add("prefill_ms", entry.snapshot->prefill_ms(), 3)
        .add("resumable", entry.snapshot->resumable());
  } else {
    object.add("error", entry.error);
  }
  return object.add("last_used", entry.use.last_used).add("hits", entry.use.hits);
}

std::string text_entry(const Listed& entry) {
  std::string loops = "-", window = "-", kv = "damaged", created = "-";
  if (entry.snapshot) {
    loops = std::to_string(entry.snapshot->identity().loops);
    window = std::to_string(entry.snapshot->identity().window);
    kv = entry.snapshot->identity().kv;
    created = time_text(entry.snapshot->created());
  }
  return fmt::format("{:<40} {:>7} {:>5} {:>6} {:<7} {:>12} {:<20} {:<20} {:>6}\n",
                     entry.key.text(), entry.key.length, loops, window, kv, entry.bytes, created,
                     time_text(entry.use.last_used), entry.use.hits);
}

int show(Options& options) {
  const PoolFolder folder(options.pool);
  folder.require_ours();
  const auto [settings, warning, known] = folder.settings();
  if (!warning.empty()) cli::warn(warning);
  options.output.open();
  const PoolCounts counts = PoolUses(options.pool).read();
  const std::vector<Listed> entries = list(options, folder, counts);
  std::int64_t tokens = 0, bytes = 0;
  bool sound = true;
  for (const Listed& entry : entries) {
    tokens += entry.key.length;
    bytes += entry.bytes;
    sound = sound && entry.snapshot;
  }
  if (options.json) {
    std::vector<JsonObject> records;
    for (const Listed& entry : entries) records.push_back(json_entry(entry));
    JsonObject totals, object;
    totals.add("entries", entries.size()).add("cached_tokens", tokens).add("bytes", bytes);
    if (known) {
      totals.add("capacity", settings.capacity)
          .add("max_bytes", settings.max_bytes)
          .add("policy", name_of(settings.policy));
    } else {
      for (const char* key : {"capacity", "max_bytes", "policy"}) totals.add_json(key, "null");
    }
    totals.add("lookups", counts.lookups())
        .add("hits", counts.hits)
        .add("misses", counts.misses)
        .add("reused", counts.reused);
    options.output.write(object.add_array("entries", records).add("totals", totals).line());
  } else {
    options.output.write(fmt::format("{:<40} {:>7} {:>5} {:>6} {:<7} {:>12} {:<20} {:<20} {:>6}\n",
                                     "KEY", "TOKENS", "LOOPS", "WINDOW", "KV", "BYTES", "CREATED",
                                     "LAST-USED", "HITS"));
    for (const Listed& entry : entries) options.output.write(text_entry(entry));
    options.output.write(fmt::format(
        "entries {} of {}, cached tokens {}, bytes {}{}, policy {}, lookups {}, hits {}, misses "
        "{}, "
        "tokens reused {}\n",
        entries.size(), known ? fmt::format("{}", settings.capacity) : "?", tokens, bytes,
        settings.max_bytes > 0 ? fmt::format(" of {}", settings.max_bytes) : "",
        known ? name_of(settings.policy) : "?", counts.lookups(), counts.hits, counts.misses,
        counts.reused));
  }
  options.output.finish();
  return options.verify && !sound ? cli::kFailed : cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Lists what a prefix pool holds.", "tl-pool-list");
  cli::add_pool(app, options.pool, "The pool's folder")->required();
  app.add_flag("--json", options.json, "Write one JSON object");
  app.add_flag("--verify", options.verify,
               "Check every byte; exit status 1 if anything is damaged");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return show(options); });
}
