// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer files: written for Oniguruma, run by PCRE2. Syntax that the
// two interpret differently is translated or refused. Not for users' expressions.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

class Regex {
 public:
  // Throws Error(data) naming `where`, the expression and the cause.
  Regex(std::string_view pattern, std::string_view where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  struct Match {
    std::size_t begin = 0, end = 0;
  };
  // Appends the matches in `text`, well-formed UTF-8, from left to right; an empty match right
  // after another is skipped. Throws Error(data) if an expression needs too much memory.
  void find_all(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The expression as PCRE2 has it; throws Error(data) naming `where` and what is not supported.
std::string translate_regex(std::string_view pattern, std::string_view where);

}  // namespace tinyloop
