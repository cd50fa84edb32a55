// SPDX-License-Identifier: Apache-2.0
// tl-batch: continues many sequences of token ids together, and finishes what was broken off. See
// tl-batch(1). Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "engine/forward.h"
#include "engine/memory_need.h"
#include "files/json_text.h"
#include "files/record_journal.h"
#include "files/token_files.h"
#include "kv/prefix_pool.h"
#include "schedule/generate_batch.h"
#include "schedule/prefix_cache.h"

namespace {

using namespace tinyloop;

// Jobs in sight are held in memory, their ids twice, so there are fewer where a context is long.
constexpr std::int64_t kInSight = 4096, kInSightBytes = std::int64_t{256} << 20;

struct Options {
  cli::ModelOptions model;
  cli::LoopOptions loop;
  cli::ExitOptions exit;
  cli::SamplingFlags sampling;
  cli::StopFlags stop;
  cli::InputOptions input;
  cli::Output output;
  cli::StatsOutput stats;
  cli::Progress progress;
  cli::BatchFlags batch;
  std::string pool;
  std::int64_t pool_min_share = 0;
  bool only_new = false, jsonl = false, unordered = false, timings = false, go_on = false;
};

// Between the input and the records: gives jobs out, takes outcomes in, and knows what lies
// between. Memory is bounded by the jobs in sight.
class Batch {
 public:
  Batch(Options& options, const ModelConfig& config, LineShare share, RecordJournal* journal)
      : options_(options),
        share_(share),
        files_(options.input.files, options.input.token_format(),
               {.vocab = config.vocab, .longest = config.context, .job_keys = true}, share),
        rules_(options.stop.rules(config)),
        journal_(journal),
        next_(share.index + 1) {}

  std::optional<BatchJob> next();
  void done(const BatchOutcome& outcome);
  // Of all runs together, and what earlier ones had done.
  std::int64_t errors() const { return errors_; }
  std::int64_t earlier() const { return earlier_; }

 private:
  struct Job {
    TokenLine line;
    std::uint64_t seed = 0;
    std::uint64_t hash = 0;
  };
  std::string place(const TokenLine& line) const {
    return fmt::format("{}:{}", line.file, line.number);
  }
  std::string head(const TokenLine& line) const;
  std::string record(const Job& job, const BatchOutcome& outcome) const;
  std::string failure(const TokenLine& line, std::string error) const;
  std::string statistics(const Job& job, const BatchOutcome& outcome) const;
  std::uint64_t hash(const Job& job) const;
  void keep(std::int64_t number, const Job& job, bool error, std::string record);

  Options& options_;
  LineShare share_;
  TokenFiles files_;
  StopRules rules_;
  RecordJournal* journal_;
  std::map<std::int64_t, Job> jobs_;             // given out, not yet done
  std::map<std::int64_t, std::string> waiting_;  // records that an older one goes before
  std::int64_t next_;                            // number of the next record to write
  std::int64_t errors_ = 0, earlier_ = 0;
};

std::optional<BatchJob> Batch::next() {
  while (std::optional<TokenLine> line = files_.next()) {
    if (line->error.empty() && line->ids.empty()) {
      line->error = place(*line) + ":1: the sequence is empty";
    }
    Job job{std::move(*line), 0, 0};
    job.seed = job.line.seed.value_or(options_.sampling.seed());
    job.hash = hash(job);
    const std::int64_t number = files_.number();
    if (const auto known = journal_ != nullptr ? journal_->find(number) : std::nullopt) {
      if (known->job != job.hash) {
        throw Error(ErrorKind::usage, "{} has changed since the run that --continue would finish",
                    place(job.line));
      }
      ++earlier_;
      errors_ += known->error;
      continue;
    }
    BatchJob wanted;
    wanted.number = number;
    wanted.prompt = job.line.ids;  // none if the line is wrong: then the job fails in its turn
    wanted.stop = rules_;
    if (job.line.max_tokens) wanted.stop.max_tokens = *job.line.max_tokens;
    if (job.line.stop) wanted.stop.sequences = *job.line.stop;
    wanted.seed = job.seed;
    wanted.priority = job.line.priority;
    wanted.group = job.line.group;
    jobs_.emplace(number, std::move(job));
    return wanted;
  }
  if (journal_ != nullptr && earlier_ < journal_->found_records()) {
    throw Error(ErrorKind::usage,
                "the input ends before line {} of the run that --continue would finish",
                journal_->found_records());
  }
  return std::nullopt;
}

// All that the record depends on but for the options.
std::uint64_t Batch::hash(const Job& job) const {
  const TokenLine& line = job.line;
  std::string text = head(line) + line.error;
  text +=
      fmt::format("\n{}\n{}\n{}\n", format_ids(line.ids), job.seed, line.max_tokens.value_or(-1));
  if (line.stop) {
    for (const std::vector<TokenId>& sequence : *line.stop) text += format_ids(sequence) + '\n';
    text += '.';
  }
  return XXH3_64bits(text.data(), text.size());
}

// {"line":3,"file":"a","id":...,"group":"..."
std::string Batch::head(const TokenLine& line) const {
  std::string text = fmt::format("{{\"line\":{}", line.number);
  if (options_.input.files.size() > 1) text += fmt::format(",\"file\":{}", json_string(line.file));
  if (!line.id_json.empty()) text += fmt::format(",\"id\":{}", line.id_json);
  if (!line.group.empty()) text += fmt::format(",\"group\":{}", json_string(line.group));
  return text;
}

std::string Batch::failure(const TokenLine& line, std::string error) const {
  if (options_.jsonl) return head(line) + fmt::format(",\"error\":{}}}", json_string(error));
  // A file's name may hold anything, a record is one line.
  std::replace_if(
      error.begin(), error.end(),
      [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }, '?');
  return "error: " + error;
}

std::string Batch::record(const Job& job, const BatchOutcome& outcome) const {
  const Answer& answer = outcome.answer;
  std::vector<TokenId> tokens;
  if (!options_.only_new) tokens = job.line.ids;
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  if (!options_.jsonl) return format_ids(tokens);
  std::string text = head(job.line) + fmt::format(",\"tokens\":[{}],\"stop\":\"{}\"{},\"seed\":{}",
                                                  fmt::join(tokens, ","), name_of(answer.stop.kind),
                                                  cli::matched_json(answer.stop), job.seed);
  if (options_.timings) {
    const DecodeStats& stats = answer.stats;
    text += fmt::format(
        ",\"queue_ms\":{:.3f},\"prefill_ms\":{:.3f},\"first_token_ms\":{:.3f},\"decode_ms\":{:.3f},"
        "\"prefilled\":{},\"reused\":{},\"pool_reused\":{}",
        outcome.queue_ms, stats.prefill_ms, stats.first_token_ms, stats.decode_ms, stats.prefilled,
        stats.reused, outcome.pool_reused);
  }
  return text + '}';
}

std::string Batch::statistics(const Job& job, const BatchOutcome& outcome) const {
  const Answer& answer = outcome.answer;
  const DecodeStats& stats = answer.stats;
  std::string text = head(job.line);
  if (!outcome.error.empty()) {
    return text + fmt::format(",\"error\":{}}}\n", json_string(outcome.error));
  }
  text += fmt::format(
      ",\"prompt\":{},\"prefilled\":{},\"reused\":{},\"pool_reused\":{},\"generated\":{},"
      "\"loops_run\":{},\"prompt_loops\":{}",
      job.line.ids.size(), stats.prefilled, stats.reused, outcome.pool_reused, stats.generated,
      stats.loops_run, stats.prompt_loops);
  text += fmt::format(
      ",\"queue_ms\":{:.3f},\"prefill_ms\":{:.3f},\"first_token_ms\":{:.3f},\"decode_ms\":{:.3f}",
      outcome.queue_ms, stats.prefill_ms, stats.first_token_ms, stats.decode_ms);
  return text +
         fmt::format(
             ",\"stop_reason\":{{\"kind\":\"{}\"{}}},\"seed\":{},\"logits_hash\":\"{:016x}\"}}\n",
             name_of(answer.stop.kind), cli::matched_json(answer.stop), job.seed,
             stats.logits_hash);
}

void Batch::done(const BatchOutcome& outcome) {
  const auto found = jobs_.find(outcome.number);
  const Job job = std::move(found->second);
  jobs_.erase(found);
  BatchOutcome told = outcome;
  if (!job.line.error.empty()) {
    told.error = job.line.error;
  } else if (!told.error.empty()) {
    told.error = fmt::format("{}: {}", place(job.line), told.error);
  }
  const bool error = !told.error.empty();
  errors_ += error;
  keep(outcome.number, job, error, error ? failure(job.line, told.error) : record(job, told));
  if (!options_.stats.wanted()) return;
  options_.progress.make_room();
  options_.stats.write(statistics(job, told));
}

void Batch::keep(std::int64_t number, const Job& job, bool error, std::string record) {
  if (journal_ != nullptr) {
    journal_->append({number, job.hash, error, std::move(record)});
    return;
  }
  options_.progress.make_room();  // a terminal may show both
  if (options_.unordered) {
    options_.output.write(record + '\n');
  } else {
    waiting_.emplace(number, std::move(record));
    for (auto front = waiting_.begin(); front != waiting_.end() && front->first == next_;
         front = waiting_.erase(front), next_ += share_.of) {
      options_.output.write(front->second + '\n');
    }
  }
  options_.output.flush();
}

// All that records depend on, by the names of the options.
RecordJournal::Settings settings_of(const Options& options, Forward& forward,
                                    const BatchOptions& batch) {
  const CacheIdentity identity = cache_identity(forward, batch.kv);
  const LineShare share = options.batch.share();
  const SamplingOptions& sampling = batch.sampling;
  const StopRules rules = options.stop.rules(forward.model().config());
  std::string bias, stop, inputs;
  for (const auto& [id, value] : sampling.logit_bias) bias += fmt::format("{}:{},", id, value);
  for (const auto& sequence : rules.sequences) stop += format_ids(sequence) + ',';
  for (const std::string& file : options.input.files) inputs += json_string(file) + ',';
  return {{"--model", identity.model},
          {"arithmetic", identity.arithmetic},
          {"--loops", fmt::format("{}", identity.loops)},
          {"--kv", identity.kv},
          {"--cache-window", fmt::format("{}", identity.window)},
          {"--init-state", identity.initial_state},
          {"--exit", batch.exit.identity()},
          {"--temperature", fmt::format("{}", sampling.temperature)},
          {"--top-k", fmt::format("{}", sampling.top_k)},
          {"--top-p", fmt::format("{}", sampling.top_p)},
          {"--min-p", fmt::format("{}", sampling.min_p)},
          {"--repetition-penalty", fmt::format("{}", sampling.repetition_penalty)},
          {"--presence-penalty", fmt::format("{}", sampling.presence_penalty)},
          {"--frequency-penalty", fmt::format("{}", sampling.frequency_penalty)},
          {"--logit-bias", bias},
          {"--seed", fmt::format("{}", sampling.seed)},
          {"--max-tokens", fmt::format("{}", rules.max_tokens)},
          {"--eos", fmt::format("{}", fmt::join(rules.end_ids, ","))},
          {"--stop", stop},
          {"--input-format", options.input.format.empty() ? "text" : options.input.format},
          {"--jsonl", fmt::format("{}", options.jsonl)},
          {"--only-new", fmt::format("{}", options.only_new)},
          {"--timings", fmt::format("{}", options.timings)},
          {"--unordered", fmt::format("{}", options.unordered)},
          {"--shard", fmt::format("{}/{}", share.index, share.of)},
          {"FILE", inputs}};
}

void check_options(Options& options) {
  if (options.timings && !options.jsonl) {
    throw Error(ErrorKind::usage, "--timings needs --jsonl: a line of ids has no place for them");
  }
  if (options.pool.empty() && options.pool_min_share > 0) {
    throw Error(ErrorKind::usage, "--pool-min-share needs --pool");
  }
  if (options.go_on && !options.output.makes_file()) {
    throw Error(ErrorKind::usage,
                "--continue needs --output FILE: only beside a file is a journal");
  }
  if (options.progress.as_json() && options.stats.name().path == "-") {
    throw Error(ErrorKind::usage,
                "--progress json and --stats exclude each other on one stream: name a file, "
                "--stats=FILE");
  }
  if (options.jsonl && !options.input.format_given()) options.input.format = "jsonl";
  const bool by_key = options.batch.options().grouping == BatchGrouping::key;
  if (by_key && options.input.token_format() != TokenFormat::jsonl) {
    throw Error(ErrorKind::usage, "--group key needs jobs in JSON: lines of ids have no key");
  }
}

std::optional<PrefixPool> open_pool(const Options& options, Forward& forward, KvMode kv) {
  if (options.pool.empty()) return std::nullopt;
  std::optional<PrefixPool> pool(std::in_place, options.pool, cache_identity(forward, kv));
  if (options.pool_min_share == 0) return pool;
  try {
    const std::string warning = pool->prepare();
    if (!warning.empty()) cli::warn(warning);
  } catch (const Error& error) {
    cli::warn(error.what());
    if (!pool->lookup({}, false).usable) pool.reset();
  }
  return pool;
}

void write_summary(Options& options, const BatchOptions& batch, const BatchStats& stats,
                   std::int64_t earlier, double seconds) {
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  options.stats.write(fmt::format(
      "{{\"summary\":{{\"jobs\":{},\"errors\":{},\"earlier\":{},\"prefilled\":{},\"reused\":{},"
      "\"generated\":{},\"seconds\":{:.3f},\"tokens_per_second\":{:.3f},\"lanes\":{},"
      "\"lane_occupancy\":{:.4f},\"passes\":{},\"rows_per_pass\":{:.3f},\"tokens_per_pass\":{:.3f},"
      "\"pool_hits\":{},\"pool_misses\":{},\"peak_resident_bytes\":{}}}}}\n",
      stats.jobs, stats.errors, earlier, stats.prefilled, stats.reused, stats.generated, seconds,
      seconds > 0.0 ? static_cast<double>(stats.generated) / seconds : 0.0, batch.lanes,
      share(stats.lane_passes, stats.passes * batch.lanes), stats.passes,
      share(stats.rows, stats.passes), share(stats.generated, stats.passes), stats.pool_hits,
      stats.pool_misses, cli::peak_resident_bytes()));
}

int run(Options& options) {
  check_options(options);
  BatchOptions batch = options.batch.options();
  const LineShare share = options.batch.share();
  options.input.check_readable();
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  const LoopPlan plan = options.loop.plan(config);
  InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  batch.exit = options.exit.exit_rule();
  batch.exit.check(config);
  batch.sampling = options.sampling.options();
  validate(batch.sampling, config.vocab);
  validate(options.stop.rules(config), config.vocab);

  const bool to_file = options.output.makes_file();
  const std::string path = options.output.name().path, journal_path = path + ".journal";
  const std::vector<std::string> sources = options.input.sources(options.model.path);
  std::vector<cli::OutputName> outputs = {options.output.name(), options.stats.name()};
  if (to_file) outputs.push_back({"the journal of --output", journal_path});
  cli::check_outputs(outputs, sources);
  if (options.go_on && !std::filesystem::exists(journal_path) && std::filesystem::exists(path)) {
    cli::warn(path + " is complete: there is nothing to continue");
    return cli::kDone;
  }

  batch.in_sight = std::clamp(kInSightBytes / (8 * config.context),
                              std::min(kInSight, std::int64_t{4} * batch.lanes), kInSight);
  batch.kv = options.loop.kv_mode();
  batch.hash_logits = options.stats.wanted();
  batch.pool_min_share = options.pool_min_share;
  const std::int64_t chunk = std::min(config.context, options.loop.chunk());
  batch.prefill_chunk = chunk;
  const auto rows = static_cast<std::int32_t>(chunk + batch.lanes);
  const bool rule = batch.exit.kind != ExitRule::Kind::none;
  const auto ops = options.model.make_ops();
  const std::int32_t slots = rows + (rule ? batch.lanes : 0);
  // How long the requests are shows as they are read.
  check_memory(*ops, memory_need(model, plan, batch.kv, rows, slots, kBlock));
  Forward forward(model, *ops, plan, std::move(initial_states), rows, slots);
  if (const auto left = ops->memory_left(); left && options.batch.guesses_memory()) {
    batch.memory = *left / 2;
  }
  std::optional<PrefixPool> pool = open_pool(options, forward, batch.kv);
  if (pool) batch.pool = &*pool;

  options.stats.open(sources);
  std::optional<RecordJournal> journal;
  if (to_file) {
    journal.emplace(journal_path);
    if (journal->found() && !options.go_on) {
      throw Error(ErrorKind::usage,
                  "{}: a run was broken off; finish it with --continue, or remove the file",
                  journal_path);
    }
    for (const auto& [name, value] : journal->settings()) {
      if (name != "--seed" || options.sampling.seed_given()) continue;
      options.sampling.set_seed(static_cast<std::uint64_t>(std::stoull(value)));
    }
    batch.sampling = options.sampling.options();
    if (journal->dropped_bytes() > 0) {
      cli::warn(fmt::format("{}: the last {} bytes are a broken record, which is made anew",
                            journal_path, journal->dropped_bytes()));
    }
  } else {
    options.output.open(sources);
  }

  std::optional<std::int64_t> total;
  if (options.progress.wanted()) {
    if (const auto lines = options.input.count_lines()) total = share.of_lines(*lines);
  }
  Batch work(options, config, share, journal ? &*journal : nullptr);
  cli::Progress::State state;
  state.lanes = batch.lanes;
  state.pool = batch.pool != nullptr;
  state.total = total;
  const auto start = std::chrono::steady_clock::now();
  const auto update = [&](const BatchStats& now) {
    state.done_now = now.jobs;
    state.done = now.jobs + work.earlier();
    state.errors = work.errors();
    state.tokens = now.generated;
    state.busy = now.busy;
    state.pool_hits = now.pool_hits;
    state.pool_misses = now.pool_misses;
  };
  BatchStats stats;
  try {
    if (journal) journal->begin(settings_of(options, forward, batch));
    stats = generate_batch(
        forward, batch, [&] { return work.next(); },
        [&](const BatchOutcome& outcome) { work.done(outcome); },
        [&](const BatchStats& now) {
          update(now);
          options.progress.show(state);
        });
  } catch (...) {
    options.progress.make_room();
    // Nothing is lost with a journal that holds nothing, and the next run need not be told of it.
    if (journal && journal->records() == 0) journal->remove();
    throw;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  update(stats);
  options.progress.finish(state);
  if (!stats.warning.empty()) cli::warn(stats.warning);

  if (journal) {
    journal->sync();
    options.output.open(sources);
    const auto write = [&](std::string_view record) { options.output.write(record); };
    if (options.unordered) {
      journal->copy(write);
    } else {
      journal->copy_in_order(share.index + 1, share.of, write);
    }
  }
  options.output.finish();
  if (journal) journal->remove();
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
  cli::add_pool(app, options.pool, "Begin with what this prefix pool holds");
  cli::add_number(app, "--pool-min-share", options.pool_min_share, 2,
                  std::numeric_limits<std::int64_t>::max(),
                  "Add prefixes to the pool that so many jobs in sight share");
  options.sampling.add(app);
  options.stop.add(app);
  app.add_flag("--continue", options.go_on, "Finish what a run with the same options began");
  app.add_flag("--unordered", options.unordered,
               "Records in the order they are done, not in that of the input");
  app.add_flag("--only-new", options.only_new, "Leave the prompt out of the answer");
  app.add_flag("--jsonl", options.jsonl, "JSON Lines in and out");
  app.add_flag("--timings", options.timings,
               "With --jsonl: times and reuse in each record, so no run gives the same file again");
  options.progress.add(app);
  options.stats.add(app);
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return run(options); });
}
