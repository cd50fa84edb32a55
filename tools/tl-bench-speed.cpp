// SPDX-License-Identifier: Apache-2.0
// tl-bench-speed: measures the engine's speed against the machine's limits. See
// tl-bench-speed(1). Parses, calls the library, prints; what is run and how it is timed lives in
// lib/measure.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cli.h"
#include "options.h"
#include "progress.h"
#include "streams.h"
#include "tinyloop/backend.h"
#include "tinyloop/error.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/measure/speed_block.h"
#include "tinyloop/model/model_shape.h"
#include "tinyloop/model/random_model.h"

namespace {

using namespace tinyloop;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kMaxThreads = 4096, kMaxLoops = 4096, kMaxPositions = 1 << 24;

struct Options {
  std::string model, shape;
  cli::DeviceOptions device;
  std::vector<WeightType> types;
  std::vector<StorageMode> kv;
  std::vector<std::string> parts;
  Numbers threads, loops, rows, prefill, context;
  TimingOptions timing;
  std::int64_t array_mb = 0;  // 0: several times the last-level cache
  bool json = false, csv = false;
  cli::Output output;
  const CLI::Option* quiet = nullptr;

  bool wants(std::string_view part) const { return std::ranges::find(parts, part) != parts.end(); }
};

// One weight type and one number of threads, ready to print.
struct Answer {
  std::string device, type;
  std::int64_t threads = 1;
  SpeedBlock block;
};

std::string_view part_of(const SpeedItem& item) {
  switch (item.part) {
    case SpeedPart::prefill:
      return "prefill";
    case SpeedPart::decode:
      return item.growth ? "growth" : "decode";
    case SpeedPart::pass:
      break;
  }
  return "passes";
}

std::size_t array_bytes(const Options& options) {
  constexpr std::size_t kMegabyte = 1'000'000, kMin = 512 * kMegabyte;
  if (options.array_mb > 0) return static_cast<std::size_t>(options.array_mb) * kMegabyte;
  return std::max(kMin, 4 * last_level_cache_bytes());
}

std::vector<SpeedItem> items_of(const Options& options, const Numbers& loops) {
  std::vector<SpeedItem> items;
  const auto add = [&](SpeedPart part, std::int64_t l, StorageMode kv, std::int64_t rows,
                       std::int64_t context, bool growth = false) {
    SpeedItem& item = items.emplace_back();
    item.part = part;
    item.growth = growth;
    item.loops = static_cast<std::int32_t>(l);
    item.kv = kv;
    item.rows = rows;
    item.context = context;
  };
  for (const StorageMode kv : options.kv) {
    for (const std::int64_t l : loops) {
      for (const std::int64_t rows : options.prefill) add(SpeedPart::prefill, l, kv, rows, 0);
      for (const std::int64_t context : options.context) add(SpeedPart::decode, l, kv, 1, context);
    }
    // A pass is one loop, whatever the number of loops.
    for (const std::int64_t rows : options.rows) add(SpeedPart::pass, 1, kv, rows, 0);
    for (const std::int64_t l : loops.size() > 1 ? loops : Numbers{1, 2, 4, 8}) {
      for (const std::int64_t context : options.context) {
        add(SpeedPart::decode, l, kv, 1, context, true);
      }
    }
  }
  std::erase_if(items, [&](const SpeedItem& item) { return !options.wants(part_of(item)); });
  return items;
}

bool is_bytes(Limit limit) { return limit == Limit::memory || limit == Limit::cache; }

// Decode milliseconds by loops and context; the last column compares each number of loops with the
// straight line through the minimum and the maximum, at the longest context.
std::string growth_table(const SpeedBlock& block, StorageMode kv) {
  std::map<std::int64_t, std::map<std::int64_t, double>> ms;  // [loops][context]
  for (const SpeedItem& item : block.items) {
    if (item.growth && item.kv == kv) ms[item.loops][item.context] = item.ms();
  }
  if (ms.empty()) return {};
  std::string text =
      fmt::format("\ngrowth, --kv {}: milliseconds per token\n{:<10}", name_of(kv), "loops");
  for (const auto& [context, value] : ms.begin()->second) {
    text += fmt::format(" {:>14}", fmt::format("context {}", context));
  }
  text += fmt::format(" {:>14}\n", "of a line");
  const auto& [first_loops, first] = *ms.begin();
  const auto& [last_loops, last] = *ms.rbegin();
  for (const auto& [loops, by_context] : ms) {
    text += fmt::format("{:<10}", loops);
    for (const auto& [context, value] : by_context) text += fmt::format(" {:>14.3f}", value);
    const double from = first.rbegin()->second, to = last.rbegin()->second;
    const double along = last_loops == first_loops
                             ? 0.0
                             : static_cast<double>(loops - first_loops) /
                                   static_cast<double>(last_loops - first_loops);
    text += fmt::format(" {:>14.3f}\n", by_context.rbegin()->second / (from + along * (to - from)));
  }
  return text;
}

std::string as_table(const Options& options, const Answer& answer) {
  const SpeedBlock& block = answer.block;
  std::string text =
      fmt::format("{}, {} weights: {:.1f} MB read by one loop and the head\n\n", answer.device,
                  answer.type, static_cast<double>(block.weight_bytes) / 1e6);
  text += fmt::format("{:<8} {:>18} {:>21} {:>8}  {}\n", "limit", "per second", "min..max",
                      "samples", "pattern");
  for (const SpeedLimit& line : block.limits) {
    const char* unit = is_bytes(line.limit) ? "GB" : "G operations";
    text += fmt::format("{:<8} {:>18} {:>21} {:>8}  {}\n", name_of(line.limit),
                        fmt::format("{:.1f} {}", line.per_second() / 1e9, unit),
                        fmt::format("{:.1f}..{:.1f}", line.per_second(line.timing.max()) / 1e9,
                                    line.per_second(line.timing.min()) / 1e9),
                        line.timing.samples.size(), line.pattern);
  }
  if (block.items.empty()) return text;
  text +=
      fmt::format("\n{:<8} {:>5} {:>4} {:>5} {:>7} {:>10} {:>10} {:>21} {:>9} {:>9} {:>6} {:>6}\n",
                  "part", "loops", "kv", "rows", "context", "tokens/s", "ms", "min..max", "MB",
                  "Gop", "limit", "share");
  for (const SpeedItem& item : block.items) {
    text += fmt::format(
        "{:<8} {:>5} {:>4} {:>5} {:>7} {:>10.1f} {:>10.3f} {:>21} {:>9.1f} {:>9.2f} {:>6} {:>4.0f} "
        "%\n",
        part_of(item), item.loops, name_of(item.kv), item.rows, item.context,
        item.rows_per_second(), item.ms(),
        fmt::format("{:.3f}..{:.3f}", item.timing.min(), item.timing.max()),
        static_cast<double>(item.work.bytes()) / 1e6,
        static_cast<double>(item.work.float_ops + item.work.int8_ops) / 1e9, name_of(item.limit),
        100.0 * item.share());
  }
  for (const StorageMode kv : options.kv) text += growth_table(block, kv);
  return text;
}

JsonObject timing_members(const Timing& timing) {
  JsonObject members;
  members.add("ms", timing.median())
      .add("ms_least", timing.min())
      .add("ms_greatest", timing.max())
      .add("samples", timing.samples.size())
      .add("runs", timing.runs);
  return members;
}

std::string as_json(const Answer& answer) {
  const SpeedBlock& block = answer.block;
  std::vector<JsonObject> limits, rows;
  for (const SpeedLimit& line : block.limits) {
    limits.emplace_back()
        .add("limit", name_of(line.limit))
        .add("unit", is_bytes(line.limit) ? "bytes" : "operations")
        .add("per_second", line.per_second())
        .add_all(timing_members(line.timing))
        .add("pattern", line.pattern);
  }
  for (const SpeedItem& item : block.items) {
    rows.emplace_back()
        .add("part", part_of(item))
        .add("loops", item.loops)
        .add("kv", name_of(item.kv))
        .add("rows", item.rows)
        .add("context", item.context)
        .add("tokens_per_second", item.rows_per_second())
        .add_all(timing_members(item.timing))
        .add("weight_bytes", item.work.weight_bytes)
        .add("kv_bytes", item.work.kv_bytes)
        .add("float_ops", item.work.float_ops)
        .add("int8_ops", item.work.int8_ops)
        .add("limit", name_of(item.limit))
        .add("limit_ms", item.limit_ms)
        .add("share", item.share());
  }
  JsonObject object;
  object.add("device", answer.device)
      .add("threads", answer.threads)
      .add("weights", answer.type)
      .add("weight_bytes", block.weight_bytes)
      .add("working_bytes", block.working_bytes)
      .add("cache_bytes", block.cache_bytes)
      .add_array("limits", limits)
      .add_array("rows", rows);
  return object.text();
}

constexpr std::string_view kCsvHeader =
    "part,threads,weights,loops,kv,rows,context,per_second,ms,ms_least,ms_greatest,samples,runs,"
    "weight_bytes,kv_bytes,float_ops,int8_ops,limit,limit_ms,share,pattern\n";

std::string as_csv(const Answer& answer) {
  const SpeedBlock& block = answer.block;
  std::string text;
  const auto timing = [](const Timing& t) {
    return fmt::format("{:.6f},{:.6f},{:.6f},{},{}", t.median(), t.min(), t.max(), t.samples.size(),
                       t.runs);
  };
  for (const SpeedLimit& line : block.limits) {
    text += fmt::format("limit,{},,,,,,{:.3f},{},,,,,{},,,{}\n", answer.threads, line.per_second(),
                        timing(line.timing), name_of(line.limit), line.pattern);
  }
  for (const SpeedItem& item : block.items) {
    text += fmt::format("{},{},{},{},{},{},{},{:.3f},{},{},{},{},{},{},{:.6f},{:.4f},\n",
                        part_of(item), answer.threads, answer.type, item.loops, name_of(item.kv),
                        item.rows, item.context, item.rows_per_second(), timing(item.timing),
                        item.work.weight_bytes, item.work.kv_bytes, item.work.float_ops,
                        item.work.int8_ops, name_of(item.limit), item.limit_ms, item.share());
  }
  return text;
}

// The values in option lists must fit the model; default lists are cut to fit.
void settle(Options& options, const ModelConfig& config) {
  const auto settle_list = [&](Numbers& list, Numbers usual, std::int64_t more) {
    if (!list.empty()) return;
    std::erase_if(usual, [&](std::int64_t n) { return n + more > config.context; });
    list = std::move(usual);
  };
  settle_list(options.prefill, {1, 8, 64, 512}, 0);
  settle_list(options.context, {0, 1024, 4096}, 1);
  settle_list(options.rows, {1, 2, 4, 6, 8, 16}, 0);
  if (options.loops.empty()) options.loops = {config.default_loops};
  for (const std::int64_t loops : options.loops) {
    if (loops > config.max_loops) {
      throw Error(ErrorKind::usage, "--loops: {}, but the model supports at most {}", loops,
                  config.max_loops);
    }
  }
}

JsonObject shape_members(const ModelConfig& c) {
  JsonObject object;
  object.add("dim", c.hidden)
      .add("ffn", c.ffn)
      .add("heads", c.heads)
      .add("kv_heads", c.kv_heads)
      .add("head_dim", c.head_dim)
      .add("prelude", c.prelude_layers)
      .add("layers", c.core_layers)
      .add("coda", c.coda_layers)
      .add("loops", c.default_loops)
      .add("vocab", c.vocab);
  return object;
}

// Refuses an option that applies only to parts that are not measured.
void check_parts(const Options& options) {
  struct Use {
    const char* option;
    std::vector<std::string_view> parts;
  };
  std::vector<std::string_view> looped = {"prefill", "decode"};
  if (options.loops.size() > 1) looped.emplace_back("growth");
  for (const auto& [option, parts] : {Use{"--prefill", {"prefill"}},
                                      {"--context", {"decode", "growth"}},
                                      {"--rows", {"passes"}},
                                      {"--kv", {"prefill", "decode", "passes", "growth"}},
                                      {"--loops", looped}}) {
    if (!cli::on_command_line(option)) continue;
    if (std::ranges::any_of(parts, [&](auto part) { return options.wants(part); })) continue;
    const bool growth = options.wants("growth") && parts == looped;
    throw Error(ErrorKind::usage, "{} is for {}, which --only leaves out{}", option,
                fmt::join(parts, " and "), growth ? "; growth takes two numbers or more" : "");
  }
}

int bench(Options& options) {
  if (options.model.empty() == options.shape.empty()) {
    throw Error(ErrorKind::usage, "give either --model or --shape");
  }
  if (!options.model.empty() && !options.types.empty()) {
    throw Error(ErrorKind::usage, "--dtype needs --shape: a model file has its own types");
  }
  if (options.json && options.csv) {
    throw Error(ErrorKind::usage, "--json and --csv exclude each other");
  }
  check_parts(options);
  if (options.kv.empty()) options.kv = {cli::LoopOptions().storage()};  // by the environment
  const bool random = options.model.empty();
  if (random && options.types.empty()) options.types = {WeightType::f16};
  const std::int64_t cpus = std::max(1u, std::thread::hardware_concurrency());
  const bool cpu = options.device.backend == "cpu";
  if (cpu && options.threads.empty()) options.threads = cpus == 1 ? Numbers{1} : Numbers{1, cpus};
  if (options.device.backend == "cuda" || options.threads.empty()) options.threads = {0};
  const std::size_t array = array_bytes(options);
  if (array < 4 * last_level_cache_bytes()) {
    cli::warn(fmt::format("--array: {} bytes are less than four times the last-level cache of {}",
                          array, last_level_cache_bytes()));
  }

  std::vector<Model> models;  // at most one at a time: they may be large
  ModelConfig config;
  if (random) {
    try {
      config = parse_model_shape(options.shape);
    } catch (const Error& error) {
      throw Error(error.kind(), "--shape: {}", error.what());
    }
  } else {
    models.push_back(Model::open(options.model));
    config = models.front().config();
  }
  settle(options, config);
  options.output.open();
  cli::ProgressLine progress;
  if (options.csv) options.output.write(kCsvHeader);
  if (options.json) {
    JsonObject head;
    head.add("model", random ? std::nullopt : std::optional(options.model))
        .add("shape", shape_members(config))
        .add("last_level_cache_bytes", last_level_cache_bytes())
        .add("array_bytes", array)
        .add("repeats", options.timing.repeats)
        .add("warm_up", options.timing.warm_up)
        .add_json("blocks", "[");  // which follow as they are measured
    std::string text = head.text();
    text.pop_back();
    options.output.write(text);
  }
  const std::size_t types = random ? options.types.size() : 1;
  std::size_t left = types * options.threads.size();
  const auto start = std::chrono::steady_clock::now();
  const double budget = options.timing.seconds;
  std::string separator;
  for (std::size_t t = 0; t < types; ++t) {
    if (random) {
      progress.show("creating random weights");
      models.clear();
      models.push_back(random_model(config, options.types[t], 1));
    }
    for (const std::int64_t threads : options.threads) {
      Answer answer;
      const auto ops = options.device.make_ops(static_cast<int>(threads));
      answer.device = ops->name();
      answer.type = name_of(models.front().layers().front().qkv.type);
      answer.threads = ops->memory_left() ? 1 : threads == 0 ? cpus : threads;  // 1 feeds a GPU
      TimingOptions timing = options.timing;
      if (budget > 0.0) {  // what is left of it, in equal parts
        const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
        timing.seconds = std::max(1e-3, (budget - used.count()) / static_cast<double>(left));
      }
      --left;
      answer.block = measure_speed(
          models.front(), *ops, items_of(options, options.loops), array, timing,
          [&](std::int64_t done, std::int64_t all) {
            progress.show(fmt::format("{}, {}: {} of {}", answer.device, answer.type, done, all));
          });
      progress.clear();
      if (options.json) {
        options.output.write(separator + as_json(answer));
        separator = ",";
      } else if (options.csv) {
        options.output.write(as_csv(answer));
      } else {
        options.output.write(separator + as_table(options, answer));
        separator = "\n";
      }
      options.output.flush();
    }
  }
  if (options.json) options.output.write("]}\n");
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the engine's speed against the machine's limits.", "tl-bench-speed");
  cli::names_source(app.add_option("-m,--model", options.model, "The model, a .tinyloop file"))
      ->type_name("MODEL");
  app.add_option("--shape", options.shape,
                 "Instead of a model, random weights: dim=N,ffn=N,heads=N,layers=N,vocab=N"
                 "[,kv-heads=N,head-dim=N,loops=N,prelude=N,coda=N]")
      ->type_name("KEY=N,...");
  const auto by_name = [](auto parse) {
    return [parse](std::string_view word, const std::string& option) {
      try {
        return parse(word);
      } catch (const Error& error) {
        throw Error(error.kind(), "{}: {}", option, error.what());
      }
    };
  };
  cli::add_list(app, "--dtype", options.types, "TYPE,...",
                "Types of the random weights: f32, f16, bf16, q8, q4, q4_1; default: f16",
                by_name(parse_weight_type));
  cli::add_list(app, "--kv", options.kv, "MODE,...",
                "How keys and values are stored: f32, f16, int8, int4, h16, h8, h4; default: f16",
                by_name(parse_storage_mode));
  cli::add_numbers(app, "--threads", options.threads, 0, kMaxThreads,
                   "Numbers of threads; 0: one per CPU this process may use; default: 1 and 0")
      ->envname("TL_THREADS");
  options.device.add(app);
  options.parts = {"limits", "prefill", "decode", "passes"};
  cli::add_list(app, "--only", options.parts, "PART,...",
                "What to measure: limits, prefill, decode, passes, growth; default: all but growth",
                [](std::string_view word, const std::string& option) {
                  for (const char* part : {"limits", "prefill", "decode", "passes", "growth"}) {
                    if (word == part) return std::string(word);
                  }
                  throw Error(ErrorKind::usage,
                              "{}: '{}' is none of limits, prefill, decode, passes, growth", option,
                              word);
                });
  cli::add_numbers(app, "--loops", options.loops, 1, kMaxLoops,
                   "Numbers of loops; default: the model's own");
  cli::add_numbers(app, "--rows", options.rows, 1, kMaxPositions,
                   "Rows of a pass; default: 1,2,4,6,8,16");
  cli::add_numbers(app, "--prefill", options.prefill, 1, kMaxPositions,
                   "Rows of a prefill; default: 1,8,64,512");
  cli::add_numbers(app, "--context", options.context, 0, kMaxPositions,
                   "Positions before the decoded token; default: 0,1024,4096");
  cli::add_number(app, "--repeats", options.timing.repeats, 1, 1'000'000,
                  "Number of samples of each figure")
      ->default_str("5");
  cli::add_number(app, "--warm-up", options.timing.warm_up, 0, 1'000'000,
                  "Number of untimed runs before the first sample")
      ->default_str("1");
  cli::add_number(app, "--seconds", options.timing.seconds, 1e-3, 1e6,
                  "Start no further round after this many seconds; default: no limit");
  cli::add_number(
      app, "--array", options.array_mb, 1, 1 << 20,
      "Megabytes to read for the memory limit; default: 512, or four times the last-level cache");
  app.add_flag("--json", options.json, "Write JSON instead of a table");
  app.add_flag("--csv", options.csv, "Write comma-separated values instead of a table");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] {
    options.quiet = app.get_option("--quiet");
    return bench(options);
  });
}
