// SPDX-License-Identifier: Apache-2.0
// The JSON members that tl-generate, tl-batch and tl-score have in common: a record's place, answer
// and cost. Not whole records: each tool has its own.
#pragma once

#include <cstdint>
#include <span>

#include "tinyloop/files/json_object.h"
#include "tinyloop/files/token_lines.h"
#include "tinyloop/schedule/decode.h"

namespace tinyloop::cli {

// "line", "file" if there are several, "id" and "group" if the line has them.
JsonObject record_head(const TokenLine& line, bool several_files);

// "tokens" (the prompt's before the answer's unless `only_new`), "stop", what matched, "seed".
JsonObject answer_members(const TokenLine& line, const Answer& answer, bool only_new,
                          std::uint64_t seed);

// "prefill_ms", "first_token_ms" and "decode_ms": null if no token was requested and nothing
// was done.
JsonObject time_members(const DecodeStats& stats);

// "stop_reason", "seed" and "logits_hash".
JsonObject end_members(const Answer& answer, std::uint64_t seed);

}  // namespace tinyloop::cli
