// SPDX-License-Identifier: Apache-2.0
// Goes from file to file and counts. Parses nothing.
#include "tinyloop/files/token_files.h"

#include <utility>

namespace tinyloop {

TokenFiles::TokenFiles(std::vector<std::string> paths, TokenFormat format, TokenLimits limits,
                       LineShare share)
    : paths_(std::move(paths)), format_(format), limits_(limits), share_(share) {
  if (paths_.empty()) paths_.emplace_back("-");
}

std::optional<TokenLine> TokenFiles::next() {
  for (;;) {
    if (!reader_) {
      if (next_path_ == paths_.size()) return std::nullopt;
      reader_ = std::make_unique<TokenReader>(paths_[next_path_++], format_, limits_);
    }
    ++number_;
    if (share_.holds(number_)) {
      if (std::optional<TokenLine> line = reader_->next()) {
        const std::string& path = paths_[next_path_ - 1];
        line->file = path == "-" ? "standard input" : path;
        return line;
      }
    } else if (reader_->skip()) {
      continue;
    }
    --number_;  // there was no such line
    reader_.reset();
  }
}

}  // namespace tinyloop
