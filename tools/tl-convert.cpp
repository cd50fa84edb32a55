// SPDX-License-Identifier: Apache-2.0
// tl-convert: turns a Hugging Face folder into one .tinyloop file and says what that cost. See
// tl-convert(1). Parses, calls the library, prints; families and formats are known in lib/model.
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
#include "streams.h"
#include "tinyloop/backend.h"
#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/token_files.h"
#include "tinyloop/measure/input_weights.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/parse_number.h"
#include "tinyloop/text/tokenizer_json.h"

namespace {

using namespace tinyloop;

struct Options {
  std::string folder, out;
  std::string dtype = "keep", calibrate = "random";
  std::optional<std::string> loop_layers;
  LoopedRange looped;
  bool json = false;
};

// A killed conversion would leave its temporary file, as large as the model: let the library clean
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

void show_progress(std::int64_t done, std::int64_t total) {
  static std::int64_t shown = -1;
  const std::int64_t percent = total == 0 ? 100 : done * 100 / total;
  if (percent == shown) return;
  shown = percent;
  fmt::print(stderr, "\r{:3} %{}", percent, done == total ? "\r\033[K" : "");
  std::fflush(stderr);
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
  std::string errors;
  for (const ConversionError& error : report.errors) {
    errors += fmt::format(
        "{}{{\"class\":{},\"type\":{},\"relative_rms\":{},\"largest\":{},\"elements\":{}}}",
        errors.empty() ? "" : ",", json_string(error.tensor_class), json_string(error.type),
        json_number(error.relative_rms), json_number(error.largest), error.elements);
  }
  const std::string read = calibration
                               ? fmt::format("\"calibration\":{{\"source\":{},\"ids\":{}}},",
                                             json_string(calibration->source), calibration->ids)
                               : "";
  return fmt::format(
      "{{\"family\":{},\"prelude_layers\":{},\"core_layers\":{},\"coda_layers\":{},"
      "\"default_loops\":{},\"trained_loops\":{},\"greatest_loops\":{},\"parameters\":{},"
      "\"source_bytes\":{},\"file_bytes\":{},\"fingerprint\":{},\"bits_per_weight\":{},{}"
      "\"errors\":[{}]}}\n",
      json_string(config.family), config.prelude_layers, config.core_layers, config.coda_layers,
      config.default_loops, config.trained_loops, config.greatest_loops, parameters_of(config),
      report.source_bytes, report.file_bytes, json_string(report.fingerprint),
      json_number(bits_per_weight(report)), read, errors);
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
      "bits         {:.4g} a weight\n"
      "{}\n"
      "{:<12} {:<5} {:>13} {:>13} {:>12}\n",
      config.family, config.prelude_layers, config.core_layers, config.coda_layers,
      config.default_loops, config.trained_loops, config.greatest_loops, parameters_of(config),
      report.source_bytes, report.file_bytes, report.fingerprint, bits_per_weight(report),
      calibration ? fmt::format("calibration  {} ids, {}\n", calibration->ids, calibration->source)
                  : "",
      "tensors", "type", "error, rms", "error, most", "elements");
  for (const ConversionError& error : report.errors) {
    text +=
        fmt::format("{:<12} {:<5} {:>11.4g} % {:>11.4g} % {:>12}\n", error.tensor_class, error.type,
                    100.0 * error.relative_rms, 100.0 * error.largest, error.elements);
  }
  return text;
}

// What the folder's tokenizer.json says. A model is of use without it, so what this program cannot
// read is told and left out.
std::optional<Vocabulary> vocabulary_of(const std::string& folder, const ImportOptions& request) {
  const std::string path = (std::filesystem::path(folder) / "tokenizer.json").string();
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return {};
  const std::int64_t ids = import_config(folder, request.looped).vocab;
  try {
    Vocabulary vocabulary = read_tokenizer_json(path);
    if (vocabulary.size() <= ids) {
      vocabulary.pad(ids);
      return vocabulary;
    }
    cli::warn(fmt::format("{}: has {} tokens, the model {}; it is left out", path,
                          vocabulary.size(), ids));
  } catch (const Error& error) {
    cli::warn(fmt::format("{}; the model gets no vocabulary", error.what()));
  }
  return {};
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
Calibration calibrate(const Options& options, ImportOptions& request) {
  const auto text =
      calibration_text(options.calibrate, import_config(options.folder, request.looped));
  const std::string path = fmt::format("{}.calibration.{}", options.out, ::getpid());
  ImportOptions eight_bits = request;
  eight_bits.type = WeightType::q8;
  import_checkpoint(options.folder, path, eight_bits);
  const Model model = Model::open(path);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // what is mapped stays readable
  const auto ops = make_ops("cpu", {});
  request.input_weights = input_weights(model, *ops, text);
  Calibration calibration{options.calibrate, 0};
  for (const std::vector<TokenId>& ids : text) calibration.ids += std::ssize(ids);
  return calibration;
}

int convert(Options& options, bool progress) {
  std::error_code unreadable;  // import_checkpoint tells
  for (const auto& entry : std::filesystem::directory_iterator(options.folder, unreadable)) {
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
  if (const auto vocabulary = vocabulary_of(options.folder, request)) {
    request.vocabulary = vocabulary->serialize();
  }
  request.progress = [progress](std::int64_t done, std::int64_t total) {
    if (stop_signal != 0) throw Interrupted{};
    if (progress) show_progress(done, total);
  };
  catch_signals();
  try {
    std::optional<Calibration> calibration;
    if (request.type && is_four_bits(*request.type) && options.calibrate != "none") {
      calibration = calibrate(options, request);
    }
    const ImportReport report = import_checkpoint(options.folder, options.out, request);
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
  CLI::App app("Converts a Hugging Face checkpoint to a .tinyloop model file.", "tl-convert");
  app.add_option("HF_DIR", options.folder, "Folder with config.json and safetensors")->required();
  app.add_option("OUT", options.out, "The .tinyloop file to write")->required();
  app.add_option("--dtype", options.dtype, "How to store the weights")
      ->check(CLI::IsMember({"keep", "f32", "f16", "bf16", "q8", "q4", "q4_1"}))
      ->capture_default_str();
  CLI::Option* calibrated =
      app.add_option(
             "--calibrate", options.calibrate,
             "With q4 and q4_1: token ids that the model reads to tell which errors matter; "
             "random: 256 of them; none: no reading")
          ->type_name("FILE|random|none")
          ->capture_default_str();
  CLI::Option* range =
      app.add_option("--loop-layers", options.loop_layers,
                     "Loop the layers FIRST to LAST (from 0, both included) of a plain model")
          ->type_name("FIRST:LAST");
  cli::add_number(app, "--substeps", options.looped.substeps, 1, 64,
                  "Sub-steps of the looped layers, the default loop count")
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
  app.add_flag("--json", options.json, "Report as one JSON object");
  return cli::run(app, argc, argv, [&] {
    if (calibrated->count() > 0 && options.dtype != "q4" && options.dtype != "q4_1") {
      throw Error(ErrorKind::usage, "--calibrate is for --dtype q4 and q4_1");
    }
    const bool quiet = app.get_option("--quiet")->count() > 0;
    return convert(options, ::isatty(STDERR_FILENO) != 0 && !quiet);
  });
}
