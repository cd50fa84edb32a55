// SPDX-License-Identifier: Apache-2.0
// tl-batch: continues many sequences of token ids together, and resumes interrupted runs. See
// tl-batch(1). Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "options.h"
#include "progress.h"
#include "records.h"
#include "streams.h"
#include "tinyloop/batch/generate_batch.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/files/record_journal.h"
#include "tinyloop/parse_number.h"
#include "tinyloop/pool/prefix_pool.h"

namespace {

using namespace tinyloop;
using Options = cli::BatchCommand;

// Pending jobs are held in memory, their ids twice, so there are fewer if the context is long.
constexpr std::int64_t kInSight = 4096, kInSightBytes = std::int64_t{256} << 20;

void check_options(Options& options) {
  if (options.timings && !options.jsonl) {
    throw Error(ErrorKind::usage, "--timings needs --jsonl: a line of ids has no place for them");
  }
  if (options.pool.empty() && options.pool_min_share > 0) {
    throw Error(ErrorKind::usage, "--pool-min-share needs --pool");
  }
  const bool merges = options.merge > 0;
  for (const auto& [given, option] : {std::pair(options.go_on, "--continue"),
                                      {options.keep_journal, "--keep-journal"},
                                      {merges, "--merge"}}) {
    if (!given || options.output.makes_file()) continue;
    throw Error(ErrorKind::usage, "{} needs --output FILE: there is a journal only beside a file",
                option);
  }
  if (options.keep_journal || merges) {
    const auto& files = options.input.files;
    if (files.empty() || std::ranges::any_of(files, [](const std::string& file) {
          std::error_code unknown;
          return !std::filesystem::is_regular_file(file, unknown) &&
                 (file == "-" || std::filesystem::exists(file, unknown));
        })) {
      throw Error(ErrorKind::usage, "{} needs input from files: a pipe cannot be read again",
                  merges ? "--merge" : "--keep-journal");
    }
  }
  for (const auto& [given, option] : {std::pair(options.go_on, "--continue"),
                                      {options.keep_journal, "--keep-journal"},
                                      {options.unordered, "--unordered"},
                                      {options.batch.sharded(), "--shard"},
                                      {options.stats.wanted(), "--stats"}}) {
    if (!merges || !given) continue;
    throw Error(ErrorKind::usage,
                "--merge and {} exclude each other: shards are merged line by line", option);
  }
  for (const cli::OutputName& output : {options.stats.name(), options.output.name()}) {
    if (!options.progress.as_json() || !cli::is_standard_error(output)) continue;
    throw Error(ErrorKind::usage,
                "--progress json and {0} exclude each other on one stream: name a file, {0}=FILE",
                output.option);
  }
  if (options.jsonl && !options.input.format_given()) options.input.format = "jsonl";
  const bool by_key = options.batch.options().grouping == BatchGrouping::key;
  if (by_key && options.input.token_format() != TokenFormat::jsonl) {
    throw Error(ErrorKind::usage, "--group key needs jobs in JSON: lines of ids have no key");
  }
}

// Reports problems with the pool now, since a batch may be long; `told`: the warning that look-ups
// would give.
std::optional<PrefixPool> open_pool(const Options& options, Forward& forward, std::string& told) {
  if (options.pool.empty()) return std::nullopt;
  PoolFolder(options.pool).require_ours();
  std::optional<PrefixPool> pool(std::in_place, options.pool, cache_identity(forward));
  if (options.pool_min_share == 0) {
    told = pool->lookup({}, false).warning;
    if (!told.empty()) cli::warn(told);
    return pool;
  }
  told = cli::make_ready(pool);
  return pool;
}

// Refuses a journal of an earlier run unless it is to be resumed; then its seed is kept.
void take_over(const RecordJournal& journal, Options& options) {
  if (journal.found() && !options.go_on) {
    throw Error(
        ErrorKind::usage,
        "{}: the journal of an earlier run; resume that run with --continue, or remove the file",
        journal.path());
  }
  for (const auto& [name, value] : journal.settings()) {
    if (name != "--seed" || options.sampling.seed_given()) continue;
    if (const auto seed = parse_number<std::uint64_t>(value)) options.sampling.set_seed(*seed);
  }
  if (journal.dropped_bytes() > 0) {
    cli::warn(fmt::format("{}: the last {} bytes are an incomplete record, which is computed again",
                          journal.path(), journal.dropped_bytes()));
  }
}

// A journal without records is useless, so the next run need not see it. But beside an older output
// of that name it shows that the output is not this run's.
void leave_journal(RecordJournal& journal, const std::string& output, bool found, bool refused) {
  std::error_code unknown;
  if (journal.records() > 0) return;
  if (std::filesystem::exists(output, unknown) && (found || !refused)) return;
  journal.remove();
}

void copy_records(RecordJournal& journal, LineShare share, Options& options) {
  journal.sync();
  options.output.open();
  const auto write = [&](std::string_view record) { options.output.write(record); };
  if (options.unordered) {
    journal.copy(share.index + 1, share.of, write);
  } else {
    journal.copy_in_order(share.index + 1, share.of, write);
  }
}

void write_summary(Options& options, const BatchOptions& batch, const BatchStats& stats,
                   std::int64_t earlier, double seconds) {
  const auto per = [](std::int64_t part, double whole) {
    return whole > 0.0 ? std::optional(static_cast<double>(part) / whole) : std::nullopt;
  };
  const auto passes = static_cast<double>(stats.passes);
  JsonObject summary;
  summary.add("jobs", stats.jobs)
      .add("errors", stats.errors)
      .add("earlier", earlier)
      .add("prefilled", stats.prefilled)
      .add("reused", stats.reused)
      .add("shared", stats.shared)
      .add("generated", stats.generated)
      .add("seconds", seconds, 3)
      .add("tokens_per_second", stats.generated > 0 ? per(stats.generated, seconds) : std::nullopt,
           3)
      .add("lanes", batch.lanes)
      .add("lane_occupancy", per(stats.lane_passes, passes * batch.lanes), 4)
      .add("passes", stats.passes)
      .add("rows_per_pass", per(stats.rows, passes), 3)
      .add("tokens_per_pass", per(stats.generated, passes), 3)
      .add("pool_hits", stats.pool_hits)
      .add("pool_misses", stats.pool_misses)
      .add("peak_resident_bytes", cli::peak_resident_bytes());
  options.stats.write(JsonObject().add("summary", summary).line());
}

// The journals of the shards --output.0, --output.1, ... record what they answer; nothing is merged
// unless they match this input, this model and these options.
int merge(Options& options, Forward& forward, const BatchOptions& batch) {
  const std::string path = options.output.real_path();
  std::vector<std::unique_ptr<RecordJournal>> journals;
  std::int64_t errors = 0;
  const auto name_of_journal = [&](std::int64_t i) {
    return fmt::format("{}.{}.journal", path, i);
  };
  for (std::int64_t i = 0; i < options.merge; ++i) {
    std::error_code unknown;
    if (std::filesystem::exists(name_of_journal(i), unknown)) continue;
    throw Error(ErrorKind::usage, "{}: does not exist; run the shard with --keep-journal",
                name_of_journal(i));
  }
  for (std::int64_t i = 0; i < options.merge; ++i) {
    const std::string name = name_of_journal(i);
    RecordJournal& journal = *journals.emplace_back(std::make_unique<RecordJournal>(name));
    if (!journal.found()) throw Error(ErrorKind::usage, "{}: the shard has not started", name);
    if (i == 0) {
      options.go_on = true;
      take_over(journal, options);  // its seed, which all must share
    }
    const LineShare share{i, options.merge};
    BatchOptions own = batch;
    own.sampling = options.sampling.options();
    journal.begin(cli::settings_of(options, forward, own, share));
    cli::BatchRecords records(options, forward.model().config(), share, &journal);
    if (const auto missing = records.next()) {
      throw Error(ErrorKind::usage, "{}: line {} of the input is not answered; run the shard again",
                  name, missing->number);
    }
    errors += records.errors();
    journal.rewind();
  }
  options.output.open();
  for (std::int64_t number = 1;; ++number) {
    RecordJournal& journal = *journals[static_cast<std::size_t>((number - 1) % options.merge)];
    const auto known = journal.find(number);
    if (!known) break;
    options.output.write(journal.record(*known) + '\n');
  }
  options.output.finish();
  return errors > 0 ? cli::kPart : cli::kDone;
}

// Where the answers go.
struct Files {
  bool to_file = false;
  std::string path, journal_path;
  bool journal_found = false;
};

Files check_files(Options& options) {
  Files files;
  files.to_file = options.output.makes_file();
  files.path = options.output.name().path;
  files.journal_path = options.output.real_path() + ".journal";
  std::vector<cli::OutputName> outputs = {options.output.name(), options.stats.name()};
  if (files.to_file) outputs.push_back({"the journal of --output", files.journal_path});
  cli::check_outputs(outputs);
  std::error_code unknown;
  files.journal_found =
      files.to_file && options.merge == 0 && std::filesystem::exists(files.journal_path, unknown);
  return files;
}

// The run before has answered everything.
bool is_complete(Options& options, const Files& files, const BatchOptions& batch) {
  std::error_code unknown;
  if (!options.go_on || files.journal_found || !std::filesystem::exists(files.path, unknown)) {
    return false;
  }
  cli::warn(files.path + " is complete; there is nothing to resume");
  options.stats.open(true);
  write_summary(options, batch, {}, 0, 0.0);
  options.stats.finish();
  return true;
}

// What all jobs share; throws for what no job could obey.
BatchOptions batch_options(const Options& options, const ModelConfig& config) {
  BatchOptions batch = options.batch.options();
  batch.exit = options.exit.exit_rule();
  batch.exit.check(config);
  batch.sampling = options.sampling.options();
  validate(batch.sampling, config.vocab);
  validate(options.stop.rules(config), config.vocab);
  batch.in_sight = std::clamp(kInSightBytes / (8 * config.context),
                              std::min(kInSight, std::int64_t{4} * batch.lanes), kInSight);
  batch.hash_logits = options.stats.wanted();
  batch.pool_min_share = options.pool_min_share;
  batch.prefill_chunk = std::min(config.context, options.loop.chunk());
  return batch;
}

// Runs the jobs and shows how far they are.
BatchStats answer_all(Options& options, Forward& forward, const BatchOptions& batch,
                      LineShare share, cli::BatchRecords& work) {
  cli::Progress::State state;
  state.lanes = batch.lanes;
  state.pool = batch.pool != nullptr;
  if (options.progress.wanted()) {
    if (const auto lines = options.input.count_lines()) state.total = share.of_lines(*lines);
  }
  const auto update = [&](const BatchStats& now) {
    state.done_now = now.jobs;
    state.done = now.jobs + work.earlier();
    state.errors = work.errors();
    state.tokens = now.generated;
    state.busy = now.busy;
    state.pool_hits = now.pool_hits;
    state.pool_misses = now.pool_misses;
  };
  const BatchStats stats = generate_batch(
      forward, batch, [&] { return work.next(); },
      [&](const BatchOutcome& outcome) { work.done(outcome); },
      [&](const BatchStats& now) {
        update(now);
        options.progress.show(state);
      });
  update(stats);
  options.progress.finish(state);
  return stats;
}

int run(Options& options) {
  check_options(options);
  const LineShare share = options.batch.share();
  options.input.check_readable();
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  const LoopPlan plan = options.loop.plan(config);
  InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  BatchOptions batch = batch_options(options, config);
  const Files files = check_files(options);
  if (is_complete(options, files, batch)) return cli::kDone;

  const auto rows = static_cast<std::int32_t>(batch.prefill_chunk + batch.lanes);
  const std::int32_t slots = rows + (batch.exit.kind != ExitRule::Kind::none ? batch.lanes : 0);
  const auto ops = options.model.make_ops();
  // The lengths of the requests are not known yet.
  check_memory(*ops, memory_need(model, plan, rows, slots, kBlock));
  Forward forward(model, *ops, plan, std::move(initial_states), rows, slots);
  if (const auto left = ops->memory_left(); left && batch.memory_guessed) {
    batch.memory = std::max<std::size_t>(1, *left / 2);
  }
  if (options.merge > 0) return merge(options, forward, batch);
  std::string told_of_pool;
  std::optional<PrefixPool> pool = open_pool(options, forward, told_of_pool);
  batch.pool = pool ? &*pool : nullptr;
  if (!pool) batch.pool_min_share = 0;

  std::optional<RecordJournal> journal;
  if (files.to_file) {
    journal.emplace(files.journal_path);
    take_over(*journal, options);
    batch.sampling = options.sampling.options();
  } else {
    options.output.open();
  }
  cli::BatchRecords work(options, config, share, journal ? &*journal : nullptr);
  const auto start = std::chrono::steady_clock::now();
  BatchStats stats;
  const auto undo = [&](bool refused) {
    options.progress.make_room();
    if (journal) leave_journal(*journal, files.path, files.journal_found, refused);
  };
  try {
    const bool resumes = journal && journal->records() > 0;
    if (journal) journal->begin(cli::settings_of(options, forward, batch, share));
    options.stats.open(resumes);
    stats = answer_all(options, forward, batch, share, work);
  } catch (const Error& error) {
    undo(error.kind() == ErrorKind::usage);
    throw;
  } catch (...) {
    undo(false);
    throw;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!stats.warning.empty() && stats.warning != told_of_pool) cli::warn(stats.warning);
  if (journal) copy_records(*journal, share, options);
  options.output.finish();
  if (journal && !options.keep_journal) journal->remove();
  write_summary(options, batch, stats, work.earlier(), seconds);
  options.stats.finish();
  return work.errors() > 0 ? cli::kPart : cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Continues many sequences of token ids together.", "tl-batch");
  options.model.add(app);
  options.input.add(app);
  options.loop.add(app);
  options.exit.add(app);
  options.batch.add(app);
  cli::add_pool(app, options.pool, "Start from prefixes in this pool");
  cli::add_number(app, "--pool-min-share", options.pool_min_share, 2,
                  std::numeric_limits<std::int64_t>::max(),
                  "Also add prefixes shared by at least N pending jobs to the pool");
  options.sampling.add(app);
  options.sampling.add_seed_by_line(app);
  options.stop.add(app);
  app.add_flag("--continue", options.go_on, "Resume a run with the same options");
  app.add_flag("--keep-journal", options.keep_journal,
               "Keep the journal beside the complete output, so that --continue and --merge can "
               "check what it answers");
  cli::add_number(app, "--merge", options.merge, 1, 1'000'000,
                  "Compute nothing; write the records of N shards, whose outputs are --output "
                  "followed by .0, .1, ..., in input order");
  app.add_flag("--unordered", options.unordered,
               "Write records in the order they finish, not in input order");
  app.add_flag("--only-new", options.only_new, "Leave the prompt out of the output");
  app.add_flag("--jsonl", options.jsonl, "JSON Lines in and out");
  app.add_flag(
      "--timings", options.timings,
      "With --jsonl: put times and reuse into each record; the file then differs from run to run");
  options.progress.add(app);
  options.stats.add(app);
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return run(options); });
}
