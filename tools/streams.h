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

// Every option that names something to read says so: then no output may replace it, and no tool
// has to keep a list.
CLI::Option* names_source(CLI::Option* option);
void add_source(const std::string& file);
void add_source_pool(const std::string& folder);

// --input-format and FILE...; no file and a terminal on stdin is refused with a hint.
struct InputOptions {
  std::vector<std::string> files;
  std::string format;  // empty: text
  // `otherwise`: what there is without FILE; empty: standard input.
  void add(CLI::App& app, const std::string& otherwise = "");
  bool format_given() const { return !format.empty(); }
  // Reads every sequence of every file; the first wrong line throws Error(usage). An empty line is
  // refused too, and so is a file without any.
  std::vector<TokenLine> read_all(TokenLimits limits) const;
  // Calls `take` for each sequence as it is read, with the same checks.
  void for_each(TokenLimits limits, const std::function<void(TokenLine)>& take) const;
  // Calls `take` for each line, wrong and empty ones included.
  void for_each_line(TokenLimits limits, const std::function<void(TokenLine)>& take) const;
  TokenFormat token_format() const { return parse_token_format(format.empty() ? "text" : format); }
  // Before any work: throws Error(usage) where there is nothing to read, or not for this user.
  void check_readable() const;
  // How many lines there are; no value if that cannot be known before they are read.
  std::optional<std::int64_t> count_lines() const;
};

// Does what is to be done for one line; a failure of the computation (logits that are not finite,
// no memory, no initial state for a position) is told with file and line.
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

// What becomes of a file: it gets its name when it is complete, or it is there from the beginning
// and grows by whole lines, as a new one or behind those that are there.
enum class FileKind { whole, new_log, further_log };

// A stream that stands already (stdout, stderr, a device, a pipe) or a file.
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
  // Whether there will be a file that was not there, or that takes another one's place: not where
  // the path is a device, a pipe or what standard output goes to.
  bool makes_file() const;
  OutputName name() const { return {"--output", path_}; }
  // The file itself where the path is a link to one.
  std::string real_path() const;
  void open();  // before the first write
  void write(std::string_view text) { sink_.write(text); }
  void flush() { sink_.flush(); }
  void finish() { sink_.finish(); }

 private:
  std::string path_ = "-";
  Sink sink_;
};

// Statistics: one JSON object a line on standard error or, with --stats=FILE, in a file, where each
// line is as soon as it is written.
class StatsOutput {
 public:
  void add(CLI::App& app);  // --stats[=FILE]
  bool wanted() const { return !path_.empty(); }
  OutputName name() const { return {"--stats", path_ == "true" ? "-" : path_}; }
  // Each does nothing unless statistics are wanted. Before the first write; `go_on`: what the file
  // holds stays.
  void open(bool go_on = false);
  void write(std::string_view line);  // with its line end
  void finish();

 private:
  std::string path_;
  Sink sink_;
};

}  // namespace tinyloop::cli
