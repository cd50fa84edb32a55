// SPDX-License-Identifier: Apache-2.0
// The option groups that several tools share, and numbers as option values.
// Not what one tool alone has.
#include "options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string_view>

#include "cli.h"
#include "streams.h"
#include "tinyloop/backend.h"
#include "tinyloop/error.h"
#include "tinyloop/parse_number.h"

namespace tinyloop::cli {
namespace {

template <typename T>
using Limits = std::numeric_limits<T>;

constexpr std::int64_t kChunk = 512;
constexpr double kTiny = Limits<double>::denorm_min();  // as a lower limit: above 0
constexpr double kHuge = Limits<double>::max();

template <typename T>
std::string describe(T low, T high) {
  const std::string_view kind = std::is_same_v<T, double> ? "a number" : "an integer";
  if (std::is_same_v<T, double> && low == static_cast<T>(kTiny)) {
    return fmt::format("{} above 0{}", kind,
                       high == Limits<T>::max() ? "" : fmt::format(" and at most {}", high));
  }
  if (std::is_same_v<T, double> && low == Limits<T>::lowest() && high == Limits<T>::max()) {
    return std::string(kind);
  }
  if (high == Limits<T>::max() && std::is_signed_v<T>) {
    return fmt::format("{} of at least {}", kind, low);
  }
  return fmt::format("{} from {} to {}", kind, low, high);
}

// "ID:VALUE,ID:VALUE"; -inf is a value, "never".
std::map<TokenId, double> parse_logit_bias(std::string_view text) {
  std::map<TokenId, double> bias;
  for (const std::string_view pair : split_list(text)) {
    const std::size_t colon = pair.find(':');
    const auto id = parse_number<TokenId>(pair.substr(0, colon));
    const auto value = colon == std::string_view::npos
                           ? std::nullopt
                           : parse_number<double>(pair.substr(colon + 1));
    if (!id || *id < 0 || !value || std::isnan(*value) || *value == HUGE_VAL) {
      throw Error(ErrorKind::usage, "--logit-bias: '{}' is not ID:VALUE", pair);
    }
    if (!bias.emplace(*id, *value).second) {
      throw Error(ErrorKind::usage, "--logit-bias: duplicate id {}", *id);
    }
  }
  return bias;
}

// One of the switches TINYLOOP_KV_INT8, TINYLOOP_KV_INT4.
bool switched_on(const char* name) {
  const char* value = std::getenv(name);
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  throw Error(ErrorKind::usage, "environment variable {}: '{}' is not 0 or 1", name, text);
}

std::uint64_t draw_seed() {
  std::random_device device;
  const std::uint64_t high = device();
  return high << 32 | device();
}

}  // namespace

template <typename T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& value,
                        std::type_identity_t<T> low, std::type_identity_t<T> high,
                        const std::string& description) {
  const std::string name = names.substr(names.rfind(',') + 1);
  const auto take = [name, low, high, &value](const std::string& text) {
    const auto number = parse_number<T>(text);
    if (!number || !(*number >= low) || !(*number <= high)) {
      throw Error(ErrorKind::usage, "{}: '{}' is not {}", name, text, describe<T>(low, high));
    }
    value = *number;
  };
  return app.add_option_function<std::string>(names, take, description)
      ->type_name(std::is_same_v<T, double> ? "X" : "N");
}

template CLI::Option* add_number(CLI::App&, const std::string&, std::int32_t&, std::int32_t,
                                 std::int32_t, const std::string&);
template CLI::Option* add_number(CLI::App&, const std::string&, std::int64_t&, std::int64_t,
                                 std::int64_t, const std::string&);
template CLI::Option* add_number(CLI::App&, const std::string&, std::uint64_t&, std::uint64_t,
                                 std::uint64_t, const std::string&);
template CLI::Option* add_number(CLI::App&, const std::string&, double&, double, double,
                                 const std::string&);

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values,
                         std::int64_t low, std::int64_t high, const std::string& description) {
  return add_list(app, name, values, "N,...", description,
                  [low, high](std::string_view word, const std::string& option) {
                    const auto number = parse_number<std::int64_t>(word);
                    if (!number || *number < low || *number > high) {
                      throw Error(ErrorKind::usage, "{}: '{}' is not {} (or several, with commas)",
                                  option, word, describe<std::int64_t>(low, high));
                    }
                    return *number;
                  });
}

std::size_t parse_bytes(std::string_view option, std::string_view text, std::int64_t min) {
  std::string_view digits = text;
  int shift = 0;
  if (!text.empty()) {
    const std::size_t unit = std::string_view("KMG").find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      digits.remove_suffix(1);
    }
  }
  const auto count = parse_number<std::int64_t>(digits);
  if (!count || *count < min || *count > Limits<std::int64_t>::max() >> shift) {
    throw Error(ErrorKind::usage, "{}: '{}' is not a number of bytes such as 800M or 8G", option,
                text);
  }
  return static_cast<std::size_t>(*count) << shift;
}

CLI::Option* add_pool(CLI::App& app, std::string& folder, const std::string& description) {
  return app.add_option("--pool", folder, description)
      ->each(add_source_pool)
      ->type_name("DIR")
      ->envname("TL_POOL");
}

std::string make_ready(std::optional<PrefixPool>& pool) {
  try {
    const std::string warning = pool->prepare();
    if (!warning.empty()) warn(warning);
    return warning;
  } catch (const Error& error) {
    warn(error.what());
    const PoolMatch nothing = pool->lookup({}, false);
    if (!nothing.usable) pool.reset();
    return nothing.warning;
  }
}

void ModelOptions::add(CLI::App& app) {
  names_source(app.add_option("-m,--model", path, "The model, a .tinyloop file"))
      ->type_name("MODEL")
      ->required();
  add_number(app, "--threads", threads, 0, 4096,
             "Number of threads; 0: one per CPU this process may use")
      ->default_str("0")
      ->envname("TL_THREADS");
  device.add(app);
}

Model ModelOptions::open() const { return Model::open(path); }

void DeviceOptions::add(CLI::App& app) {
  app.add_option("--backend", backend,
                 "Device to compute on; auto: a GPU if there is one, else the CPU")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->type_name("DEVICE")
      ->default_str("cpu")
      ->envname("TL_BACKEND");
  add_bytes(app, "--gpu-memory", gpu_memory, 1,
            "Maximum GPU memory to use, such as 8G or 500M; default: all that is free");
  app.add_option("--isa", isa, "Instruction set; default: the best this CPU supports")
      ->check(CLI::IsMember({"portable", "avx2", "avx512"}))
      ->type_name("ISA")
      ->envname("TL_CPU_ISA");
}

std::unique_ptr<Ops> DeviceOptions::make_ops(int threads) const {
  if (backend == "cuda") {
    for (const char* option : {"--isa", "--threads"}) {
      if (on_command_line(option)) {
        throw Error(ErrorKind::usage, "{} and {} exclude each other: the option is for the CPU",
                    option, on_command_line("--backend") ? "--backend cuda" : "TL_BACKEND=cuda");
      }
    }
  } else if (backend == "cpu" && gpu_memory > 0) {
    throw Error(ErrorKind::usage, "--gpu-memory needs --backend cuda or auto");
  }
  return tinyloop::make_ops(backend, {.isa = isa, .threads = threads, .gpu_memory = gpu_memory});
}

void LoopOptions::add(CLI::App& app) {
  add_number(app, "--loops", loops, 1, Limits<std::int32_t>::max(),
             "Number of loops; default: the model's own");
  add_without_loops(app);
}

void LoopOptions::add_without_loops(CLI::App& app) {
  app.add_option("--kv", kv, "How keys and values are stored; default: f16")
      ->check(CLI::IsMember({"f32", "f16", "int8", "int4", "h16", "h8", "h4"}))
      ->type_name("MODE");
  add_number(app, "--cache-window", window, 0, Limits<std::int64_t>::max(),
             "Positions a token attends to, including itself; 0: all")
      ->default_str("0");
  add_number(app, "--prefill-chunk", prefill_chunk, 1, Limits<std::int32_t>::max(),
             fmt::format("Prompt positions computed together; default: {}", kChunk));
  app.add_option("--init-state", initial_state,
                 "Initial state, for models that do not fix it: zero, seed:N or an .npy file; "
                 "default: seed:0")
      ->each([](const std::string& text) {
        if (text != "zero" && !text.starts_with("seed:")) add_source(text);
      })
      ->type_name("STATE");
}

std::int64_t LoopOptions::chunk() const { return prefill_chunk > 0 ? prefill_chunk : kChunk; }

LoopPlan LoopOptions::plan(const ModelConfig& config) const {
  const StorageMode mode = storage();  // report a wrong environment before any work
  LoopPlan plan;
  try {
    plan = make_loop_plan(config, loops, window, mode);
  } catch (const Error& error) {
    throw Error(error.kind(), "--loops: {}", error.what());  // the window has been checked
  }
  if (plan.loops > config.trained_loops) {
    warn(fmt::format("{} loops, but the model was trained with {}", plan.loops,
                     config.trained_loops));
  }
  return plan;
}

StorageMode LoopOptions::storage() const {
  if (!kv.empty()) return parse_storage_mode(kv);
  const char* value = std::getenv("TINYLOOP_KV_H_MODE");
  const std::string hidden =
      value == nullptr || std::string_view(value) == "0" || std::string_view(value) == "off"
          ? ""
          : value;
  if (!hidden.empty() && hidden != "h16" && hidden != "h8" && hidden != "h4") {
    throw Error(ErrorKind::usage,
                "environment variable TINYLOOP_KV_H_MODE: '{}' is not h16, h8, h4 or off", hidden);
  }
  const bool int8 = switched_on("TINYLOOP_KV_INT8"), int4 = switched_on("TINYLOOP_KV_INT4");
  if (int8 + int4 + !hidden.empty() > 1) {
    throw Error(ErrorKind::usage, "{} and {} are both set; only one may be",
                int8 ? "TINYLOOP_KV_INT8" : "TINYLOOP_KV_INT4",
                int8 && int4 ? "TINYLOOP_KV_INT4" : "TINYLOOP_KV_H_MODE");
  }
  if (!hidden.empty()) return parse_storage_mode(hidden);
  return int8 ? StorageMode::int8 : int4 ? StorageMode::int4 : StorageMode::f16;
}

std::string LoopOptions::storage_setting() const {
  return kv.empty() ? fmt::format("TINYLOOP_KV_H_MODE={}", name_of(storage())) : "--kv " + kv;
}

void SamplingFlags::add(CLI::App& app) {
  add_number(app, "--temperature", options_.temperature, 0.0, kHuge,
             "Sampling temperature; 0: always the most probable token")
      ->default_str("1");
  add_number(app, "--top-k", options_.top_k, 0, Limits<std::int64_t>::max(),
             "Sample only from the N most probable tokens; 0: off")
      ->default_str("50");
  add_number(
      app, "--top-p", options_.top_p, kTiny, 1.0,
      "Sample only from the most probable tokens that together reach this probability; 1: off")
      ->default_str("1");
  add_number(
      app, "--min-p", options_.min_p, 0.0, 1.0,
      "Sample only from tokens with at least this fraction of the best one's probability; 0: off")
      ->default_str("0");
  add_number(app, "--repetition-penalty", options_.repetition_penalty, kTiny, kHuge,
             "Divide positive logits of earlier tokens by this, multiply negative ones; 1: off")
      ->default_str("1");
  add_number(app, "--presence-penalty", options_.presence_penalty, -kHuge, kHuge,
             "Subtract this from the logits of generated tokens")
      ->default_str("0");
  add_number(app, "--frequency-penalty", options_.frequency_penalty, -kHuge, kHuge,
             "Subtract this for each time a token was generated")
      ->default_str("0");
  app.add_option_function<std::string>(
         "--logit-bias",
         [this](const std::string& text) { options_.logit_bias = parse_logit_bias(text); },
         "Add to the logits of these tokens; -inf bans one")
      ->type_name("ID:X,...");
  options_.seed = draw_seed();
  add_number(app, "--seed", options_.seed, 0, Limits<std::uint64_t>::max(),
             "Seed of the random numbers; default: drawn at random and reported");
  app.get_option("--seed")->each([this](const std::string&) { seed_given_ = true; });
}

void SamplingFlags::add_seed_by_line(CLI::App& app) {
  app.add_flag("--seed-by-line", seed_by_line_,
               "Give each line its own seeds, following those of the line before, instead of the "
               "same for all");
}

std::uint64_t SamplingFlags::seed_of(std::int64_t line, std::int64_t samples) const {
  const auto before = static_cast<std::uint64_t>(seed_by_line_ ? line - 1 : 0);
  return options_.seed + before * static_cast<std::uint64_t>(samples);
}

void StopFlags::add(CLI::App& app) {
  add_number(app, "-n,--max-tokens", max_tokens_, 0, Limits<std::int64_t>::max(),
             "Maximum number of tokens to generate")
      ->default_str("128");
  app.add_option_function<std::vector<std::string>>(
         "--eos",
         [this](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             const auto id = parse_number<TokenId>(text);
             if (!id || *id < 0) throw Error(ErrorKind::usage, "--eos: '{}' is not an id", text);
             end_ids_.push_back(*id);
           }
         },
         "Also end at this token; may be repeated")
      ->type_name("ID")
      ->allow_extra_args(false);
  // Acts after --eos, wherever it is given: CLI11 uses the order of definition.
  app.add_flag_callback(
      "--ignore-eos",
      [this] {
        if (!end_ids_.empty()) {
          throw Error(ErrorKind::usage,
                      "--eos and --ignore-eos exclude each other: one adds end tokens, the other "
                      "ignores all");
        }
        ignore_end_ids_ = true;
      },
      "Do not end at any token");
  app.add_option_function<std::vector<std::string>>(
         "--stop",
         [this](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             sequences_.push_back(parse_ids(text, "--stop", Limits<TokenId>::max()));
             if (sequences_.back().empty()) {
               throw Error(ErrorKind::usage, "--stop: the sequence is empty");
             }
           }
         },
         "End before this sequence of tokens; may be repeated")
      ->type_name("\"ID ID\"")
      ->allow_extra_args(false);
}

StopRules StopFlags::rules(const ModelConfig& config) const {
  StopRules rules{.end_ids = {}, .sequences = sequences_, .max_tokens = max_tokens_, .room = 0};
  if (!ignore_end_ids_) {
    rules.end_ids = config.end_ids;
    for (const TokenId id : end_ids_) {
      if (std::ranges::count(rules.end_ids, id) == 0) rules.end_ids.push_back(id);
    }
  }
  return rules;
}

}  // namespace tinyloop::cli
