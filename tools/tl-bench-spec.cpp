// SPDX-License-Identifier: Apache-2.0
// tl-bench-spec: measures whether speculation pays for a model on this machine. See
// tl-bench-spec(1). Parses, calls the library, prints; what is measured and how lives in lib/.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cli.h"
#include "options.h"
#include "streams.h"
#include "svg_chart.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/measure/speculation_bench.h"
#include "tinyloop/measure/speculation_profile.h"
#include "tinyloop/random.h"

namespace {

using namespace tinyloop;

struct Options {
  cli::ModelOptions model;
  cli::LoopOptions loop;
  cli::SamplingFlags sampling;
  cli::InputOptions input;
  cli::Output output;
  std::vector<std::string> speculations;
  std::int64_t prompts = 8, repeats = 5, max_tokens = 32;
  double budget = 60.0, threshold = 1.3, require = 0.0;
  bool json = false, csv = false;
  std::string clock = "wall", plot, profile;
};

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts);
}

// The given prompts, drawn evenly if there are more than requested; random ids if there are none.
std::vector<std::vector<TokenId>> prompts_of(const Options& options, const ModelConfig& config) {
  const auto wanted = static_cast<std::size_t>(options.prompts);
  std::vector<std::vector<TokenId>> prompts;
  if (options.input.files.empty()) {
    const auto length = std::min<std::int64_t>(16, config.context / 2);
    for (std::uint32_t i = 0; i < wanted; ++i) {
      prompts.emplace_back();
      for (std::int64_t j = 0; j < std::max<std::int64_t>(length, 1); ++j) {
        const auto word = philox(options.sampling.seed(), {i, static_cast<std::uint32_t>(j), 1, 0});
        prompts.back().push_back(
            static_cast<TokenId>(word[0] % static_cast<std::uint32_t>(config.vocab)));
      }
    }
    return prompts;
  }
  const std::vector<TokenLine> lines = options.input.read_all({config.vocab, config.context});
  const std::size_t count = std::min(wanted, lines.size());
  for (std::size_t i = 0; i < count; ++i) prompts.push_back(lines[i * lines.size() / count].ids);
  return prompts;
}

double acceptance(const DecodeStats& stats) {
  return stats.verified > 0
             ? static_cast<double>(stats.accepted) / static_cast<double>(stats.verified)
             : std::numeric_limits<double>::quiet_NaN();
}
// Tokens after the first of each run, which the prompt yields.
std::int64_t decoded(const BenchArm& arm) {
  return arm.totals.generated - static_cast<std::int64_t>(arm.costs.size());
}
double per_pass(const BenchArm& arm, std::int64_t count) {
  return arm.totals.passes > 0 ? static_cast<double>(count) / static_cast<double>(arm.totals.passes)
                               : 0.0;
}

std::string json_numbers(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(json_number(value));
  return fmt::format("[{}]", fmt::join(texts, ","));
}

struct Verdict {
  SpeculationProfile profile;
  std::string line() const {
    return profile.speculate ? fmt::format("verdict: speculate with {}, {:.2f} x",
                                           profile.speculation.name(), profile.speedup)
                             : fmt::format("verdict: plain, {:.2f} x at best with {}",
                                           profile.speedup, profile.speculation.name());
  }
};

JsonObject json_arm(const BenchArm& arm) {
  const DecodeStats& t = arm.totals;
  JsonObject object;
  object.add("schedule", arm.speculation.name())
      .add("ratio", arm.median)
      .add("low", arm.low)
      .add("high", arm.high)
      .add("tokens_per_second", arm.tokens_per_second)
      .add("drafted", t.drafted)
      .add("verified", t.verified)
      .add("accepted", t.accepted)
      .add("undrafted", t.undrafted)
      .add("generated", t.generated)
      .add("acceptance", acceptance(t))
      .add("passes", t.passes)
      .add("tokens_per_pass", per_pass(arm, decoded(arm)))
      .add("rows_per_pass", per_pass(arm, t.rows))
      .add("equal_to_plain", true)
      .add("dropped", arm.dropped)
      .add_json("ratios", json_numbers(arm.ratios))
      .add_json("times", json_numbers(arm.costs));
  return object;
}

std::string json_document(const Options& options, const BenchReport& report, const Verdict& verdict,
                          std::size_t prompts) {
  std::vector<JsonObject> arms;
  for (const BenchArm& arm : report.arms) arms.push_back(json_arm(arm));
  const SpeculationProfile& p = verdict.profile;
  JsonObject object;
  object.add("verdict", p.speculate ? "speculate" : "plain")
      .add("schedule", p.speculation.name())
      .add("ratio", p.speedup)
      .add("threshold", p.threshold)
      .add("repeats", report.repeats)
      .add("prompts", prompts)
      .add("loops", p.loops)
      .add("max_tokens", options.max_tokens)
      .add("clock", options.clock)
      .add("seed", options.sampling.seed())
      .add("machine", p.machine)
      .add("fingerprint", p.fingerprint)
      .add("date", p.date)
      .add_json("update_ratios", json_numbers(report.update_ratios))
      .add("plain", json_arm(report.plain))
      .add_array("arms", arms);
  return object.line();
}

// Empty for NaN.
std::string csv_number(double value) {
  return std::isnan(value) ? "" : fmt::format("{:.4f}", value);
}

std::string csv_table(const BenchReport& report) {
  std::string text =
      "schedule,ratio,low,high,tokens_per_second,drafted,verified,accepted,undrafted,generated,"
      "acceptance,passes,tokens_per_pass,rows_per_pass,dropped\n";
  const auto add = [&](const BenchArm& arm) {
    const DecodeStats& t = arm.totals;
    text += fmt::format("\"{}\",{:.4f},{},{},{:.3f},{},{},{},{},{},{},{},{:.4f},{:.4f},{}\n",
                        arm.speculation.name(), arm.median, csv_number(arm.low),
                        csv_number(arm.high), arm.tokens_per_second, t.drafted, t.verified,
                        t.accepted, t.undrafted, t.generated, csv_number(acceptance(t)), t.passes,
                        per_pass(arm, decoded(arm)), per_pass(arm, t.rows), arm.dropped ? 1 : 0);
  };
  add(report.plain);
  for (const BenchArm& arm : report.arms) add(arm);
  return text;
}

std::string table(const BenchReport& report, const Verdict& verdict) {
  std::string text =
      fmt::format("{:<26} {:>9} {:>9} {:>15} {:>8} {:>12} {:>10}\n", "schedule", "tokens/s",
                  "speed-up", "quartiles", "accepted", "tokens/pass", "rows/pass");
  const auto add = [&](const BenchArm& arm) {
    text += fmt::format(
        "{:<26} {:>9.2f} {:>7.2f} x {:>15} {:>8} {:>12.3f} {:>10.2f}{}\n",
        arm.speculation.kind == Speculation::Kind::plain ? "plain" : arm.speculation.name(),
        arm.tokens_per_second, arm.median,
        std::isnan(arm.low) ? "none" : fmt::format("{:>6.2f} - {:<6.2f}", arm.low, arm.high),
        arm.totals.verified > 0 ? fmt::format("{:.1f} %", 100.0 * acceptance(arm.totals)) : "-",
        per_pass(arm, decoded(arm)), per_pass(arm, arm.totals.rows), arm.dropped ? " dropped" : "");
  };
  add(report.plain);
  for (const BenchArm& arm : report.arms) add(arm);
  text += "\nall streams equal plain decoding\n";
  text += "update ratio by loop:";
  for (std::size_t i = 0; i < report.update_ratios.size(); ++i) {
    text += fmt::format(" {}:{:.3f}", i + 2, report.update_ratios[i]);
  }
  return text + "\n" + verdict.line() + "\n";
}

std::string chart(const BenchReport& report) {
  SvgChart chart{"speed-up over plain decoding", "draft loops d", "x", 1.0, {}};
  std::map<std::string, SvgSeries> series;
  for (const BenchArm& arm : report.arms) {
    const Speculation& s = arm.speculation;
    const std::string name =
        s.kind == Speculation::Kind::block  ? fmt::format("block k={}", s.drafts)
        : s.kind == Speculation::Kind::tree ? fmt::format("tree {} x {}", s.width, s.depth)
        : s.later_draft_loops.empty()
            ? "wavefront"
            : fmt::format("wavefront, again after {}", fmt::join(s.later_draft_loops, ", "));
    series[name].points.emplace_back(s.draft_loops, arm.median);
  }
  for (auto& [name, one] : series) {
    one.name = name;
    std::sort(one.points.begin(), one.points.end());
    chart.series.push_back(one);
  }
  return chart.svg();
}

int bench(Options& options) {
  if (options.json && options.csv) {
    throw Error(ErrorKind::usage, "--json and --csv exclude each other");
  }
  if (options.input.files.empty() && options.input.format_given()) {
    throw Error(ErrorKind::usage, "--input-format needs a FILE: without one the ids are random");
  }
  const Model model = options.model.open();
  const ModelConfig& config = model.config();
  const LoopPlan plan = options.loop.plan(config);
  InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  validate(options.sampling.options(), config.vocab);
  BenchOptions what;
  what.budget_seconds = options.budget;
  what.repeats = options.repeats;
  what.max_tokens = options.max_tokens;
  if (options.clock == "passes") {
    what.cost = [](const DecodeStats& stats) { return static_cast<double>(stats.passes); };
  }
  for (const std::string& name : options.speculations) {
    what.speculations.push_back(cli::parse_speculation("--speculative", name));
  }
  if (what.speculations.empty()) what.speculations = speculation_sweep(plan.loops);
  if (plan.loops == 1) cli::warn("with one loop a draft costs as much as an answer");
  std::int32_t rows = static_cast<std::int32_t>(options.loop.chunk());
  for (const Speculation& speculation : what.speculations) {
    if (speculation.kind == Speculation::Kind::plain) {
      throw Error(ErrorKind::usage, "--speculative: 'off' is the baseline of all others");
    }
    check(speculation, config, plan, ExitRule(), 0);
    rows = std::max(rows, speculation.rows(plan.loops));
  }
  const std::string profile =
      options.profile == "true" ? cli::profile_path(options.model.path) : options.profile;
  cli::check_outputs(
      {options.output.name(), {"--plot", options.plot, true}, {"--save-profile", profile, true}});
  if (!profile.empty() && options.clock == "passes") {
    cli::warn(
        "--save-profile saves a verdict by --clock passes, which is not about time, and "
        "--speculative auto follows it");
  }
  options.output.open();
  const auto ops = options.model.make_ops();
  const std::vector<std::vector<TokenId>> prompts = prompts_of(options, config);
  std::int64_t longest = 1;
  for (const std::vector<TokenId>& prompt : prompts) {
    longest = std::max(longest, static_cast<std::int64_t>(prompt.size()));
  }
  check_memory(*ops,
               memory_need(model, plan, rows, rows,
                           std::min<std::int64_t>(longest + what.max_tokens, config.context)));
  Forward forward(model, *ops, plan, std::move(initial_states), rows, rows);
  const BenchReport report =
      bench_speculation(forward, options.sampling.options(), StopRules(), prompts, what);
  const BenchArm& best = report.best();
  const Verdict verdict{{model.fingerprint(), cli::machine_name(*ops), plan.loops,
                         cache_identity(forward).kv, now(), best.pays(options.threshold),
                         best.speculation, best.median, options.threshold}};
  options.output.write(options.json  ? json_document(options, report, verdict, prompts.size())
                       : options.csv ? csv_table(report)
                                     : table(report, verdict));
  options.output.finish();
  if (options.input.files.empty() && !options.profile.empty()) {
    cli::warn("the prompts were random ids: the verdict may differ for yours; give a FILE");
  }
  if (best.ratios.size() < 2) {
    cli::warn(
        "a single pair of runs has no spread, so the verdict cannot be speculate; increase "
        "--repeats or --prompts");
  }
  if (best.low <= options.threshold && options.threshold < best.high) {
    cli::warn(
        fmt::format("the quartiles of {}, {:.2f} to {:.2f}, lie on both sides of the threshold {}: "
                    "the verdict may differ next time; increase --repeats, --prompts or -n",
                    best.speculation.name(), best.low, best.high, options.threshold));
  }
  if (!options.plot.empty()) {
    AtomicFile file(options.plot);
    file.write(chart(report));
    file.commit();
  }
  if (!options.profile.empty()) {
    verdict.profile.write(profile);
  }
  if (best.median < options.require) {
    throw Error(ErrorKind::device,
                "the best speed-up, {:.2f} x with {}, is below the {} of "
                "--require-speedup",
                best.median, best.speculation.name(), options.require);
  }
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures whether speculation pays for a model on this machine.", "tl-bench-spec");
  options.model.add(app);
  options.input.add(app, "random ids");
  options.loop.add(app);
  options.sampling.add(app);
  app.add_option("--speculative", options.speculations,
                 "A schedule to measure, as for tl-generate; may be repeated; default: a sweep")
      ->type_name("SCHEDULE")
      ->allow_extra_args(false);
  cli::add_number(app, "--prompts", options.prompts, 1, 1000,
                  "Number of prompts, drawn from FILE or random")
      ->default_str("8");
  cli::add_number(app, "--repeats", options.repeats, 1, 1000, "Maximum number of repeats")
      ->default_str("5");
  cli::add_number(app, "-n,--max-tokens", options.max_tokens, 2, 1'000'000,
                  "Number of tokens per run")
      ->default_str("32");
  cli::add_number(app, "--budget", options.budget, 0.0, 1e6,
                  "Start no repeat after this many seconds")
      ->default_str("60");
  cli::add_number(app, "--threshold", options.threshold, 0.0, 1e6,
                  "The verdict is speculate above this speed-up")
      ->default_str("1.3");
  cli::add_number(app, "--require-speedup", options.require, 0.0, 1e6,
                  "Exit with status 1 if the best speed-up is below this");
  app.add_option("--clock", options.clock, "Compare time, or passes as if each cost the same")
      ->check(CLI::IsMember({"wall", "passes"}))
      ->type_name("CLOCK")
      ->default_str("wall");
  app.add_flag("--save-profile", options.profile,
               "Write the verdict beside the model, where --speculative auto finds it, or with "
               "--save-profile=FILE to a file")
      ->type_name("[=FILE]");
  app.add_option("--plot", options.plot, "Write an SVG chart of the speed-ups")->type_name("FILE");
  app.add_flag("--json", options.json, "Write one JSON document instead of the table");
  app.add_flag("--csv", options.csv, "Write comma-separated values instead of the table");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return bench(options); });
}
