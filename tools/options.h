// SPDX-License-Identifier: Apache-2.0
// Options that mean the same in every tool, in groups, and option values that are numbers and
// lists. Not what one tool alone has, and not input and output.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "streams.h"
#include "tinyloop/batch/generate_batch.h"
#include "tinyloop/device/ops.h"
#include "tinyloop/error.h"
#include "tinyloop/files/token_files.h"
#include "tinyloop/model/loop_plan.h"
#include "tinyloop/model/model.h"
#include "tinyloop/pool/prefix_pool.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/sampling/stop.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop::cli {

// "a,b,c": a, b, c; "a,,": a and two empty words.
std::vector<std::string_view> split_list(std::string_view text);

// An option whose value is one number in [low, high]: decimal, nothing before or after it, refused
// if out of range. (CLI11 by itself reads 010 as 8 and 2^64 as 2^64 - 1.) T: std::int32_t,
// std::int64_t, std::uint64_t, double.
template <typename T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& value,
                        std::type_identity_t<T> low, std::type_identity_t<T> high,
                        const std::string& description);

// An option whose value is a list "a,b,c" without repetitions; `parse` makes a value of a word and
// of the option's name, which its errors say. An empty word is a word.
template <typename T, typename Parse>
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<T>& values,
                      const std::string& type, const std::string& description, Parse parse) {
  const auto take = [name, &values, parse](const std::string& text) {
    values.clear();
    for (const std::string_view word : split_list(text)) {
      values.push_back(parse(word, name));
      if (std::count(values.begin(), values.end(), values.back()) > 1) {
        throw Error(ErrorKind::usage, "{}: duplicate value '{}'", name, word);
      }
    }
  };
  return app.add_option_function<std::string>(name, take, description)->type_name(type);
}
// One whose words are integers in [low, high].
CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values,
                         std::int64_t low, std::int64_t high, const std::string& description);

// The value "8G" of an option, at least `min`; the letters K, M and G are powers of 1024.
std::size_t parse_bytes(std::string_view option, std::string_view text, std::int64_t min = 1);
// An option with such a value.
template <typename T>
CLI::Option* add_bytes(CLI::App& app, const std::string& name, T& value, std::int64_t min,
                       const std::string& description) {
  const auto take = [name, min, &value](const std::string& text) {
    value = static_cast<T>(parse_bytes(name, text, min));
  };
  return app.add_option_function<std::string>(name, take, description)->type_name("BYTES");
}

// --pool, for every tool that has it; TL_POOL is its default.
CLI::Option* add_pool(CLI::App& app, std::string& folder, const std::string& description);

// Prepares a pool for new entries. Problems with it are warnings: it may be used all the same, or
// is left out. Returns the warning that look-ups would repeat; may be empty.
std::string make_ready(std::optional<PrefixPool>& pool);

// The options that mean the same in every tool. Each add() declares options on `app` and binds them
// here, so the group must not move until parsing is done.
struct DeviceOptions {  // --backend, --gpu-memory, --isa; TL_BACKEND, TL_CPU_ISA
  std::string backend = "cpu", isa;
  std::size_t gpu_memory = 0;  // 0: all that is free
  void add(CLI::App& app);
  // Throws Error(usage) if an option on the command line is for the other backend.
  std::unique_ptr<Ops> make_ops(int threads) const;
};

struct ModelOptions {  // -m, --threads, DeviceOptions; TL_THREADS
  std::string path;
  int threads = 0;
  DeviceOptions device;
  void add(CLI::App& app);
  Model open() const;
  std::unique_ptr<Ops> make_ops() const { return device.make_ops(threads); }
};

struct LoopOptions {       // --loops, --kv, --cache-window, --prefill-chunk, --init-state
  std::int32_t loops = 0;  // 0: the model's own
  std::string kv;
  std::int64_t window = 0;
  std::int64_t prefill_chunk = 0;  // 0: chunk() decides
  std::string initial_state;
  void add(CLI::App& app);
  void add_without_loops(CLI::App& app);  // for tools whose --loops is a list
  // --kv, else what the environment says, else f16.
  StorageMode storage() const;
  // What asked for a store-h mode, such as "--kv h8" or "TINYLOOP_KV_H_MODE=h8".
  std::string storage_setting() const;
  // Warns if there are more loops than the model was trained with.
  LoopPlan plan(const ModelConfig& config) const;
  std::int64_t chunk() const;  // prompt positions computed at once
};

struct ExitOptions {  // --exit, --exit-select
  std::string exit;
  bool exit_select = false;
  void add(CLI::App& app);
  ExitRule exit_rule() const { return ExitRule::parse(exit, exit_select); }
};

struct SpeculationOptions : ExitOptions {  // these, --speculative and --kv-slots
  std::string speculative = "off";
  std::int32_t shared_planes = 0;
  void add(CLI::App& app);
  bool automatic() const;
  // Checked against model and plan. For `auto` the one that the model's profile recommends on this
  // machine with this many threads, or plain decoding; `reason` says which and why.
  struct Choice {
    Speculation speculation;
    std::string reason;  // of auto only
  };
  Choice choose(const Model& model, const LoopPlan& plan, const Ops& ops) const;
};

// Speculation::parse for the value of an option, which errors name.
Speculation parse_speculation(std::string_view option, std::string_view text);
// The processor's name and how many CPUs this process may use; ops: the device.
std::string machine_name(const Ops& ops);
// Where tl-bench-spec saves its verdict on a model and tl-generate looks for it.
std::string profile_path(const std::string& model);

struct SamplingFlags {  // --temperature, --top-k, ... --logit-bias, --seed
  void add(CLI::App& app);
  // Ids of the bias are not yet checked: see validate().
  SamplingOptions options() const { return options_; }
  // Without --seed one is drawn when the options are added, the same at every call; report it.
  std::uint64_t seed() const { return options_.seed; }
  bool seed_given() const { return seed_given_; }
  void set_seed(std::uint64_t seed) { options_.seed = seed; }

  // --seed-by-line, for sampling from many lines: with one seed for all, answers to
  // different prompts are drawn with the same random numbers and tend to be alike.
  void add_seed_by_line(CLI::App& app);
  bool seed_by_line() const { return seed_by_line_; }
  // The first seed of line `line`, counted from 1 across all files, which has `samples` seeds.
  std::uint64_t seed_of(std::int64_t line, std::int64_t samples = 1) const;

 private:
  SamplingOptions options_;
  bool seed_given_ = false, seed_by_line_ = false;
};

struct BatchFlags {  // --lanes, --memory, --schedule, --group, --shard
  void add(CLI::App& app);
  // Without the options of other groups. --lanes auto without --memory guesses half of the host's.
  BatchOptions options() const;
  LineShare share() const;  // of the input's lines
  bool sharded() const { return !shard_.empty(); }

 private:
  std::string lanes_ = "16", memory_, schedule_ = "continuous", group_ = "prefix", shard_;
};

struct StopFlags {  // -n, --max-tokens, --eos, --ignore-eos, --stop
  void add(CLI::App& app);
  // The model's end ids and those of --eos, none with --ignore-eos; not yet checked: see
  // validate(). room is 0.
  StopRules rules(const ModelConfig& config) const;

 private:
  std::int64_t max_tokens_ = StopRules{}.max_tokens;
  std::vector<TokenId> end_ids_;
  bool ignore_end_ids_ = false;
  std::vector<std::vector<TokenId>> sequences_;
};

}  // namespace tinyloop::cli
