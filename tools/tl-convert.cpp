// SPDX-License-Identifier: Apache-2.0
// tl-convert: turns a Hugging Face folder or a GGUF file into one .tinyloop file and reports the
// loss. See tl-convert(1). Parses, calls the library, prints; families and formats are known in
// lib/model.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli.h"
#include "options.h"
#include "progress.h"
#include "streams.h"
#include "tinyloop/backend.h"
#include "tinyloop/error.h"
#include "tinyloop/files/gguf_file.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/files/token_files.h"
#include "tinyloop/measure/input_weights.h"
#include "tinyloop/model/import_gguf.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/parse_number.h"
#include "tinyloop/text/gguf_vocabulary.h"
#include "tinyloop/text/tokenizer_json.h"

namespace {

using namespace tinyloop;

struct Options {
  std::string source, out;
  std::string dtype = "keep", calibrate = "random";
  std::optional<std::string> loop_layers;
  LoopedRange looped;
  bool json = false;
};

// A killed conversion could leave its temporary file, as large as the model, so the library cleans
// up first.
volatile std::sig_atomic_t stop_signal = 0;
struct Interrupted {};

extern "C" void remember_signal(int number) { stop_signal = number; }

void catch_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(number, remember_signal) == SIG_IGN) std::signal(number, SIG_IGN);  // nohup
  }
}

// "a:b" to the two layers.
void parse_range(std::string_view text, LoopedRange& range) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  if (colon < text.size() && parse_number(text.substr(0, colon), range.first) &&
      parse_number(text.substr(colon + 1), range.last)) {
    return;
  }
  throw Error(ErrorKind::usage, "--loop-layers '{}': must be FIRST:LAST, such as 8:15", text);
}

// What the model read for the weights of four bits.
struct Calibration {
  std::string source;
  std::int64_t ids = 0;
};

// Bits that a weight takes, scales included, the mean over all matrices.
double bits_per_weight(const ImportReport& report) {
  double bits = 0.0, weights = 0.0;
  for (const ConversionError& error : report.errors) {
    const WeightType type = parse_weight_type(error.type);
    const auto bytes = static_cast<double>(packed_data_bytes(type, kPanel, kGroup) +
                                           packed_scale_bytes(type, kPanel, kGroup));
    const auto elements = static_cast<double>(error.elements);
    bits += elements * bytes * 8.0 / static_cast<double>(kPanel * kGroup);
    weights += elements;
  }
  return bits / weights;
}

std::int64_t parameters_of(const ModelConfig& config) {
  std::int64_t parameters = 0;
  for (const ModelTensor& tensor : model_tensors(config)) {
    parameters += tensor.matrix ? tensor.n * tensor.k : tensor.n;
  }
  return parameters;
}

std::string as_json(const ImportReport& report, const std::optional<Calibration>& calibration) {
  const ModelConfig& config = report.config;
  std::vector<JsonObject> errors;
  for (const ConversionError& error : report.errors) {
    errors.emplace_back()
        .add("class", error.tensor_class)
        .add("type", error.type)
        .add("relative_rms", error.relative_rms)
        .add("largest", error.largest)
        .add("elements", error.elements);
  }
  JsonObject object;
  object.add("family", config.family)
      .add("prelude_layers", config.prelude_layers)
      .add("core_layers", config.core_layers)
      .add("coda_layers", config.coda_layers)
      .add("default_loops", config.default_loops)
      .add("trained_loops", config.trained_loops)
      .add("greatest_loops", config.max_loops)
      .add("parameters", parameters_of(config))
      .add("source_bytes", report.source_bytes)
      .add("file_bytes", report.file_bytes)
      .add("fingerprint", report.fingerprint)
      .add("bits_per_weight", bits_per_weight(report));
  if (calibration) {
    JsonObject read;
    read.add("source", calibration->source).add("ids", calibration->ids);
    object.add("calibration", read);
  }
  object.add_array("errors", errors);
  return object.line();
}

std::string as_text(const ImportReport& report, const std::optional<Calibration>& calibration) {
  const ModelConfig& config = report.config;
  std::string text = fmt::format(
      "family       {}\n"
      "layers       {} prelude, {} core, {} coda\n"
      "loops        {} by default, {} trained, {} at most\n"
      "parameters   {}\n"
      "bytes        {} read, {} written\n"
      "fingerprint  {}\n"
      "bits         {:.4g} per weight\n"
      "{}\n"
      "{:<12} {:<5} {:>13} {:>13} {:>12}\n",
      config.family, config.prelude_layers, config.core_layers, config.coda_layers,
      config.default_loops, config.trained_loops, config.max_loops, parameters_of(config),
      report.source_bytes, report.file_bytes, report.fingerprint, bits_per_weight(report),
      calibration ? fmt::format("calibration  {} ids, {}\n", calibration->ids, calibration->source)
                  : "",
      "tensors", "type", "error, rms", "error, max", "elements");
  for (const ConversionError& error : report.errors) {
    text +=
        fmt::format("{:<12} {:<5} {:>11.4g} % {:>11.4g} % {:>12}\n", error.tensor_class, error.type,
                    100.0 * error.relative_rms, 100.0 * error.largest, error.elements);
  }
  return text;
}

// The vocabulary of the folder's tokenizer.json or of the file's metadata. A model is useful
// without it, so one that this program cannot read is left out with a warning.
std::optional<Vocabulary> vocabulary_of(const std::string& source, bool is_folder,
                                        std::int64_t ids) {
  const std::string path =
      is_folder ? (std::filesystem::path(source) / "tokenizer.json").string() : source;
  std::error_code unknown;
  if (is_folder && !std::filesystem::exists(path, unknown)) return {};
  if (!is_folder && !has_gguf_vocabulary(GgufFile::open(path).metadata())) return {};
  try {
    Vocabulary vocabulary = is_folder ? read_tokenizer_json(path) : read_gguf_vocabulary(path);
    if (vocabulary.size() <= ids) {
      vocabulary.pad(ids);
      return vocabulary;
    }
    cli::warn(fmt::format("{}: has {} tokens, but the model {}; it is left out", path,
                          vocabulary.size(), ids));
  } catch (const Error& error) {
    cli::warn(fmt::format("{}; the model gets no vocabulary", error.what()));
  }
  return {};
}

ImportReport import_model(const Options& options, bool is_gguf, const std::string& out,
                          const ImportOptions& request) {
  return is_gguf ? import_gguf(options.source, out, request)
                 : import_checkpoint(options.source, out, request);
}

std::vector<std::vector<TokenId>> calibration_text(const std::string& source,
                                                   const ModelConfig& config) {
  constexpr std::int64_t kRandomIds = 256;
  if (source == "random") return {random_text(config, kRandomIds)};
  std::vector<std::vector<TokenId>> text;
  cli::InputOptions input;
  input.files = {source};
  for (TokenLine& line : input.read_all({config.vocab, config.context})) {
    text.push_back(std::move(line.ids));
  }
  return text;
}

// Has the model, in eight bits, read a text to learn which inputs of its matrices are large.
Calibration calibrate(const Options& options, bool is_gguf, const ModelConfig& config,
                      ImportOptions& request) {
  const auto text = calibration_text(options.calibrate, config);
  const std::string path = fmt::format("{}.calibration.{}", options.out, ::getpid());
  ImportOptions eight_bits = request;
  eight_bits.type = WeightType::q8;
  import_model(options, is_gguf, path, eight_bits);
  const Model model = Model::open(path);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // what is mapped stays readable
  const auto ops = make_ops("cpu", {});
  request.input_weights = input_weights(model, *ops, text);
  Calibration calibration{options.calibrate, 0};
  for (const std::vector<TokenId>& ids : text) calibration.ids += std::ssize(ids);
  return calibration;
}

int convert(Options& options) {
  std::error_code unreadable;  // the import tells
  const bool is_folder = std::filesystem::is_directory(options.source, unreadable);
  if (!is_folder) cli::add_source(options.source);
  for (const auto& entry : std::filesystem::directory_iterator(options.source, unreadable)) {
    cli::add_source(entry.path().string());
  }
  if (options.calibrate != "random" && options.calibrate != "none") {
    cli::add_source(options.calibrate);
  }
  cli::check_outputs({{"OUT", options.out, true}, {"the report", "-"}});
  ImportOptions request;
  if (options.dtype != "keep") request.type = parse_weight_type(options.dtype);
  if (options.loop_layers) {
    parse_range(*options.loop_layers, options.looped);
    request.looped = options.looped;
  }
  // By its name, too: a pointer of Git LFS in its place is to be told as one.
  const bool is_gguf =
      !is_folder && (is_gguf_file(options.source) || options.source.ends_with(".gguf"));
  const ModelConfig config = is_gguf ? import_gguf_config(options.source, request.looped)
                                     : import_config(options.source, request.looped);
  if (const auto vocabulary = vocabulary_of(options.source, is_folder, config.vocab)) {
    request.vocabulary = vocabulary->serialize();
  }
  cli::ProgressLine progress;
  request.progress = [&](std::int64_t done, std::int64_t total) {
    if (stop_signal != 0) throw Interrupted{};
    progress.show(total == 0 ? 100 : done * 100 / total, 100, "%");
    if (done == total) progress.clear();
  };
  catch_signals();
  try {
    std::optional<Calibration> calibration;
    if (request.type && is_four_bits(*request.type) && options.calibrate != "none") {
      calibration = calibrate(options, is_gguf, config, request);
    }
    const ImportReport report = import_model(options, is_gguf, options.out, request);
    for (const std::string& warning : report.warnings) cli::warn(warning);
    cli::print(options.json ? as_json(report, calibration) : as_text(report, calibration));
  } catch (const Interrupted&) {
    std::signal(stop_signal, SIG_DFL);
    std::raise(stop_signal);
  }
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Converts a Hugging Face or GGUF checkpoint to a .tinyloop model file.",
               "tl-convert");
  app.add_option("SOURCE", options.source,
                 "Folder with config.json and safetensors, or a GGUF file")
      ->required();
  app.add_option("OUT", options.out, "The .tinyloop file to write")->required();
  app.add_option("--dtype", options.dtype, "How to store the weights")
      ->check(CLI::IsMember({"keep", "f32", "f16", "bf16", "q8", "q4", "q4_1"}))
      ->capture_default_str();
  CLI::Option* calibrated =
      app.add_option("--calibrate", options.calibrate,
                     "With q4 and q4_1: token ids that the model reads to tell which errors "
                     "matter; random: 256 of them; none: no reading")
          ->type_name("FILE|random|none")
          ->capture_default_str();
  CLI::Option* range =
      app.add_option("--loop-layers", options.loop_layers,
                     "Loop layers FIRST to LAST (from 0, inclusive) of a plain model")
          ->type_name("FIRST:LAST");
  cli::add_number(app, "--substeps", options.looped.substeps, 1, 64,
                  "Number of sub-steps, the model's default number of loops")
      ->needs(range)
      ->capture_default_str();
  cli::add_number(app, "--alpha", options.looped.alpha, 0.0, 1000.0,
                  "Length of the step, shared by the sub-steps")
      ->needs(range)
      ->capture_default_str();
  cli::add_number(app, "--beta", options.looped.beta, -1000.0, 1000.0,
                  "Share of the first sub-step's result in the last state")
      ->needs(range)
      ->capture_default_str();
  app.add_flag("--json", options.json, "Write the report as one JSON object");
  return cli::run(app, argc, argv, [&] {
    if (calibrated->count() > 0 && options.dtype != "q4" && options.dtype != "q4_1") {
      throw Error(ErrorKind::usage, "--calibrate is for --dtype q4 and q4_1");
    }
    return convert(options);
  });
}
