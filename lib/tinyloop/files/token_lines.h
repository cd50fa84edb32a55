// SPDX-License-Identifier: Apache-2.0
// Reads sequences of token ids (text lines, JSONL, binary) and writes them. See tl-tokens(5).
// Knows neither models nor options beyond the highest id: what the ids mean is the caller's
// business.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/token_line.h"
#include "tinyloop/token.h"

namespace tinyloop {

// Reads the sequences of one file, a line at a time, each as soon as it has arrived, in bounded
// memory (a line is cut off with an error once it holds more than `longest` ids; digits of one
// number and the bytes of one object are bounded too). A line that is wrong comes back with `error`
// set and the reader goes on with the next line: one bad line never spoils its neighbours. Throws
// Error(usage) if the file cannot be opened, Error(io) if reading fails later. Accepted in text:
// blanks and tabs between ids, leading and trailing blanks, a CR before the line end, a missing
// last line end. Anything else (sign, 0x, comma, NUL, byte-order mark, too many digits) is an error
// with line and column. An empty line is an empty sequence: it comes back with no ids and no error;
// the caller decides. In JSONL it is an error, and {"tokens":[]} is the empty sequence. In arrays
// the row is the line and the place in it the column of messages.
class TokenReader {
 public:
  // `path` "-" reads standard input and is called "standard input" in messages.
  TokenReader(std::string path, TokenFormat format, TokenLimits limits);
  ~TokenReader();
  TokenReader(const TokenReader&) = delete;
  TokenReader& operator=(const TokenReader&) = delete;

  std::optional<TokenLine> next();  // no value: end of file
  // As next(), but does not return or check the line. false: end of file.
  bool skip();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The ids of a text file as they arrive, for output that is shown as it is generated.
class TokenStream {
 public:
  TokenStream(const std::string& path, TokenLimits limits);
  ~TokenStream();
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  struct Part {
    std::vector<TokenId> ids;  // may be none
    bool line_end = false;     // they are the last ones of their line
  };
  // Waits if nothing has arrived; no value: end of file. Throws Error(usage) for a non-id.
  std::optional<Part> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Parses one text line (without its line end) as described above; `where` is the file's name in
// messages.
TokenLine parse_text_line(std::string_view text, std::string_view where, std::int64_t number,
                          TokenLimits limits);

// Parses one JSONL object; unknown and duplicate keys are errors, and so are options that all jobs
// of a batch share; an "id" is kept all the same. With limits.job_keys
// "snapshot", "segments" and "present" may replace "tokens": the ids are then those of
// the segments present, concatenated. For malformed JSON the
// message has a column, for a wrong value it has the key: "requests.jsonl:3: tokens[2]: id
// 70000 is not below 50304".
TokenLine parse_json_line(std::string_view text, std::string_view where, std::int64_t number,
                          TokenLimits limits);

// Parses a list of ids given as an option value, such as "12 7 9"; throws Error(usage) naming
// `what`.
std::vector<TokenId> parse_ids(std::string_view text, std::string_view what, std::int64_t vocab);

// "1 2 3", single spaces, no line end.
std::string format_ids(std::span<const TokenId> ids);

}  // namespace tinyloop
