// SPDX-License-Identifier: Apache-2.0
// Members in the order in which the pages list them.
#include "answer_json.h"

#include <optional>
#include <vector>

namespace tinyloop::cli {
namespace {

// ,"matched":[...] or nothing.
void add_matched(JsonObject& object, const StopReason& stop) {
  if (!stop.matched.empty()) object.add_array<TokenId>("matched", stop.matched);
}

}  // namespace

JsonObject record_head(const TokenLine& line, bool several_files) {
  JsonObject head;
  head.add("line", line.number);
  if (several_files) head.add("file", line.file);
  if (!line.id_json.empty()) head.add_json("id", line.id_json);
  if (!line.group.empty()) head.add("group", line.group);
  return head;
}

JsonObject answer_members(const TokenLine& line, const Answer& answer, bool only_new,
                          std::uint64_t seed) {
  std::vector<TokenId> tokens;
  if (!only_new) tokens = line.ids;
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  JsonObject members;
  members.add_array<TokenId>("tokens", tokens).add("stop", name_of(answer.stop.kind));
  add_matched(members, answer.stop);
  members.add("seed", seed);
  return members;
}

JsonObject time_members(const DecodeStats& stats) {
  const auto if_any = [&](double ms) {
    return stats.generated > 0 ? std::optional(ms) : std::nullopt;
  };
  JsonObject members;
  members.add("prefill_ms", if_any(stats.prefill_ms), 3)
      .add("first_token_ms", if_any(stats.first_token_ms), 3)
      .add("decode_ms", if_any(stats.decode_ms), 3);
  return members;
}

JsonObject end_members(const Answer& answer, std::uint64_t seed) {
  JsonObject reason;
  reason.add("kind", name_of(answer.stop.kind));
  add_matched(reason, answer.stop);
  JsonObject members;
  members.add("stop_reason", reason)
      .add("seed", seed)
      .add("logits_hash", fmt::format("{:016x}", answer.stats.logits_hash));
  return members;
}

}  // namespace tinyloop::cli
