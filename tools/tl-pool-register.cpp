// SPDX-License-Identifier: Apache-2.0
// tl-pool-register: computes prefixes and puts them into a prefix pool. See tl-pool-register(1).
// Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli.h"
#include "options.h"
#include "progress.h"
#include "streams.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/prompt/deepen.h"
#include "tinyloop/prompt/registration.h"

namespace {

using namespace tinyloop;

constexpr std::int64_t kNotGiven = -1;

struct Options {
  cli::ModelOptions model;
  cli::LoopOptions loop;
  cli::InputOptions input;
  cli::Output output;
  std::string pool, policy;
  bool resumable = false;
  std::int64_t capacity = kNotGiven, max_bytes = kNotGiven;
};

bool any_wanted(const Options& options) {
  return options.capacity != kNotGiven || options.max_bytes != kNotGiven || !options.policy.empty();
}

// The requested settings, and the pool's for the rest. Changes nothing yet.
PoolSettings wanted_settings(const Options& options, const PoolFolder& folder) {
  PoolSettings settings;
  std::error_code error;  // reported when the folder is created
  if (std::filesystem::exists(folder.path(), error)) {
    const FoundSettings found = folder.settings();
    settings = found.settings;
    if (!found.known && any_wanted(options) && options.capacity == kNotGiven) {
      throw Error(ErrorKind::usage, "{} needs --capacity here: {}",
                  options.policy.empty() ? "--max-bytes" : "--policy", found.warning);
    }
  }
  if (options.capacity != kNotGiven) settings.capacity = options.capacity;
  if (options.max_bytes != kNotGiven) settings.max_bytes = options.max_bytes;
  if (!options.policy.empty()) settings.policy = parse_policy(options.policy);
  return settings;
}

// Throws if a prefix can never fit, whatever is evicted for it.
void check_room(Forward& forward, const std::vector<TokenLine>& lines, const Options& options,
                const PoolSettings& settings) {
  if (settings.max_bytes == 0) return;
  for (const TokenLine& line : lines) {
    const std::int64_t bytes = entry_bytes(forward, std::ssize(line.ids), options.resumable);
    if (bytes <= settings.max_bytes) continue;
    throw Error(ErrorKind::io, "{}:{}: its entry takes {} bytes, but {} {}; nothing was changed",
                line.file, line.number, bytes,
                options.max_bytes != kNotGiven ? "--max-bytes is" : "the pool's --max-bytes is",
                settings.max_bytes);
  }
}

int register_all(Options& options) {
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  const LoopPlan plan = options.loop.plan(config);
  if (options.resumable && stores_inputs(plan.storage)) {
    throw Error(ErrorKind::usage,
                "--resumable needs stored keys and values; {} stores layer inputs",
                options.loop.storage_setting());
  }
  InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  options.output.open();
  const auto ops = options.model.make_ops();
  std::vector<TokenLine> lines = options.input.read_all({config.vocab, config.context});
  std::size_t longest = 1;
  for (const TokenLine& line : lines) longest = std::max(longest, line.ids.size());
  const auto rows =
      static_cast<std::int32_t>(std::min(static_cast<std::int64_t>(longest), options.loop.chunk()));
  check_memory(*ops, memory_need(model, plan, rows, rows, static_cast<std::int64_t>(longest)));
  Forward forward(model, *ops, plan, std::move(initial_states), rows, rows);
  PrefixPool pool(options.pool, cache_identity(forward));
  pool.folder().require_ours();
  const PoolSettings settings = wanted_settings(options, pool.folder());
  // Every possible refusal comes before anything is stored or evicted.
  if (options.resumable) {
    try {
      check_resumable(forward);
    } catch (const Error& error) {
      throw Error(error.kind(), "--resumable: {}", error.what());
    }
  }
  check_room(forward, lines, options, settings);
  const std::string warning =
      pool.prepare(any_wanted(options) ? std::optional(settings) : std::nullopt);
  if (!warning.empty()) cli::warn(warning);

  std::vector<std::vector<TokenId>> prefixes;
  for (TokenLine& line : lines) prefixes.push_back(std::move(line.ids));
  std::vector<Registration> results;
  {
    cli::ProgressLine progress;
    results = register_prefixes(forward, pool, prefixes, options.loop.prefill_chunk,
                                options.resumable, [&](std::size_t done) {
                                  progress.show(static_cast<std::int64_t>(done),
                                                std::ssize(prefixes), "prefixes");
                                });
  }
  std::set<EntryKey> there;
  for (const PoolEntry& entry : pool.folder().entries()) there.insert(entry.key);
  std::set<EntryKey> gone;
  for (const Registration& result : results) {
    options.output.write(fmt::format("{} {}\n", result.key.length, result.key.text()));
    if (there.count(result.key) == 0) gone.insert(result.key);
  }
  if (!gone.empty()) {
    cli::warn(
        fmt::format("{}: {} of these prefixes have already been evicted to make room; see "
                    "--capacity and --max-bytes",
                    options.pool, gone.size()));
  }
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Computes prefixes and puts them into a prefix pool.", "tl-pool-register");
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  cli::add_pool(app, options.pool, "The pool's folder; created if missing")->required();
  options.model.add(app);
  options.input.add(app);
  options.loop.add(app);
  app.add_flag("--resumable", options.resumable,
               "Also store the states that let runs with more loops resume from the entries");
  cli::add_number(app, "--capacity", options.capacity, 1, kMax,
                  "Maximum number of entries, stored in the pool; default: 16");
  cli::add_bytes(app, "--max-bytes", options.max_bytes, 0,
                 "Maximum total bytes of all entries, such as 8G or 500M, stored in the pool; "
                 "default: 0, no limit");
  app.add_option("--policy", options.policy,
                 "Which entry to evict when there are too many, stored in the pool; default: lru")
      ->check(CLI::IsMember({"shortest", "lru", "cost"}))
      ->type_name("POLICY");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return register_all(options); });
}
