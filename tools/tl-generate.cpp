// SPDX-License-Identifier: Apache-2.0
// tl-generate: continues sequences of token ids with a looped language model. See tl-generate(1).
// Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "answer_json.h"
#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/prompt/prompt.h"
#include "tinyloop/prompt/registration.h"
#include "tinyloop/schedule/decode.h"

namespace {

using namespace tinyloop;

struct Options {
  cli::ModelOptions model;
  cli::LoopOptions loop;
  cli::SpeculationOptions speculation;
  cli::SamplingFlags sampling;
  cli::StopFlags stop;
  cli::InputOptions input;
  cli::Output output;
  cli::StatsOutput stats;
  bool only_new = false, stream = false, jsonl = false;
  std::int64_t samples = 1;
  std::string pool;
  bool pool_add = false, no_crop = false;
  std::string save_state, resume;
};

// The model at work and, with --pool, the pool.
struct Engine {
  Forward& forward;
  std::optional<PrefixPool> pool;
  std::set<std::string> warned;  // each problem with the pool is reported once, not for each line
  cli::SpeculationOptions::Choice choice;
  std::shared_ptr<const Snapshot> resumed;  // --resume
};

// One prompt and the request for it.
struct Job {
  const TokenLine& line;
  std::int64_t sample = 0;
  std::uint64_t seed = 0;
};

JsonObject head(const Options& options, const Job& job) {
  JsonObject object = cli::record_head(job.line, options.input.files.size() > 1);
  if (options.samples > 1) object.add("sample", job.sample);
  return object;
}

std::string record(const Options& options, const Job& job, const Answer& answer) {
  return head(options, job)
      .add_all(cli::answer_members(job.line, answer, options.only_new, job.seed))
      .add("reused", answer.stats.reused)
      .add("prefilled", answer.stats.prefilled)
      .line();
}

// The part of the statistics that depends on the schedule.
JsonObject schedule_members(const cli::SpeculationOptions::Choice& choice,
                            const DecodeStats& stats) {
  JsonObject members;
  members.add("schedule", choice.speculation.name());
  if (!choice.reason.empty()) members.add("auto", choice.reason);
  members.add("drafted", stats.drafted)
      .add("verified", stats.verified)
      .add("accepted", stats.accepted)
      .add("undrafted", stats.undrafted)
      .add("passes", stats.passes)
      .add("rows", stats.rows)
      .add_array<std::int64_t>("exits", stats.exits)
      .add("loops_saved", stats.loops_saved);
  return members;
}

std::string statistics(const Options& options, const Job& job, const Answer& answer,
                       const Forward& forward, const PoolReport& pool,
                       const cli::SpeculationOptions::Choice& choice) {
  const DecodeStats& stats = answer.stats;
  // From the first token on: one token takes no time.
  std::optional<double> per_second;
  if (stats.generated > 1 && stats.decode_ms > 0.0) {
    per_second = 1000.0 * static_cast<double>(stats.generated - 1) / stats.decode_ms;
  }
  JsonObject object = head(options, job);
  object.add("prompt", job.line.ids.size())
      .add("prefilled", stats.prefilled)
      .add("reused", stats.reused)
      .add("generated", stats.generated)
      .add("loops", forward.plan().loops)
      .add("loops_run", stats.loops_run)
      .add("prompt_loops", stats.prompt_loops)
      .add_all(cli::time_members(stats))
      .add("tokens_per_second", per_second, 3)
      .add_all(cli::end_members(answer, job.seed))
      .add_all(schedule_members(choice, stats));
  if (!options.pool.empty()) {
    object.add("pool_hit", name_of(pool.kind))
        .add("pool_reused", pool.reused)
        .add("pool_loops", pool.loops);
  }
  return object.add("working_bytes", forward.working_bytes())
      .add("cache_bytes", stats.cache_bytes)
      .add("peak_resident_bytes", cli::peak_resident_bytes())
      .line();
}

void answer_one(Options& options, Engine& engine, Prompt prompt, const Job& job) {
  Forward& forward = engine.forward;
  const ModelConfig& config = forward.model().config();
  DecodeRequest request;
  request.stop = options.stop.rules(config);
  if (job.line.max_tokens) request.stop.max_tokens = *job.line.max_tokens;
  request.hash_logits = options.stats.wanted();
  request.exit = options.speculation.exit_rule();
  request.shared_planes = options.speculation.shared_planes;
  SamplingOptions sampling = options.sampling.options();
  sampling.seed = job.seed;

  const bool as_ids = !options.jsonl;
  std::string separator;
  const auto write_ids = [&](std::span<const TokenId> ids) {
    if (ids.empty()) return;
    options.output.write(separator + format_ids(ids));
    separator = " ";
  };
  if (as_ids && options.stream) {
    if (!options.only_new) write_ids(job.line.ids);
    options.output.flush();
    request.released = [&](std::span<const TokenId> ids) {
      write_ids(ids);
      options.output.flush();
    };
  }
  const PoolReport pool = prompt.pool;
  const Answer answer = generate(forward, std::move(prompt), Sampler(sampling, config.vocab),
                                 request, engine.choice.speculation);
  if (!as_ids) {
    options.output.write(record(options, job, answer));
  } else {
    if (!options.stream) {
      if (!options.only_new) write_ids(job.line.ids);
      write_ids(answer.tokens);
    }
    options.output.write("\n");
  }
  options.output.flush();
  if (options.stats.wanted()) {
    options.stats.write(statistics(options, job, answer, forward, pool, engine.choice));
  }
}

// An answer of no tokens needs no prompt, unless the prompt is to be kept.
Prompt read(const Options& options, Engine& engine, const TokenLine& line, bool answers) {
  const bool adds = engine.pool && options.pool_add, saves = !options.save_state.empty();
  if (!answers && !adds && !saves) return unread_prompt(engine.forward, line.ids);
  PromptSource source;
  source.pool = engine.pool ? &*engine.pool : nullptr;
  source.crop = !options.no_crop;
  source.snapshot = engine.resumed;
  ReadOptions how;
  how.chunk = options.loop.prefill_chunk;
  how.keep_states = saves;
  how.run_last = adds || saves || options.speculation.exit_rule().kind == ExitRule::Kind::none;
  return read_prompt(engine.forward, line.ids, source, how);
}

// Counts the pool's use for a prompt and adds the prompt, if not null. Warns at most once.
void keep_in_pool(Engine& engine, const PoolReport& report, Prompt* added) {
  std::string trouble = report.warning;
  const std::string uncounted = count_use(*engine.pool, report);
  if (trouble.empty()) trouble = uncounted;
  try {
    if (added != nullptr) publish(*engine.pool, *added);
  } catch (const Error& error) {
    if (trouble.empty()) trouble = error.what();
  }
  if (!trouble.empty() && engine.warned.insert(trouble).second) cli::warn(trouble);
}

// `number`: the line's number, counted from 1 across all files.
void answer_line(Options& options, Engine& engine, const TokenLine& line, std::int64_t number) {
  const std::uint64_t seed = line.seed.value_or(options.sampling.seed_of(number, options.samples));
  const std::int64_t wanted =
      line.max_tokens.value_or(options.stop.rules(engine.forward.model().config()).max_tokens);
  Prompt prompt = read(options, engine, line, wanted > 0);
  const PoolReport report = prompt.pool;
  const bool adds = engine.pool && options.pool_add && report.kind != MatchKind::whole;
  std::optional<Prompt> kept;  // without what is generated
  if (adds || !options.save_state.empty()) {
    kept = prompt.fork();
    kept->states = std::move(prompt.states);
    kept->injected = std::move(prompt.injected);
  }
  // All samples continue one prompt; the first one's statistics count its reading.
  const PromptWork work = prompt.work;
  for (std::int64_t sample = 0; sample < options.samples; ++sample) {
    const bool last = sample + 1 == options.samples;
    Prompt own = last ? std::move(prompt) : prompt.fork();
    own.work = sample == 0 ? work : PromptWork{};
    answer_one(options, engine, std::move(own),
               {line, sample, seed + static_cast<std::uint64_t>(sample)});
  }
  // Files wait until the answer is out.
  if (!options.save_state.empty()) save_prompt(options.save_state, *kept);
  if (engine.pool) keep_in_pool(engine, report, adds ? &*kept : nullptr);
}

// Refuses options that exclude a saved state, by name.
void check_states(Options& options) {
  const std::string name = options.resume.empty() ? "--save-state" : "--resume";
  if (options.resume.empty() && options.save_state.empty()) return;
  if (!cli::on_command_line("--pool")) options.pool.clear();  // a default that does not apply
  const auto exclude = [&](bool given, std::string_view other, std::string_view why) {
    if (given) throw Error(ErrorKind::usage, "{} and {} exclude each other: {}", name, other, why);
  };
  exclude(!options.resume.empty() && !options.save_state.empty(), "--save-state",
          "a resumed prompt is not read again");
  exclude(!options.pool.empty(), "--pool", "pool entries do not hold the states of all rows");
  exclude(options.samples > 1, "--samples", "a state belongs to one answer");
  exclude(options.stream && !options.save_state.empty(), "--stream",
          "a state holds one prompt, a stream any number");
  exclude(!options.input.files.empty() && !options.resume.empty(), "a FILE",
          "the prompt is in the saved state");
  exclude(options.input.format_given() && !options.resume.empty(), "--input-format",
          "the prompt is in the saved state");
}

// Opens the pool, prepared for --pool-add; problems with it do not stop the run.
std::optional<PrefixPool> open_pool(const Options& options, Engine& engine) {
  if (options.pool.empty()) return std::nullopt;
  PoolFolder(options.pool).require_ours();
  std::optional<PrefixPool> pool(std::in_place, options.pool, cache_identity(engine.forward));
  if (!options.pool_add) return pool;
  engine.warned.insert(cli::make_ready(pool));
  return pool;
}

// The positions of the longest request: its prompt and the maximum tokens it may get.
std::int64_t max_positions(const Options& options, const ModelConfig& config,
                           const std::vector<TokenLine>& lines) {
  if (lines.empty()) return config.context;
  std::int64_t longest = 1;
  for (const TokenLine& line : lines) {
    const std::int64_t tokens = line.max_tokens.value_or(options.stop.rules(config).max_tokens);
    const std::int64_t room = config.context - static_cast<std::int64_t>(line.ids.size());
    longest = std::max(longest, config.context - std::max<std::int64_t>(0, room - tokens));
  }
  return longest;
}

int run(Options& options) {
  if (options.stream && options.output.is_file()) {
    throw Error(ErrorKind::usage,
                "--stream and --output exclude each other: an output file appears only when it is "
                "complete");
  }
  if (options.stream && options.jsonl) {
    throw Error(ErrorKind::usage, "--stream and --jsonl exclude each other: a record is one line");
  }
  check_states(options);
  if (options.pool.empty() && (options.pool_add || options.no_crop)) {
    throw Error(ErrorKind::usage, "{} needs --pool", options.pool_add ? "--pool-add" : "--no-crop");
  }
  if (options.jsonl && !options.input.format_given()) options.input.format = "jsonl";
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  const LoopPlan plan = options.loop.plan(config);
  if (stores_inputs(plan.storage) && !(options.resume + options.save_state).empty()) {
    throw Error(ErrorKind::usage,
                "--{} and {} exclude each other: a saved state holds keys and values",
                options.resume.empty() ? "save-state" : "resume", options.loop.storage_setting());
  }
  InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  validate(options.sampling.options(), config.vocab);
  validate(options.stop.rules(config), config.vocab);
  const TokenLimits limits{config.vocab, config.context};
  const auto ops = options.model.make_ops();
  const cli::SpeculationOptions::Choice choice = options.speculation.choose(model, plan, *ops);
  cli::check_outputs(
      {options.output.name(), options.stats.name(), {"--save-state", options.save_state, true}});
  options.output.open();
  options.stats.open();

  std::vector<TokenLine> lines;
  std::int64_t longest = limits.longest;
  std::shared_ptr<const Snapshot> resumed;
  if (!options.resume.empty()) {
    resumed = Snapshot::open(options.resume);
    lines.emplace_back();
    lines.back().file = options.resume;
    lines.back().number = 1;
    lines.back().ids.assign(resumed->ids().begin(), resumed->ids().end());
  } else if (!options.stream) {
    lines = options.input.read_all(limits);
    if (!options.save_state.empty() && lines.size() != 1) {
      throw Error(ErrorKind::usage, "--save-state: there are {} prompts, but a state holds one",
                  lines.size());
    }
  }
  if (!lines.empty()) {
    longest = 1;
    for (const TokenLine& line : lines) {
      longest = std::max(longest, static_cast<std::int64_t>(line.ids.size()));
    }
  }
  const auto chunk = static_cast<std::int32_t>(std::min(longest, options.loop.chunk()));
  const std::int32_t rows = std::max(chunk, choice.speculation.rows(plan.loops));
  const std::int32_t slots =
      std::max(chunk, choice.speculation.slots(plan.loops, options.speculation.exit_rule()));
  check_memory(*ops, memory_need(model, plan, rows, slots, max_positions(options, config, lines)));
  Forward forward(model, *ops, plan, std::move(initial_states), rows, slots);
  Engine engine{forward, std::nullopt, {}, choice, std::move(resumed)};
  engine.pool = open_pool(options, engine);
  std::int64_t number = 0;
  const auto answer = [&](const TokenLine& line) {
    ++number;
    cli::for_line(line, [&] { answer_line(options, engine, line, number); });
  };
  if (options.stream && options.resume.empty()) options.input.for_each(limits, answer);
  for (const TokenLine& line : lines) answer(line);
  options.stats.finish();
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Continues sequences of token ids with a looped language model.", "tl-generate");
  options.model.add(app);
  options.input.add(app);
  options.loop.add(app);
  options.speculation.add(app);
  cli::add_pool(app, options.pool, "Start from prefixes in this pool");
  app.add_flag("--pool-add", options.pool_add, "Add each prompt to the pool");
  app.add_flag("--no-crop", options.no_crop,
               "Use only pool entries that are entirely a prefix of the prompt");
  options.sampling.add(app);
  options.sampling.add_seed_by_line(app);
  options.stop.add(app);
  cli::add_number(app, "--samples", options.samples, 1, 1'000'000,
                  "Number of continuations of each line, with seeds S, S+1, ...");
  app.add_option("--save-state", options.save_state,
                 "Save the state of the one prompt after its last loop, for --resume")
      ->type_name("FILE");
  cli::names_source(app.add_option("--resume", options.resume,
                                   "Resume a saved prompt, running only its missing loops"))
      ->type_name("FILE");
  app.add_flag("--only-new", options.only_new, "Leave the prompt out of the output");
  app.add_flag("--stream", options.stream,
               "Answer each line as it arrives and write each id as soon as it is final");
  app.add_flag("--jsonl", options.jsonl, "JSON Lines in and out");
  options.stats.add(app);
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return run(options); });
}
