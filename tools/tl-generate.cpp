// SPDX-License-Identifier: Apache-2.0
// tl-generate: continues sequences of token ids with a looped language model. See tl-generate(1).
// Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "engine/forward.h"
#include "files/json_text.h"
#include "kv/prefix_pool.h"
#include "schedule/decode.h"
#include "schedule/pooled_prompt.h"
#include "schedule/prefix_cache.h"

namespace {

using namespace tinyloop;

struct Options {
  cli::ModelOptions model;
  cli::LoopOptions loop;
  cli::SamplingFlags sampling;
  cli::StopFlags stop;
  cli::InputOptions input;
  cli::Output output;
  cli::StatsOutput stats;
  bool only_new = false, stream = false, jsonl = false;
  std::int64_t samples = 1;
  std::string pool;
  bool pool_add = false, no_crop = false;
};

// The model at work and, with --pool, the pool.
struct Engine {
  Forward& forward;
  KvMode kv;
  std::optional<PrefixPool> pool;
};

std::string matched_json(const StopReason& stop) {
  return stop.matched.empty() ? "" : fmt::format(",\"matched\":[{}]", fmt::join(stop.matched, ","));
}

// One prompt and what is wanted of it.
struct Job {
  const TokenLine& line;
  std::int64_t sample = 0;
  std::uint64_t seed = 0;
};

// {"line":3,"id":...,"sample":0,"tokens":[...],"stop":"length","seed":1,"reused":0,"prefilled":5}
std::string record(const Options& options, const Job& job, const Answer& answer) {
  std::string text = fmt::format("{{\"line\":{}", job.line.number);
  if (!job.line.id_json.empty()) text += fmt::format(",\"id\":{}", job.line.id_json);
  if (options.samples > 1) text += fmt::format(",\"sample\":{}", job.sample);
  std::vector<TokenId> tokens;
  if (!options.only_new) tokens = job.line.ids;
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  return text +
         fmt::format(
             ",\"tokens\":[{}],\"stop\":\"{}\"{},\"seed\":{},\"reused\":{},\"prefilled\":{}}}\n",
             fmt::join(tokens, ","), name_of(answer.stop.kind), matched_json(answer.stop), job.seed,
             answer.stats.reused, answer.stats.prefilled);
}

std::string statistics(const Options& options, const Job& job, const Answer& answer,
                       const Forward& forward, const PooledPrompt& prompt) {
  const DecodeStats& stats = answer.stats;
  std::string text = fmt::format("{{\"line\":{}", job.line.number);
  if (options.samples > 1) text += fmt::format(",\"sample\":{}", job.sample);
  const PoolReport& pool = prompt.report();
  const double per_second =
      stats.decode_ms > 0.0 ? 1000.0 * static_cast<double>(stats.generated - 1) / stats.decode_ms
                            : 0.0;
  text += fmt::format(
      ",\"prompt\":{},\"prefilled\":{},\"reused\":{},\"generated\":{},\"loops\":{},\"loops_run\":{"
      "}",
      job.line.ids.size(), stats.prefilled, stats.reused, stats.generated, forward.plan().loops,
      stats.loops_run);
  text += fmt::format(
      ",\"prefill_ms\":{:.3f},\"first_token_ms\":{:.3f},\"decode_ms\":{:.3f},\"tokens_per_second\":"
      "{:.3f}",
      stats.prefill_ms, stats.first_token_ms, stats.decode_ms, per_second);
  text += fmt::format(
      ",\"stop_reason\":{{\"kind\":\"{}\"{}}},\"seed\":{},\"logits_hash\":\"{:016x}\"",
      name_of(answer.stop.kind), matched_json(answer.stop), job.seed, stats.logits_hash);
  if (!options.pool.empty()) {
    text += fmt::format(",\"pool_hit\":\"{}\",\"pool_reused\":{}", name_of(pool.kind), pool.reused);
  }
  return text +
         fmt::format(",\"working_bytes\":{},\"cache_bytes\":{},\"peak_resident_bytes\":{}}}\n",
                     forward.working_bytes(), prompt.cache_bytes(), cli::peak_resident_bytes());
}

void answer_one(Options& options, Forward& forward, PooledPrompt& prompt, const Job& job) {
  const ModelConfig& config = forward.model().config();
  DecodeRequest request;
  request.stop = options.stop.rules(config);
  if (job.line.max_tokens) request.stop.max_tokens = *job.line.max_tokens;
  request.hash_logits = options.stats.wanted();
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
  const bool final_answer = job.sample + 1 == options.samples;
  const Answer answer = prompt.generate(Sampler(sampling, config.vocab), request, final_answer);
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
    options.stats.write(statistics(options, job, answer, forward, prompt));
  }
}

void answer_line(Options& options, Engine& engine, const TokenLine& line) {
  const std::uint64_t seed = line.seed.value_or(options.sampling.seed());
  PoolUse use;
  if (engine.pool) use = {&*engine.pool, !options.no_crop, options.pool_add};
  PooledPrompt prompt(engine.forward, engine.kv, line.ids, options.loop.prefill_chunk, use);
  // All samples continue one prompt: it is read once, but for its last id, and its keys and values
  // are shared.
  if (options.samples > 1) prompt.share();
  for (std::int64_t sample = 0; sample < options.samples; ++sample) {
    answer_one(options, engine.forward, prompt,
               {line, sample, seed + static_cast<std::uint64_t>(sample)});
  }
  const PoolReport report = prompt.finish();
  if (!report.warning.empty()) cli::warn(report.warning);
}

// The pool, made ready for --pool-add; what is wrong with it is no reason to stop.
std::optional<PrefixPool> open_pool(const Options& options, Engine& engine) {
  if (options.pool.empty()) return std::nullopt;
  std::optional<PrefixPool> pool(std::in_place, options.pool,
                                 cache_identity(engine.forward, engine.kv));
  if (!options.pool_add) return pool;
  try {
    pool->prepare();
  } catch (const Error& error) {
    cli::warn(error.what());
    pool.reset();
  }
  return pool;
}

int generate(Options& options) {
  if (options.stream && options.output.is_file()) {
    throw Error(
        ErrorKind::usage,
        "--stream and --output exclude each other: the file appears only when it is complete");
  }
  if (options.stream && options.jsonl) {
    throw Error(ErrorKind::usage, "--stream and --jsonl exclude each other: a record is one line");
  }
  if (options.pool.empty() && (options.pool_add || options.no_crop)) {
    throw Error(ErrorKind::usage, "{} needs --pool", options.pool_add ? "--pool-add" : "--no-crop");
  }
  if (options.jsonl && !options.input.format_given()) options.input.format = "jsonl";
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  const LoopPlan plan = options.loop.plan(config);
  InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  validate(options.sampling.options(), config.vocab);
  validate(options.stop.rules(config), config.vocab);
  const TokenLimits limits{config.vocab, config.context};
  const std::vector<std::string> sources = options.input.sources(options.model.path);
  options.output.open(sources);
  options.stats.open(sources);

  const auto ops = options.model.make_ops();
  std::vector<TokenLine> lines;
  std::int64_t longest = limits.longest;
  if (!options.stream) {
    lines = options.input.read_all(limits);
    longest = 1;
    for (const TokenLine& line : lines) {
      longest = std::max(longest, static_cast<std::int64_t>(line.ids.size()));
    }
  }
  const auto rows = static_cast<std::int32_t>(std::min(longest, options.loop.chunk()));
  Forward forward(model, *ops, plan, std::move(initial_states), rows, rows);
  Engine engine{forward, options.loop.kv_mode(), std::nullopt};
  engine.pool = open_pool(options, engine);
  if (options.stream) {
    options.input.for_each(limits,
                           [&](const TokenLine& line) { answer_line(options, engine, line); });
  }
  for (const TokenLine& line : lines) answer_line(options, engine, line);
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
  cli::add_pool(app, options.pool, "Begin with what this prefix pool holds");
  app.add_flag("--pool-add", options.pool_add, "Add each prompt to the pool");
  app.add_flag("--no-crop", options.no_crop,
               "Of the pool only entries that are a prefix of the prompt");
  options.sampling.add(app);
  options.stop.add(app);
  cli::add_number(app, "--samples", options.samples, 1, 1'000'000,
                  "Continuations of each line, with seeds S, S+1, ...");
  app.add_flag("--only-new", options.only_new, "Leave the prompt out of the answer");
  app.add_flag("--stream", options.stream,
               "Answer each line as it arrives and write each id as soon as it is certain");
  app.add_flag("--jsonl", options.jsonl, "JSON Lines in and out");
  options.stats.add(app);
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return generate(options); });
}
