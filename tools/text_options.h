// SPDX-License-Identifier: Apache-2.0
// What tl-tokenize and tl-detokenize share: the vocabulary options, and lines of text. Not
// about files of ids: those are token_lines' business.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "options.h"
#include "streams.h"
#include "tinyloop/text/vocabulary.h"

namespace tinyloop::cli {

struct VocabularyOptions {  // -m, --tokenizer
  std::string model, tokenizer;
  void add(CLI::App& app);
  // Throws Error(usage) if none or both are given.
  Vocabulary load() const;
  // For messages: the file's name.
  const std::string& where() const { return model.empty() ? tokenizer : model; }
};

struct TextFiles {  // FILE ...
  std::vector<std::string> files;
  void add(CLI::App& app, const std::string& description);
  // Before any work: throws Error(usage) if there is nothing to read, or this user may not.
  void check_readable() const;

  struct Line {
    std::string_view text;  // without its LF
    std::string where;      // "FILE:3"
  };
  // Each line as soon as it has arrived, a last one without LF included; an empty file has none.
  void for_each_line(const std::function<void(const Line&)>& take) const;
  // Each file as a whole.
  void for_each_file(const std::function<void(const Line&)>& take) const;
  // Standard input where none is named.
  std::vector<std::string> paths() const {
    return files.empty() ? std::vector<std::string>{"-"} : files;
  }
};

}  // namespace tinyloop::cli
