// SPDX-License-Identifier: Apache-2.0
// The lines of several token files one after another, numbered across files, or a fixed share of
// them. The content of a line is token_lines' business.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinyloop/files/token_lines.h"

namespace tinyloop {

struct LineShare {  // the lines whose number less 1 leaves the remainder `index` when divided by
                    // `of`
  std::int64_t index = 0, of = 1;
  bool holds(std::int64_t number) const { return (number - 1) % of == index; }
  std::int64_t of_lines(std::int64_t lines) const {  // how many of `lines` it contains
    return lines > index ? (lines - 1 - index) / of + 1 : 0;
  }
};

class TokenFiles {
 public:
  // No path, or "-": standard input. The files are opened one after another.
  TokenFiles(std::vector<std::string> paths, TokenFormat format, TokenLimits limits,
             LineShare share = {});

  // The next line of the share, including wrong and empty ones; no value at the end. Lines of
  // other shares are skipped unread. Throws what TokenReader throws.
  std::optional<TokenLine> next();
  // The number, across all files and from 1, of the line that next() last returned.
  std::int64_t number() const { return number_; }

 private:
  std::vector<std::string> paths_;
  TokenFormat format_;
  TokenLimits limits_;
  LineShare share_;
  std::size_t next_path_ = 0;
  std::unique_ptr<TokenReader> reader_;
  std::int64_t number_ = 0;
};

}  // namespace tinyloop
