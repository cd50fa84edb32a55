// SPDX-License-Identifier: Apache-2.0
// One sequence of token ids as it was read, the formats it may have, and the limits it must
// satisfy. Reading is token_lines' business.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/token.h"

namespace tinyloop {

enum class TokenFormat {
  text,   // one sequence a line, decimal ids separated by blanks or tabs
  jsonl,  // one object a line: {"tokens":[...],"id":...,"max_tokens":n,"seed":n}
  u16,    // the whole file is one sequence of little-endian unsigned 16-bit ids
  i32,    // the whole file is one sequence of little-endian signed 32-bit ids
  npy,    // a NumPy array of integers, shape [n] (one sequence) or [lines, n]
};

// "text" ... "npy"; throws Error(usage) naming the known ones.
TokenFormat parse_token_format(std::string_view name);

struct TokenLine {
  std::string file;          // as messages name it; set by whoever opened it
  std::int64_t number = 0;   // 1-based line (or row) in its file
  std::vector<TokenId> ids;  // the prompt
  std::string error;         // not empty: "file:line:column: cause"; ids is then empty
  std::string id_json;  // jsonl: the value of "id" as JSON text, copied to output; may be empty
  std::optional<std::int64_t> max_tokens;  // jsonl
  std::optional<std::uint64_t> seed;       // jsonl
  // jsonl with job_keys:
  std::optional<std::vector<std::vector<TokenId>>> stop;  // sequences, none of them empty
  std::int64_t priority = 0;
  std::string group;        // as given, or a coalition's name; may be empty
  std::string group_parts;  // of a coalition: coalition_parts()

  // Equal for lines of one group and no others; empty without a group.
  std::string group_key() const {
    return group_parts.empty() && !group.empty() ? "group " + group : group_parts;
  }
};

struct TokenLimits {
  std::int64_t vocab = 0;    // every id must be below this
  std::int64_t longest = 0;  // ids a line may hold (the context); 0 = no limit
  bool job_keys = false;     // jsonl: also the keys that only jobs of a batch have
};

}  // namespace tinyloop
