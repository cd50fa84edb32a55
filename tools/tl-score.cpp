// SPDX-License-Identifier: Apache-2.0
// tl-score: how likely given sequences of token ids are, at one or more loop counts. See
// tl-score(1). Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer_json.h"
#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/error.h"
#include "tinyloop/files/npy_file.h"
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
  std::string logits_path, states_path;
};

std::string as_text(const Options& options, const TokenLine& line, std::int32_t loops,
                    const Score& score) {
  // With several files, each line starts with the file's name.
  std::string text = options.input.files.size() > 1 ? line.file + "\t" : "";
  text += fmt::format(
      "{}\t{}\t{}\t{:.9g}\t{}", line.number, loops, score.log_probabilities.size(), score.sum(),
      score.log_probabilities.empty() ? "-" : fmt::format("{:.9g}", score.perplexity()));
  if (options.per_token) text += fmt::format("\t{:.9g}", fmt::join(score.log_probabilities, " "));
  return text + "\n";
}

std::string as_json(const Options& options, const TokenLine& line, std::int32_t loops,
                    const Score& score) {
  JsonObject object = cli::record_head(line, options.input.files.size() > 1);
  object.add("loops", loops)
      .add("tokens", score.log_probabilities.size())
      .add("sum", score.sum())
      .add("perplexity", score.perplexity());
  if (options.per_token) {
    object.add_json("log_probabilities",
                    fmt::format("[{}]", fmt::join(score.log_probabilities, ",")));
  }
  return object.line();
}

int score_lines(Options& options) {
  const bool arrays = !options.logits_path.empty() || !options.states_path.empty();
  if (arrays && options.loops.size() > 1) {
    throw Error(ErrorKind::usage, "{} allows only one loop count, but --loops has {}",
                options.logits_path.empty() ? "--states" : "--logits", options.loops.size());
  }
  if (options.jsonl && !options.input.format_given()) options.input.format = "jsonl";
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  if (options.loops.empty()) options.loops.push_back(0);
  std::vector<LoopPlan> plans;
  for (const std::int64_t loops : options.loops) {
    options.loop.loops = static_cast<std::int32_t>(loops);
    plans.push_back(options.loop.plan(config));
  }
  const InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  cli::check_outputs({options.output.name(),
                      {"--logits", options.logits_path, true},
                      {"--states", options.states_path, true}});
  options.output.open();
  const auto ops = options.model.make_ops();
  const std::vector<TokenLine> lines = options.input.read_all({config.vocab, config.context});
  std::int64_t longest = 1;
  for (const TokenLine& line : lines) {
    longest = std::max(longest, static_cast<std::int64_t>(line.ids.size()));
  }
  const auto rows = static_cast<std::int32_t>(std::min(longest, options.loop.chunk()));

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
  for (const LoopPlan& plan : plans) {
    const MemoryNeed one = memory_need(model, plan, rows, rows, longest);
    need = {one.weights, need.working + one.working, std::max(need.cache, one.cache)};
  }
  check_memory(*ops, need);
  std::vector<std::unique_ptr<Forward>> forwards;
  for (const LoopPlan& plan : plans) {
    forwards.push_back(std::make_unique<Forward>(model, *ops, plan, initial_states, rows, rows));
  }
  for (const TokenLine& line : lines) {
    for (const auto& forward : forwards) {
      const LoopPlan& plan = forward->plan();
      KvCache cache(*ops, plan);
      Score result;
      cli::for_line(line, [&] {
        result = score(*forward, cache, line.ids, options.loop.prefill_chunk, hooks);
      });
      options.output.write(options.jsonl ? as_json(options, line, plan.loops, result)
                                         : as_text(options, line, plan.loops, result));
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
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return score_lines(options); });
}
