// SPDX-License-Identifier: Apache-2.0
// Decides when a continuation ends and which of its tokens may already be shown.
// Knows ids only; whichever of end id, stop sequence and limit comes first in token order wins.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tinyloop/token.h"

namespace tinyloop {

struct StopRules {
  // Any of them ends the run; the end id itself is not part of the answer.
  std::vector<TokenId> end_ids = {};
  // The run ends before the first complete match; the match is not part of the answer.
  std::vector<std::vector<TokenId>> sequences = {};
  std::int64_t max_tokens = 128;  // 0 is a valid request
  std::int64_t room = 0;          // tokens until the context is full
};

// Throws Error(usage): empty sequence, ids outside the vocabulary, negative limits.
void validate(const StopRules& rules, std::int64_t vocab);

enum class StopKind { none, end_id, sequence, length, context };
std::string_view name_of(StopKind kind);  // "none", "end", "stop", "length", "context"

struct StopReason {
  StopKind kind = StopKind::none;
  std::vector<TokenId> matched;  // the end id or the stop sequence; empty for the limits
};

// Fed with the continuation's tokens one at a time. Where one token brings several reasons, the
// first of these is given: the token is an end id, a sequence is complete, max_tokens is reached,
// the context is full.
class StopState {
 public:
  explicit StopState(StopRules rules);

  // Before any token: a limit of 0 has already been reached. Otherwise kind none.
  StopReason at_start() const;
  // Takes the next token; a reason other than none ends the run and later calls are a mistake.
  // If several sequences match at once, the longest (the one that starts first) is reported and
  // dropped.
  StopReason push(TokenId id);
  // How many of the continuation's tokens may be shown: all that can no longer become part of a
  // match. After the end: exactly the answer's length (a held tail is released on end id, length
  // and context, dropped on a match).
  std::int64_t released() const { return released_; }
  std::int64_t length() const { return length_; }  // tokens taken, those that end the run included

 private:
  // Knuth, Morris and Pratt: how much of a sequence matches the end of the stream.
  struct Matcher {
    explicit Matcher(const std::vector<TokenId>& sequence);
    std::size_t advance(const std::vector<TokenId>& sequence, std::size_t from, TokenId id) const;

    // [i]: longest proper prefix of the first i + 1 ids that is also their suffix
    std::vector<std::size_t> borders;
    std::size_t matched = 0;
  };

  StopReason limit_reached() const;

  StopRules rules_;
  std::vector<Matcher> matchers_;  // of rules_.sequences, in the same order
  std::int64_t length_ = 0, released_ = 0;
};

}  // namespace tinyloop
