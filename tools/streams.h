// SPDX-License-Identifier: Apache-2.0
// Where sequences come from and answers go: files, pipes, standard input and output.
// Not the formats: those are in files/token_lines.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/line_log.h"
#include "tinyloop/files/temporary_file.h"
#include "tinyloop/files/token_lines.h"

namespace tinyloop::cli {

// Every option that names an input registers it, so that no output may replace it and no tool
// has to keep a list.
CLI::Option* names_source(CLI::Option* option);
void add_source(const std::string& file);
void add_source_pool(const std::string& folder);

// --input-format and FILE...; a terminal on stdin without FILE is refused with a hint.
struct InputOptions {
  std::vector<std::string> files;
  std::string format;  // empty: text
  // `otherwise`: the input without FILE; empty: standard input.
  void add(CLI::App& app, const std::string& otherwise = "");
  bool format_given() const { return !format.empty(); }
  // Reads every sequence of every file; the first wrong line throws Error(usage), and so does an
  // empty line or a file without any.
  std::vector<TokenLine> read_all(TokenLimits limits) const;
  // Calls `take` for each sequence as it is read, with the same checks.
  void for_each(TokenLimits limits, const std::function<void(TokenLine)>& take) const;
  // Calls `take` for each line, wrong and empty ones included.
  void for_each_line(TokenLimits limits, const std::function<void(TokenLine)>& take) const;
  TokenFormat token_format() const { return parse_token_format(format.empty() ? "text" : format); }
  // Before any work: throws Error(usage) if there is nothing to read, or this user may not.
  void check_readable() const;
  // The number of lines; no value if it cannot be known before reading.
  std::optional<std::int64_t> count_lines() const;
};

// Runs `work` for one line; a failure of the computation (logits that are not finite,
// out of memory, no initial state for a position) is reported with file and line.
void for_line(const TokenLine& line, const std::function<void()>& work);

// An output file and the option that names it; an empty path or "-" is none.
struct OutputName {
  std::string_view option;
  std::string path;
  bool only_file = false;  // a device or a pipe will not do
};
// Whether it goes where messages and progress go, by whatever name; /dev/null takes all.
bool is_standard_error(const OutputName& output);
// Before any work: throws Error(usage) naming the option if an output would replace what is read
// (see add_source), is a folder, or if two of them are one file, or if a stream goes to what is
// read, or if it is a device where only a file will do; Error(io) if its folder is not there.
void check_outputs(const std::vector<OutputName>& outputs);

// How a file is written: it gets its name when it is complete, or it exists from the start and
// grows by whole lines, as a new file or appended to an existing one.
enum class FileKind { whole, new_log, further_log };

// An existing stream (stdout, stderr, a device, a pipe) or a file.
class Sink {
 public:
  // "-" is `standard`, called `name` in messages. Throws Error(usage) naming `option` if the file
  // is read by an option or a folder.
  void open(const std::string& path, std::FILE* standard, std::string_view name,
            std::string_view option, FileKind kind = FileKind::whole);
  // Throws Error(io), such as "standard output: No space left on device".
  void write(std::string_view text);
  void flush();
  void finish();

 private:
  std::string name_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned_{nullptr, std::fclose};
  std::FILE* stream_ = nullptr;
  std::unique_ptr<AtomicFile> file_;
  std::unique_ptr<LineLog> log_;
};

// Writes the answer to standard output or, with --output FILE, to a file that appears complete or
// not at all.
class Output {
 public:
  void add(CLI::App& app);  // -o, --output
  bool is_file() const { return path_ != "-"; }
  // Whether a file will be created or replaced: not if
  // the path is a device, a pipe or what standard output goes to.
  bool makes_file() const;
  OutputName name() const { return {"--output", path_}; }
  // The file itself if the path is a link to one.
  std::string real_path() const;
  void open();  // before the first write
  void write(std::string_view text) { sink_.write(text); }
  void flush() { sink_.flush(); }
  void finish() { sink_.finish(); }

 private:
  std::string path_ = "-";
  Sink sink_;
};

// Statistics: one JSON object per line on standard error or, with --stats=FILE, in a file, which
// gets each line as soon as it is written.
class StatsOutput {
 public:
  void add(CLI::App& app);  // --stats[=FILE]
  bool wanted() const { return !path_.empty(); }
  OutputName name() const { return {"--stats", path_ == "true" ? "-" : path_}; }
  // Each does nothing unless statistics are wanted. Before the first write; `go_on`: appends to
  // the file.
  void open(bool go_on = false);
  void write(std::string_view line);  // with its line end
  void finish();

 private:
  std::string path_;
  Sink sink_;
};

}  // namespace tinyloop::cli
