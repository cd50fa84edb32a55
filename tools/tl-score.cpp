// SPDX-License-Identifier: Apache-2.0
// tl-score: how likely given sequences of token ids are, at one or more loop counts. See
// tl-score(1). Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer_json.h"
#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/error.h"
#include "tinyloop/files/npy_file.h"
#include "tinyloop/measure/divergence.h"
#include "tinyloop/measure/score.h"

namespace {

using namespace tinyloop;

struct Options {
  cli::ModelOptions model;
  cli::LoopOptions loop;
  cli::InputOptions input;
  cli::Output output;
  std::vector<std::int64_t> loops;
  bool per_token = false, jsonl = false;
  std::string logits_path, states_path, against;
};

struct Result {
  std::int32_t loops;
  Score score;
  std::optional<Agreement> agreement;
};

std::string as_text(const Options& options, const TokenLine& line, const Result& result) {
  const Score& score = result.score;
  // With several files, each line starts with the file's name.
  std::string text = options.input.files.size() > 1 ? line.file + "\t" : "";
  text += fmt::format(
      "{}\t{}\t{}\t{:.9g}\t{}", line.number, result.loops, score.log_probabilities.size(),
      score.sum(),
      score.log_probabilities.empty() ? "-" : fmt::format("{:.9g}", score.perplexity()));
  if (result.agreement) {
    text += fmt::format("\t{:.9g}\t{:.9g}", result.agreement->mean_divergence(),
                        result.agreement->same_best_share());
  }
  if (options.per_token) text += fmt::format("\t{:.9g}", fmt::join(score.log_probabilities, " "));
  return text + "\n";
}

std::string as_json(const Options& options, const TokenLine& line, const Result& result) {
  const Score& score = result.score;
  JsonObject object = cli::record_head(line, options.input.files.size() > 1);
  object.add("loops", result.loops)
      .add("tokens", score.log_probabilities.size())
      .add("sum", score.sum())
      .add("perplexity", score.perplexity());
  if (result.agreement) {
    object.add("divergence", result.agreement->mean_divergence())
        .add("same_best", result.agreement->same_best_share());
  }
  if (options.per_token) {
    object.add_json("log_probabilities",
                    fmt::format("[{}]", fmt::join(score.log_probabilities, ",")));
  }
  return object.line();
}

// What --against names: a model that runs with the same loops and window and with keys and values
// in f32.
struct Reference {
  cli::LoopOptions loop;
  Model model;
  InitialStates initial_states;
  std::vector<LoopPlan> plans;

  Reference(const Options& options, const ModelConfig& config)
      : loop(options.loop),
        model(Model::open(options.against)),
        initial_states(InitialStates::parse(loop.initial_state, model.config())) {
    const std::int32_t vocab = model.config().vocab;
    if (vocab != config.vocab) {
      throw Error(ErrorKind::usage, "--against {}: has {} ids, the model {}", options.against,
                  vocab, config.vocab);
    }
    loop.kv = "f32";
  }
  // Adds the plan beside that of the model's.
  void add(const LoopPlan& plan) {
    loop.loops = plan.loops;
    plans.push_back(loop.plan(model.config()));
  }
};

int score_lines(Options& options) {
  const bool arrays = !options.logits_path.empty() || !options.states_path.empty();
  if (arrays && options.loops.size() > 1) {
    throw Error(ErrorKind::usage, "{} allows only one loop count, but --loops has {}",
                options.logits_path.empty() ? "--states" : "--logits", options.loops.size());
  }
  if (options.jsonl && !options.input.format_given()) options.input.format = "jsonl";
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  std::optional<Reference> reference;
  if (!options.against.empty()) reference.emplace(options, config);
  if (options.loops.empty()) options.loops.push_back(0);
  std::vector<LoopPlan> plans;
  for (const std::int64_t loops : options.loops) {
    options.loop.loops = static_cast<std::int32_t>(loops);
    plans.push_back(options.loop.plan(config));
    if (reference) reference->add(plans.back());
  }
  const InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  cli::check_outputs({options.output.name(),
                      {"--logits", options.logits_path, true},
                      {"--states", options.states_path, true}});
  options.output.open();
  const std::int64_t context =
      reference ? std::min(config.context, reference->model.config().context) : config.context;
  const auto ops = options.model.make_ops();
  const std::vector<TokenLine> lines = options.input.read_all({config.vocab, context});
  std::int64_t longest = 1;
  for (const TokenLine& line : lines) {
    longest = std::max(longest, static_cast<std::int64_t>(line.ids.size()));
  }
  std::int64_t chunk = std::min(longest, options.loop.chunk());
  if (reference) {  // whose logits wait for the model's, a chunk's
    constexpr std::int64_t kMostLogits = std::int64_t{16} << 20;
    chunk = std::clamp(kMostLogits / config.vocab, std::int64_t{1}, chunk);
  }
  const auto rows = static_cast<std::int32_t>(chunk);

  std::optional<NpyWriter> logits, states;
  ScoreHooks hooks;
  if (!options.logits_path.empty()) {
    logits.emplace(options.logits_path, std::vector<std::int64_t>{config.vocab});
    hooks.logits = [&](std::span<const float> row) { logits->append(row); };
  }
  if (!options.states_path.empty()) {
    states.emplace(options.states_path,
                   std::vector<std::int64_t>{plans.front().loops, config.hidden});
    hooks.states = [&](std::span<const float> row) { states->append(row); };
  }
  // Each loop count has its own working memory; keys and values exist for one at a time.
  MemoryNeed need;
  const auto add_need = [&](const Model& used, const LoopPlan& plan) {
    const MemoryNeed one = memory_need(used, plan, rows, rows, longest);
    need = {one.weights, need.working + one.working, std::max(need.cache, one.cache)};
  };
  for (const LoopPlan& plan : plans) add_need(model, plan);
  if (reference) {
    const MemoryNeed own = std::exchange(need, {});
    for (const LoopPlan& plan : reference->plans) add_need(reference->model, plan);
    need = {own.weights + need.weights, own.working + need.working, own.cache + need.cache};
  }
  check_memory(*ops, need);
  std::vector<std::unique_ptr<Forward>> forwards, references;
  for (const LoopPlan& plan : plans) {
    forwards.push_back(std::make_unique<Forward>(model, *ops, plan, initial_states, rows, rows));
  }
  if (reference) {
    for (const LoopPlan& plan : reference->plans) {
      references.push_back(std::make_unique<Forward>(reference->model, *ops, plan,
                                                     reference->initial_states, rows, rows));
    }
  }
  for (const TokenLine& line : lines) {
    for (std::size_t i = 0; i < forwards.size(); ++i) {
      const LoopPlan& plan = forwards[i]->plan();
      KvCache cache(*ops, plan);
      Result result{plan.loops, {}, {}};
      ScoreHooks with_reference = hooks;
      std::optional<KvCache> reference_cache;
      std::optional<ReferenceLogits> wanted;
      if (reference) {
        reference_cache.emplace(*ops, reference->plans[i]);
        wanted.emplace(*references[i], *reference_cache, line.ids, rows);
        result.agreement.emplace();
        with_reference.logits = [&](std::span<const float> row) {
          if (hooks.logits) hooks.logits(row);
          wanted->compare(row, *result.agreement);
        };
      }
      cli::for_line(
          line, [&] { result.score = score(*forwards[i], cache, line.ids, rows, with_reference); });
      options.output.write(options.jsonl ? as_json(options, line, result)
                                         : as_text(options, line, result));
      options.output.flush();
    }
  }
  if (logits) logits->finish();
  if (states) states->finish();
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Scores sequences of token ids: log-likelihood and perplexity.", "tl-score");
  options.model.add(app);
  options.input.add(app);
  options.loop.add_without_loops(app);
  cli::add_numbers(app, "--loops", options.loops, 1, 1 << 20,
                   "Loop counts; default: the model's own");
  app.add_flag("--per-token", options.per_token, "Also write each token's log-probability");
  app.add_flag("--jsonl", options.jsonl, "JSON Lines in and out");
  app.add_option("--logits", options.logits_path,
                 "Write the logits to this .npy file, f32 [positions, vocab]")
      ->type_name("FILE");
  app.add_option("--states", options.states_path,
                 "Write the hidden states to this .npy file, f32 [positions, loops, hidden]")
      ->type_name("FILE");
  app.add_option("--against", options.against,
                 "Also write how far the predictions are from this model's")
      ->each(cli::add_source)
      ->type_name("MODEL");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return score_lines(options); });
}
