// SPDX-License-Identifier: Apache-2.0
// Tests lib/sampling/stop, above all what is held back, against a brute-force model over small
// alphabets. Not the options that fill the rules.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>

#include "tinyloop/error.h"
#include "tinyloop/sampling/stop.h"

using namespace tinyloop;

namespace {

using Ids = std::vector<TokenId>;

bool ends_with(const Ids& stream, const Ids& tail) {
  return stream.size() >= tail.size() && std::equal(tail.rbegin(), tail.rend(), stream.rbegin());
}

// Tokens that may be shown: a token must wait as long as some continuation makes it a part of a
// match. Such a match begins at or before it and its first part is all that the stream holds from
// there on.
std::int64_t model_released(const Ids& stream, const std::vector<Ids>& sequences) {
  for (std::size_t shown = 0; shown < stream.size();
       ++shown) {  // the earliest place where a match may begin
    const Ids rest(stream.begin() + static_cast<std::ptrdiff_t>(shown), stream.end());
    for (const Ids& sequence : sequences) {
      if (sequence.size() > rest.size() && std::equal(rest.begin(), rest.end(), sequence.begin())) {
        return static_cast<std::int64_t>(shown);
      }
    }
  }
  return static_cast<std::int64_t>(stream.size());
}

struct Outcome {
  StopKind kind = StopKind::none;
  Ids matched;
  std::int64_t released = 0, length = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome model_push(const Ids& stream, const StopRules& rules) {  // of the last token of `stream`
  const auto length = static_cast<std::int64_t>(stream.size());
  if (std::count(rules.end_ids.begin(), rules.end_ids.end(), stream.back()) > 0) {
    return {StopKind::end_id, {stream.back()}, length - 1, length};
  }
  Ids longest;
  for (const Ids& sequence : rules.sequences) {
    if (ends_with(stream, sequence) && sequence.size() > longest.size()) longest = sequence;
  }
  if (!longest.empty()) {
    return {StopKind::sequence, longest, length - static_cast<std::int64_t>(longest.size()),
            length};
  }
  if (length == rules.max_tokens) return {StopKind::length, {}, length, length};
  if (length == rules.room) return {StopKind::context, {}, length, length};
  return {StopKind::none, {}, model_released(stream, rules.sequences), length};
}

Outcome push(StopState& state, TokenId id) {
  const StopReason reason = state.push(id);
  return {reason.kind, reason.matched, state.released(), state.length()};
}

StopRules rules_of(std::vector<Ids> sequences, Ids end_ids = {}) {
  return {.end_ids = std::move(end_ids),
          .sequences = std::move(sequences),
          .max_tokens = 100,
          .room = 100};
}

}  // namespace

TEST_CASE(
    "push and released equal the brute-force model on random rules and streams (B-55, B-56)") {
  std::mt19937 random(7);
  const auto integer = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int kinds[5] = {}, held = 0;
  for (int run = 0; run < 20000; ++run) {
    const int alphabet = integer(1, 3);
    StopRules rules;
    for (int i = integer(0, 3); i > 0; --i) {
      Ids sequence;
      for (int n = integer(1, 6); n > 0; --n) sequence.push_back(integer(0, alphabet - 1));
      rules.sequences.push_back(sequence);
    }
    if (integer(0, 3) == 0) rules.end_ids = {integer(0, alphabet)};
    rules.max_tokens = integer(1, 24);
    rules.room = integer(1, 24);
    StopState state(rules);
    CHECK(state.at_start().kind == StopKind::none);
    Ids stream;
    std::int64_t before = 0;
    StopKind kind = StopKind::none;
    while (kind == StopKind::none) {
      stream.push_back(integer(0, alphabet));
      const Outcome outcome = push(state, stream.back());
      REQUIRE(outcome == model_push(stream, rules));
      REQUIRE(outcome.released >= before);  // nothing shown is taken back
      before = outcome.released;
      kind = outcome.kind;
      held += kind == StopKind::none && outcome.released < outcome.length;
    }
    ++kinds[static_cast<int>(kind)];
  }
  CHECK(held > 1000);
  for (const StopKind kind :
       {StopKind::end_id, StopKind::sequence, StopKind::length, StopKind::context}) {
    CHECK(kinds[static_cast<int>(kind)] > 500);
  }
}

TEST_CASE("a sequence over several tokens is held back exactly as long as needed") {
  StopState state(rules_of({{1, 2, 3}}));
  CHECK(push(state, 9) == Outcome{StopKind::none, {}, 1, 1});
  CHECK(push(state, 1) == Outcome{StopKind::none, {}, 1, 2});
  CHECK(push(state, 2) == Outcome{StopKind::none, {}, 1, 3});
  CHECK(push(state, 1) == Outcome{StopKind::none, {}, 3, 4});  // 1 2 is free, the new 1 waits
  CHECK(push(state, 2) == Outcome{StopKind::none, {}, 3, 5});
  CHECK(push(state, 3) == Outcome{StopKind::sequence, {1, 2, 3}, 3, 6});
}

TEST_CASE("of sequences that end together the longest is reported and dropped") {
  StopState state(rules_of({{3}, {2, 3}, {7, 2, 3}}));
  push(state, 5);
  CHECK(push(state, 2) == Outcome{StopKind::none, {}, 1, 2});
  CHECK(push(state, 3) == Outcome{StopKind::sequence, {2, 3}, 1, 3});
}

TEST_CASE("a held tail is released on end id, length and context") {
  StopState at_end(rules_of({{1, 2, 3}}, {8, 9}));
  push(at_end, 1);
  push(at_end, 2);
  CHECK(at_end.released() == 0);
  CHECK(push(at_end, 9) == Outcome{StopKind::end_id, {9}, 2, 3});

  StopRules rules = rules_of({{1, 2, 3}});
  rules.max_tokens = 2;
  StopState at_length(rules);
  push(at_length, 1);
  CHECK(push(at_length, 2) == Outcome{StopKind::length, {}, 2, 2});

  rules.max_tokens = 100;
  rules.room = 2;
  StopState at_context(rules);
  push(at_context, 1);
  CHECK(push(at_context, 2) == Outcome{StopKind::context, {}, 2, 2});
}

TEST_CASE("one token with several reasons: end id, sequence, length, context") {
  StopRules rules = rules_of({{4}}, {4});
  rules.max_tokens = 1;
  rules.room = 1;
  StopState all(rules);
  CHECK(push(all, 4) == Outcome{StopKind::end_id, {4}, 0, 1});
  rules.end_ids.clear();
  StopState three(rules);
  CHECK(push(three, 4) == Outcome{StopKind::sequence, {4}, 0, 1});
  StopState two(rules);
  CHECK(push(two, 5) == Outcome{StopKind::length, {}, 1, 1});
}

TEST_CASE("limits of 0 are reached at the start") {
  CHECK(StopState({.max_tokens = 0, .room = 0}).at_start().kind == StopKind::length);
  CHECK(StopState({.max_tokens = 0, .room = 5}).at_start().kind == StopKind::length);
  CHECK(StopState({.max_tokens = 5, .room = 0}).at_start().kind == StopKind::context);
  CHECK(StopState({.max_tokens = 5, .room = 5}).at_start().kind == StopKind::none);
}

TEST_CASE("validate refuses what cannot work and names it") {
  const auto message = [](const StopRules& rules) -> std::string {
    try {
      validate(rules, 64);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  CHECK(message({.end_ids = {0, 63}, .sequences = {{0}, {63, 63}}, .max_tokens = 0, .room = 0}) ==
        "");
  CHECK(message({.end_ids = {64}}) == "`eos`: id 64 is not below 64");
  CHECK(message({.end_ids = {-1}}) == "`eos`: id -1 is negative");
  CHECK(message({.sequences = {{1, 64}}}) == "`stop`: id 64 is not below 64");
  CHECK(message({.sequences = {{-5}}}) == "`stop`: id -5 is negative");
  CHECK(message({.sequences = {{1}, {}}}) == "`stop`: the sequence is empty");
  CHECK(message({.max_tokens = -1}) == "`max_tokens`: -1 is negative");
  CHECK(message({.room = -2}).find("context") != std::string::npos);
}

TEST_CASE("every reason has a name") {
  CHECK(name_of(StopKind::none) == "none");
  CHECK(name_of(StopKind::end_id) == "end");
  CHECK(name_of(StopKind::sequence) == "stop");
  CHECK(name_of(StopKind::length) == "length");
  CHECK(name_of(StopKind::context) == "context");
}
