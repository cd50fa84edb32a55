// SPDX-License-Identifier: Apache-2.0
// Names of schedules, what they need and what excludes them.
#include "tinyloop/schedule/speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/parse_number.h"

namespace tinyloop {
namespace {

constexpr std::int32_t kGreatestCount = 64;  // of k, width and depth: rows cost memory

struct Parameter {
  std::string_view name;
  std::int32_t Speculation::*field;
};

struct Form {
  std::string_view name;
  Speculation::Kind kind;
  std::vector<Parameter> parameters;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"off", Speculation::Kind::plain, {}},
      {"block",
       Speculation::Kind::block,
       {{"d", &Speculation::draft_loops}, {"k", &Speculation::drafts}}},
      {"tree",
       Speculation::Kind::tree,
       {{"d", &Speculation::draft_loops},
        {"width", &Speculation::width},
        {"depth", &Speculation::depth}}},
      {"wavefront", Speculation::Kind::wavefront, {{"d", &Speculation::draft_loops}}},
  };
  return all;
}

// "1+2": loops after which a row guesses, and guesses again.
void set_proposals(Speculation& speculation, std::string_view text) {
  std::vector<std::int32_t> loops;
  for (std::string_view rest = text;; rest.remove_prefix(1)) {
    const std::string_view one = rest.substr(0, rest.find('+'));
    const auto value = parse_number<std::int32_t>(one);
    if (!value || *value < 1 || *value > kGreatestCount ||
        (!loops.empty() && *value <= loops.back())) {
      throw Error(
          ErrorKind::usage,
          "'d={}' is not d=N with N from 1 to {}, or such numbers in ascending order, as in "
          "d=1+2",
          excerpt(text), kGreatestCount);
    }
    loops.push_back(*value);
    rest.remove_prefix(one.size());
    if (rest.empty()) break;
  }
  speculation.draft_loops = loops.front();
  speculation.later_draft_loops.assign(loops.begin() + 1, loops.end());
}

// `given`: the parameters that were set before.
void set_parameter(Speculation& speculation, const Form& form, std::string_view text,
                   std::vector<std::string_view>& given) {
  const std::string_view name = text.substr(0, text.find('='));
  const std::string_view number = text.substr(std::min(name.size() + 1, text.size()));
  for (const Parameter& parameter : form.parameters) {
    if (parameter.name != name) continue;
    if (std::find(given.begin(), given.end(), name) != given.end()) {
      throw Error(ErrorKind::usage, "{} is given twice", name);
    }
    given.push_back(name);
    if (form.kind == Speculation::Kind::wavefront) return set_proposals(speculation, number);
    if (const auto value = parse_number<std::int32_t>(number);
        value && *value >= 1 && *value <= kGreatestCount) {
      speculation.*parameter.field = *value;
      return;
    }
    throw Error(ErrorKind::usage, "'{}' is not {}=N with N from 1 to {}", excerpt(text), name,
                kGreatestCount);
  }
  throw Error(ErrorKind::usage, "{} has no parameter '{}'", form.name, excerpt(text));
}

}  // namespace

Speculation Speculation::parse(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  std::string_view rest = text.substr(name.size());
  for (const Form& form : forms()) {
    if (form.name != name) continue;
    Speculation speculation;
    speculation.kind = form.kind;
    std::vector<std::string_view> given;
    while (!rest.empty()) {
      rest.remove_prefix(1);  // the colon or comma
      const std::string_view part = rest.substr(0, rest.find(','));
      set_parameter(speculation, form, part, given);
      rest.remove_prefix(part.size());
    }
    return speculation;
  }
  throw Error(ErrorKind::usage,
              "'{}' is not off, block:d=N,k=N, tree:d=N,width=N,depth=N or wavefront:d=N[+N...]",
              excerpt(text));
}

std::string Speculation::name() const {
  for (const Form& form : forms()) {
    if (form.kind != kind) continue;
    std::string text(form.name);
    char separator = ':';
    for (const Parameter& parameter : form.parameters) {
      text += fmt::format("{}{}={}", separator, parameter.name, this->*parameter.field);
      if (kind == Kind::wavefront && !later_draft_loops.empty()) {
        text += fmt::format("+{}", fmt::join(later_draft_loops, "+"));
      }
      separator = ',';
    }
    return text;
  }
  return "";
}

std::vector<std::int32_t> Speculation::proposal_loops() const {
  std::vector<std::int32_t> all = {draft_loops};
  all.insert(all.end(), later_draft_loops.begin(), later_draft_loops.end());
  return all;
}

std::int32_t Speculation::rows(std::int32_t loops) const {
  switch (kind) {
    case Kind::block:
      return drafts + 1;
    case Kind::tree:
      return width * depth + 1;
    case Kind::wavefront:
      return (loops + draft_loops - 1) / draft_loops + 1;
    default:
      return 1;
  }
}

std::int32_t Speculation::slots(std::int32_t loops, const ExitRule& exit) const {
  return rows(loops) * (exit.kind == ExitRule::Kind::none ? 1 : 2);
}

void check(const Speculation& speculation, const ModelConfig& config, const LoopPlan& plan,
           const ExitRule& exit, std::int32_t shared_planes) {
  exit.check(config);
  if (shared_planes < 0 || shared_planes > plan.loops) {
    throw Error(ErrorKind::usage, "`kv_slots` {}: with {} loops it can be 1 to {}", shared_planes,
                plan.loops, plan.loops);
  }
  if (speculation.kind == Speculation::Kind::plain) return;
  if (speculation.proposal_loops().back() > plan.loops) {
    throw Error(ErrorKind::usage,
                "`speculative` {} and `loops` {} exclude each other: a draft cannot have more "
                "loops than its "
                "verification",
                speculation.name(), plan.loops);
  }
  if (shared_planes > 0 && shared_planes < plan.loops) {
    throw Error(ErrorKind::usage,
                "`speculative` and `kv_slots` exclude each other: in a shared plane a draft would "
                "read what the first loops of unfinished tokens wrote, where plain decoding reads "
                "what their last loops wrote");
  }
  if (exit.kind == ExitRule::Kind::kl && config.coda_layers > 0) {
    throw Error(ErrorKind::usage,
                "`speculative` and `exit` kl exclude each other on a model with coda layers: the "
                "rule runs the coda after every loop, but the coda needs finished earlier tokens");
  }
}

}  // namespace tinyloop
