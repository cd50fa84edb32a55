// SPDX-License-Identifier: Apache-2.0
// Options that choose how a sequence is continued, and the profile that --speculative auto follows.
// What a schedule does is lib/schedule's business.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/error.h"
#include "tinyloop/measure/speculation_profile.h"

namespace tinyloop::cli {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kSchedules[] = {"off", "block", "tree", "wavefront"};

bool SpeculationOptions::automatic() const {
  return speculative == kAuto || speculative.starts_with("auto:");
}

void ExitOptions::add(CLI::App& app) {
  app.add_option("--exit", exit,
                 "Let tokens exit their loops early: gate:Q, latent:EPS or kl:EPS; default: never")
      ->type_name("RULE");
  app.add_flag("--exit-select", exit_select,
               "With --exit: run all loops and only select the state");
}

void SpeculationOptions::add(CLI::App& app) {
  app.add_option("--speculative", speculative,
                 "Draft tokens with few loops and verify them with all: block:d=N,k=N, "
                 "tree:d=N,width=N,depth=N, wavefront:d=N[+N...], auto[:FILE] or off")
      ->type_name("SCHEDULE")
      ->default_str("off");
  ExitOptions::add(app);
  add_number(app, "--kv-slots", shared_planes, 1, std::numeric_limits<std::int32_t>::max(),
             "After the prompt, loops share this many planes of keys and values; default: each "
             "loop has its own");
}

SpeculationOptions::Choice SpeculationOptions::choose(const Model& model, const LoopPlan& plan,
                                                      const Ops& ops) const {
  const ExitRule rule = exit_rule();
  if (!automatic()) {
    const std::string kind = speculative.substr(0, speculative.find(':'));
    if (std::ranges::count(kSchedules, kind) == 0) {
      throw Error(ErrorKind::usage, "--speculative: '{}' is none of {}, auto", speculative,
                  fmt::join(kSchedules, ", "));
    }
    const Choice choice{parse_speculation("--speculative", speculative), ""};
    check(choice.speculation, model.config(), plan, rule, shared_planes);
    return choice;
  }
  check(Speculation(), model.config(), plan, rule, shared_planes);
  if (speculative == "auto:") {
    throw Error(ErrorKind::usage, "--speculative auto: the FILE after the colon is missing");
  }
  const std::string path = speculative.size() > kAuto.size() + 1
                               ? speculative.substr(kAuto.size() + 1)
                               : profile_path(model.path());
  add_source(path);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) {
    // A profile beside the model is optional; one that was named should exist.
    if (speculative != kAuto) warn(path + ": no such profile; decoding plainly");
    return {Speculation(), "plain: no profile " + path};
  }
  SpeculationProfile profile;
  try {
    profile = SpeculationProfile::read(path);
  } catch (const Error& error) {
    warn(error.what());
    return {Speculation(), "plain: the profile cannot be read"};
  }
  if (profile.fingerprint != model.fingerprint()) {
    return {Speculation(), "plain: the profile is for another model"};
  }
  if (profile.machine != machine_name(ops)) {
    return {Speculation(), fmt::format("plain: the profile is for '{}', this is '{}'",
                                       profile.machine, machine_name(ops))};
  }
  if (profile.loops != plan.loops) {
    return {Speculation(), fmt::format("plain: the profile is for {} loops", profile.loops)};
  }
  if (!profile.speculate) {
    return {Speculation(), fmt::format("plain: the profile's verdict, {:.2f} x at best with {}",
                                       profile.speedup, profile.speculation.name())};
  }
  try {
    check(profile.speculation, model.config(), plan, rule, shared_planes);
  } catch (const Error& error) {
    return {Speculation(), fmt::format("plain: {}", error.what())};
  }
  return {profile.speculation, fmt::format("{}: the profile's verdict, {:.2f} x",
                                           profile.speculation.name(), profile.speedup)};
}

Speculation parse_speculation(std::string_view option, std::string_view text) {
  try {
    return Speculation::parse(text);
  } catch (const Error& error) {
    throw Error(error.kind(), "{}: {}", option, error.what());
  }
}

std::string machine_name(const Ops& ops) {
  std::string processor = "unknown processor";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    processor = line.substr(colon + 2);
    break;
  }
  return fmt::format("{}; {}", processor, ops.name());
}

std::string profile_path(const std::string& model) { return model + ".speculation.json"; }

}  // namespace tinyloop::cli
