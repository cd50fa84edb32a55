// SPDX-License-Identifier: Apache-2.0
// tl-inspect: describes a model file, the memory it needs, and what its loops do to a prompt. See
// tl-inspect(1). Parses, calls the library, prints; what is computed lives in lib/.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer_json.h"
#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/backend.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/error.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/measure/score.h"
#include "tinyloop/text/vocabulary.h"

namespace {

using namespace tinyloop;

struct Options {
  cli::ModelOptions model;
  cli::LoopOptions loop;
  cli::InputOptions input;
  cli::Output output;
  bool trace = false, json = false, verify = false;
  std::int64_t length = 0;
};

struct Part {
  std::string name;
  std::int64_t parameters = 0, bytes = 0;
};

void count(Part& part, const WeightView& weight) {
  part.parameters += weight.n * weight.k;
  part.bytes += weight.bytes();
}

void count(Part& part, VectorView vector) {
  part.parameters += static_cast<std::int64_t>(vector.size());
  part.bytes += static_cast<std::int64_t>(vector.size_bytes());
}

std::vector<Part> parts_of(const Model& model) {
  const ModelConfig& config = model.config();
  std::vector<Part> parts = {{"embedding"}, {"prelude"}, {"core"}, {"coda"}, {"head"}};
  count(parts[0], model.embedding());
  const auto core_end = config.prelude_layers + config.core_layers;
  for (std::int32_t i = 0; i < config.layers(); ++i) {
    Part& part = parts[i < config.prelude_layers ? 1 : i < core_end ? 2 : 3];
    const LayerWeights& layer = model.layers()[static_cast<std::size_t>(i)];
    for (const LayerMatrix& matrix : kLayerMatrices) count(part, layer.*matrix.weight);
    for (const LayerVector& vector : kLayerVectors) count(part, layer.*vector.weight);
  }
  count(parts[2], model.adapter());
  count(parts[2], model.exit_gate());
  const float exit_bias = model.exit_bias();
  if (config.exit_gate) count(parts[2], VectorView(&exit_bias, 1));
  if (!config.tied_head) count(parts[4], model.head());
  count(parts[4], model.final_norm());
  std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
  return parts;
}

constexpr StorageMode kModes[] = {StorageMode::f32, StorageMode::f16, StorageMode::int8,
                                  StorageMode::int4};

// K/V bytes of `positions` positions over all planes (whole tiles).
std::int64_t cache_bytes(LoopPlan plan, StorageMode mode, std::int64_t positions) {
  plan.storage = mode;
  return (positions + kTile - 1) / kTile * plan.planes() * plan.kv_heads *
         static_cast<std::int64_t>(geometry_of(plan).tile_bytes());
}

std::string human(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.1f} GB", value / 1e9);
}

struct Summary {
  const Model& model;
  LoopPlan plan;
  std::vector<Part> parts;
  std::int64_t length = 0, positions = 0;  // requested; kept within the window
  Part total{"total"};
  std::optional<Vocabulary> vocabulary{};
};

Summary summarise(const Options& options, const Model& model) {
  Summary summary{model, options.loop.plan(model.config()), parts_of(model)};
  const std::int64_t context = model.config().context;
  if (options.length > context) {
    throw Error(ErrorKind::usage, "--length {} is beyond the model's context of {}", options.length,
                context);
  }
  if (!model.vocabulary().empty()) {
    summary.vocabulary = Vocabulary::parse(model.vocabulary(), model.path());
  }
  summary.length = options.length == 0 ? context : options.length;
  summary.positions = summary.length;
  if (summary.plan.window > 0) {
    summary.positions = std::min(summary.length, summary.plan.window + kTile);
  }
  for (const Part& part : summary.parts) {
    summary.total.parameters += part.parameters;
    summary.total.bytes += part.bytes;
  }
  return summary;
}

std::string_view kind_of(const Vocabulary& vocabulary) {
  if (vocabulary.kind == VocabularyKind::unigram) return "Unigram";
  return vocabulary.byte_level ? "byte-level BPE" : "BPE of characters";
}

// The number of ids with a text; the model may have more ids.
std::int64_t texts_of(const Vocabulary& vocabulary) {
  return std::count_if(vocabulary.tokens.begin(), vocabulary.tokens.end(),
                       [](const VocabularyToken& token) { return !token.text.empty(); });
}

std::string as_text(const Vocabulary& vocabulary) {
  const auto id = [](const std::optional<TokenId>& given) {
    return given ? fmt::format("{}", *given) : std::string("none");
  };
  std::string text =
      fmt::format("tokenizer     {}, {} tokens, {} of them added\n", kind_of(vocabulary),
                  texts_of(vocabulary), vocabulary.added.size());
  text += fmt::format("begin, end    {}, {}\n", id(vocabulary.bos), id(vocabulary.eos));
  text += fmt::format("template      {}\n", vocabulary.chat_template.empty()
                                                ? std::string("none")
                                                : excerpt(vocabulary.chat_template));
  return text;
}

JsonObject as_json(const Vocabulary& vocabulary) {
  JsonObject object;
  object.add("kind", kind_of(vocabulary))
      .add("tokens", texts_of(vocabulary))
      .add("added", vocabulary.added.size())
      .add("bos", vocabulary.bos)
      .add("eos", vocabulary.eos)
      .add("chat_template", vocabulary.chat_template);
  return object;
}

std::string as_text(const Summary& summary) {
  const ModelConfig& c = summary.model.config();
  std::string text = fmt::format("file          {}\n", summary.model.path());
  text += fmt::format("family        {}\n", c.family);
  text += fmt::format("fingerprint   {}\n", summary.model.fingerprint());
  text += fmt::format("layers        {} prelude, {} looped, {} coda\n", c.prelude_layers,
                      c.core_layers, c.coda_layers);
  text += fmt::format("loops         {} by default, {} trained, {} at most\n", c.default_loops,
                      c.trained_loops, c.max_loops);
  text += fmt::format("hidden        {}, ffn {}, {} heads of {}, {} kv heads\n", c.hidden, c.ffn,
                      c.heads, c.head_dim, c.kv_heads);
  text += fmt::format("vocabulary    {}\n", c.vocab);
  if (summary.vocabulary) text += as_text(*summary.vocabulary);
  text += fmt::format("context       {} positions\n", c.context);
  text += fmt::format("end ids       {}\n",
                      c.end_ids.empty() ? "none" : fmt::format("{}", fmt::join(c.end_ids, " ")));
  text += fmt::format("exit gate     {}\n", c.exit_gate ? "yes" : "no");
  text += fmt::format(
      "weights       {}\n\n",
      name_of(summary.model.embedding().type) == name_of(summary.model.layers()[0].qkv.type)
          ? std::string(name_of(summary.model.embedding().type))
          : fmt::format("{} layers, {} embedding", name_of(summary.model.layers()[0].qkv.type),
                        name_of(summary.model.embedding().type)));
  text += fmt::format("{:<12} {:>16} {:>16}\n", "part", "parameters", "bytes");
  std::vector<Part> rows = summary.parts;
  rows.push_back(summary.total);
  for (const Part& part : rows) {
    text += fmt::format("{:<12} {:>16} {:>16}  {}\n", part.name, part.parameters, part.bytes,
                        human(part.bytes));
  }
  text += fmt::format("\nkeys and values at {} loops: {} planes\n{:<12} {:>16} {:>16}\n",
                      summary.plan.loops, summary.plan.planes(), "--kv", "bytes per token",
                      fmt::format("{} positions", summary.length));
  for (const StorageMode mode : kModes) {
    text += fmt::format("{:<12} {:>16} {:>16}  {}\n", name_of(mode),
                        cache_bytes(summary.plan, mode, kTile) / kTile,
                        cache_bytes(summary.plan, mode, summary.positions),
                        human(cache_bytes(summary.plan, mode, summary.positions)));
  }
  const std::vector<std::string> gpus = gpu_names();
  text += fmt::format("\nGPU           {}\n", !have_cuda() ? "no CUDA in this build"
                                              : gpus.empty()
                                                  ? "none"
                                                  : fmt::format("{}", fmt::join(gpus, "; ")));
  return text;
}

std::string as_json(const Summary& summary) {
  const ModelConfig& c = summary.model.config();
  JsonObject object, kv;
  object.add("file", summary.model.path())
      .add("family", c.family)
      .add("fingerprint", summary.model.fingerprint())
      .add("prelude_layers", c.prelude_layers)
      .add("core_layers", c.core_layers)
      .add("coda_layers", c.coda_layers)
      .add("default_loops", c.default_loops)
      .add("trained_loops", c.trained_loops)
      .add("greatest_loops", c.max_loops)
      .add("hidden", c.hidden)
      .add("ffn", c.ffn)
      .add("heads", c.heads)
      .add("kv_heads", c.kv_heads)
      .add("head_dim", c.head_dim)
      .add("vocab", c.vocab)
      .add("context", c.context)
      .add_array<TokenId>("end_ids", c.end_ids)
      .add("exit_gate", c.exit_gate);
  if (summary.vocabulary) object.add("tokenizer", as_json(*summary.vocabulary));
  std::vector<JsonObject> parts;
  for (const Part& part : summary.parts) {
    parts.emplace_back()
        .add("part", part.name)
        .add("parameters", part.parameters)
        .add("bytes", part.bytes);
  }
  for (const StorageMode mode : kModes) {
    JsonObject bytes;
    bytes.add("bytes_per_token", cache_bytes(summary.plan, mode, kTile) / kTile)
        .add("bytes", cache_bytes(summary.plan, mode, summary.positions));
    kv.add(name_of(mode), bytes);
  }
  std::vector<std::string> gpus;
  for (const std::string& gpu : gpu_names()) gpus.push_back(json_string(gpu));
  return object.add("layer_type", name_of(summary.model.layers()[0].qkv.type))
      .add("embedding_type", name_of(summary.model.embedding().type))
      .add_array("parts", parts)
      .add("parameters", summary.total.parameters)
      .add("weight_bytes", summary.total.bytes)
      .add("loops", summary.plan.loops)
      .add("planes", summary.plan.planes())
      .add("length", summary.length)
      .add("kv", kv)
      .add("cuda", have_cuda())
      .add_json("gpus", fmt::format("[{}]", fmt::join(gpus, ",")))
      .line();
}

std::string trace_text(const TokenLine& line, bool several_files,
                       const std::vector<LoopTrace>& trace, bool gate) {
  std::string text = several_files ? line.file + ": " : "";
  text += fmt::format("line {}: {} ids, position {}\n", line.number, line.ids.size(),
                      line.ids.size() - 1);
  text += fmt::format("{:>5} {:>8} {:>12} {:>9} {:>9} {:>7}{}\n", "loop", "best id", "probability",
                      "entropy", "change", "beta", gate ? "    gate" : "");
  for (const LoopTrace& step : trace) {
    text += fmt::format("{:>5} {:>8} {:>12.4f} {:>9.4f} {:>9.4f} {:>7}", step.loop, step.best,
                        step.probability, step.entropy, step.relative_change,
                        step.loop == 1 ? "-" : fmt::format("{:.3f}", step.update_ratio));
    if (gate) text += fmt::format(" {:>7.4f}", step.gate);
    text += "\n";
  }
  return text;
}

std::string trace_json(const TokenLine& line, bool several_files,
                       const std::vector<LoopTrace>& trace, bool gate) {
  std::vector<JsonObject> steps;
  for (const LoopTrace& step : trace) {
    JsonObject& object = steps.emplace_back();
    object.add("loop", step.loop)
        .add("best", step.best)
        .add("probability", step.probability)
        .add("entropy", step.entropy)
        .add("relative_change", step.relative_change)
        .add("update_ratio", step.loop == 1 ? std::nullopt : std::optional(step.update_ratio));
    if (gate) object.add("gate", step.gate);
  }
  return cli::record_head(line, several_files)
      .add("ids", line.ids.size())
      .add_array("trace", steps)
      .line();
}

void trace_lines(Options& options, const Model& model) {
  const ModelConfig& config = model.config();
  const LoopPlan plan = options.loop.plan(config);
  const InitialStates initial_states = InitialStates::parse(options.loop.initial_state, config);
  const auto ops = options.model.make_ops();
  for (const TokenLine& line : options.input.read_all({config.vocab, config.context})) {
    const auto rows = static_cast<std::int32_t>(line.ids.size());
    check_memory(*ops, memory_need(model, plan, rows, rows, rows));
    Forward forward(model, *ops, plan, initial_states, rows, rows);
    KvCache cache(*ops, plan);
    std::vector<LoopTrace> trace;
    cli::for_line(line, [&] { trace = trace_loops(forward, cache, line.ids); });
    const bool several = options.input.files.size() > 1;
    options.output.write(options.json ? trace_json(line, several, trace, config.exit_gate)
                                      : trace_text(line, several, trace, config.exit_gate));
    options.output.flush();
  }
}

int inspect(Options& options) {
  if (!options.trace && !options.input.files.empty()) {
    throw Error(ErrorKind::usage, "{}: a prompt is read only with --trace",
                options.input.files.front());
  }
  for (const char* option : {"--kv", "--init-state", "--prefill-chunk", "--input-format",
                             "--threads", "--backend", "--gpu-memory", "--isa"}) {
    if (!options.trace && cli::on_command_line(option)) {
      throw Error(ErrorKind::usage, "{} needs --trace: nothing else computes", option);
    }
  }
  if (options.trace && (options.verify || options.length > 0)) {
    throw Error(ErrorKind::usage, "--trace and {} exclude each other: run them separately",
                options.verify ? "--verify" : "--length");
  }
  const Model model = options.model.open();
  if (options.verify) model.verify();
  options.output.open();
  if (options.trace) {
    trace_lines(options, model);
  } else {
    const Summary summary = summarise(options, model);
    options.output.write(options.json ? as_json(summary) : as_text(summary));
    if (options.verify && !options.json) options.output.write("\nall weights match their hashes\n");
  }
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Describes a model file, and traces what its loops do to a prompt.", "tl-inspect");
  options.model.add(app);
  options.input.add(app);
  options.loop.add(app);
  app.add_flag("--trace", options.trace,
               "Show what each loop does to the last position of each prompt");
  app.add_flag("--json", options.json, "Write JSON instead of a table");
  app.add_flag("--verify", options.verify, "Read all weights and compare them with their hashes");
  cli::add_number(app, "--length", options.length, 1, std::int64_t{1} << 40,
                  "Number of positions for the memory estimate; default: the whole context");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return inspect(options); });
}
