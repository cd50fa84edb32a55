// SPDX-License-Identifier: Apache-2.0
// The four reasons to stop, in the order of stop.h.
// Not the text of messages about them: tools print names and ids.
#include "tinyloop/sampling/stop.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "tinyloop/error.h"

namespace tinyloop {
namespace {

void require_id(TokenId id, std::string_view option, std::int64_t vocab) {
  if (id < 0) throw Error(ErrorKind::usage, "{}: id {} is negative", option, id);
  if (id >= vocab) throw Error(ErrorKind::usage, "{}: id {} is not below {}", option, id, vocab);
}

}  // namespace

void validate(const StopRules& rules, std::int64_t vocab) {
  for (const TokenId id : rules.end_ids) require_id(id, "`eos`", vocab);
  for (const std::vector<TokenId>& sequence : rules.sequences) {
    if (sequence.empty()) throw Error(ErrorKind::usage, "`stop`: the sequence is empty");
    for (const TokenId id : sequence) require_id(id, "`stop`", vocab);
  }
  if (rules.max_tokens < 0) {
    throw Error(ErrorKind::usage, "`max_tokens`: {} is negative", rules.max_tokens);
  }
  if (rules.room < 0) {
    throw Error(ErrorKind::usage, "{} positions left: the prompt is longer than the context",
                rules.room);
  }
}

std::string_view name_of(StopKind kind) {
  switch (kind) {
    case StopKind::none:
      return "none";
    case StopKind::end_id:
      return "end";
    case StopKind::sequence:
      return "stop";
    case StopKind::length:
      return "length";
    case StopKind::context:
      return "context";
  }
  return "none";
}

StopState::Matcher::Matcher(const std::vector<TokenId>& sequence) : borders(sequence.size()) {
  assert(!sequence.empty());
  for (std::size_t i = 1; i < sequence.size(); ++i) {
    borders[i] = advance(sequence, borders[i - 1], sequence[i]);
  }
}

// `from` ids of the sequence match the stream's end; how many do when `id` follows? Not asked again
// after a match.
std::size_t StopState::Matcher::advance(const std::vector<TokenId>& sequence, std::size_t from,
                                        TokenId id) const {
  while (from > 0 && sequence[from] != id) from = borders[from - 1];
  return sequence[from] == id ? from + 1 : 0;
}

StopState::StopState(StopRules rules) : rules_(std::move(rules)) {
  for (const std::vector<TokenId>& sequence : rules_.sequences) matchers_.emplace_back(sequence);
}

StopReason StopState::limit_reached() const {
  if (length_ >= rules_.max_tokens) return {StopKind::length, {}};
  if (length_ >= rules_.room) return {StopKind::context, {}};
  return {};
}

StopReason StopState::at_start() const { return limit_reached(); }

StopReason StopState::push(TokenId id) {
  ++length_;
  if (std::find(rules_.end_ids.begin(), rules_.end_ids.end(), id) != rules_.end_ids.end()) {
    released_ = length_ - 1;
    return {StopKind::end_id, {id}};
  }
  std::size_t held = 0;
  const std::vector<TokenId>* complete = nullptr;
  for (std::size_t i = 0; i < matchers_.size(); ++i) {
    const std::vector<TokenId>& sequence = rules_.sequences[i];
    Matcher& matcher = matchers_[i];
    matcher.matched = matcher.advance(sequence, matcher.matched, id);
    held = std::max(held, matcher.matched);
    const bool ends_here = matcher.matched == sequence.size();
    if (ends_here && (complete == nullptr || sequence.size() > complete->size())) {
      complete = &sequence;
    }
  }
  if (complete != nullptr) {
    released_ = length_ - static_cast<std::int64_t>(complete->size());
    return {StopKind::sequence, *complete};
  }
  StopReason limit = limit_reached();
  released_ = limit.kind == StopKind::none ? length_ - static_cast<std::int64_t>(held) : length_;
  return limit;
}

}  // namespace tinyloop
