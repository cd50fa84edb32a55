// SPDX-License-Identifier: Apache-2.0
// Where sequences come from and answers go: files, pipes, standard input and output.
// Not the formats: those are in files/token_lines.
#include "streams.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli.h"
#include "tinyloop/error.h"
#include "tinyloop/files/token_files.h"

namespace tinyloop::cli {
namespace {

bool file_status(const std::string& path, struct stat& status) {
  return (path == "-" ? ::fstat(STDIN_FILENO, &status) : ::stat(path.c_str(), &status)) == 0;
}

// One spelling for all names of a file, which need not exist.
std::filesystem::path whole_path(const std::string& path) {
  std::error_code unknown;  // then the spelling has to do
  const std::filesystem::path whole = std::filesystem::absolute(follow_links(path), unknown);
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(whole, unknown);
  return canonical.empty() ? whole : canonical;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// For /dev/stdout and the like: the stream that already goes to the file, which must not be
// replaced; null: none.
std::FILE* stream_to(const struct stat& file) {
  for (std::FILE* stream : {stdout, stderr}) {
    struct stat other;
    if (::fstat(::fileno(stream), &other) == 0 && same_file(file, other)) return stream;
  }
  return nullptr;
}

// The inputs of this process, from any option.
std::vector<std::string> source_files, source_pools;
const InputOptions* source_lines = nullptr;

// "-" among them is standard input.
std::vector<std::string> all_sources() {
  std::vector<std::string> all = source_files;
  if (source_lines != nullptr && source_lines->files.empty()) all.emplace_back("-");
  return all;
}

bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// Throws Error(usage) naming `option` if writing `path` would replace an input, under any
// name.
void refuse_sources(const std::string& path, std::string_view option) {
  struct stat status, other;
  const bool exists = file_status(path, status);
  for (const std::string& input : all_sources()) {
    if (input == path || (exists && file_status(input, other) && S_ISREG(status.st_mode) &&
                          same_file(status, other))) {
      throw Error(ErrorKind::usage, "{} {}: the file is also an input", option, path);
    }
  }
  if (exists && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return;
  for (const std::string& pool : source_pools) {
    if (is_within(whole_path(path), whole_path(pool))) {
      throw Error(ErrorKind::usage, "{} {}: the file is in the pool {}", option, path, pool);
    }
  }
}

// The same for a stream that goes to an input: it would read its own answers and never end.
void refuse_sources(std::FILE* stream, std::string_view name) {
  struct stat status, other;
  if (::fstat(::fileno(stream), &status) != 0 || !S_ISREG(status.st_mode)) return;
  for (const std::string& input : all_sources()) {
    if (file_status(input, other) && same_file(status, other)) {
      throw Error(ErrorKind::usage, "{}: the file is also an input, {}", name,
                  input == "-" ? "standard input" : input);
    }
  }
}

}  // namespace

void add_source(const std::string& file) { source_files.push_back(file); }

void add_source_pool(const std::string& folder) { source_pools.push_back(folder); }

CLI::Option* names_source(CLI::Option* option) { return option->each(add_source); }

void InputOptions::add(CLI::App& app, const std::string& otherwise) {
  app.add_option("--input-format", format, "Format of the input; default: text")
      ->check(CLI::IsMember({"text", "jsonl", "u16", "i32", "npy"}))
      ->type_name("FORMAT");
  CLI::Option* sequences =
      app.add_option("FILE", files,
                     fmt::format("Sequences of token ids, - for standard input; without FILE: {}",
                                 otherwise.empty() ? "standard input" : otherwise));
  names_source(sequences)->type_name("");
  if (otherwise.empty()) source_lines = this;
}

void InputOptions::check_readable() const {
  if (files.empty() && ::isatty(STDIN_FILENO) != 0) {
    throw Error(ErrorKind::usage,
                "no input: name a FILE or pipe token ids in ('-' reads the terminal)");
  }
  for (const std::string& file : files) {
    struct stat status;
    if (file == "-") continue;
    if (!file_status(file, status) || ::access(file.c_str(), R_OK) != 0) {
      throw Error(ErrorKind::usage, "{}: {}", file, std::strerror(errno));
    }
    if (S_ISDIR(status.st_mode)) {
      throw Error(ErrorKind::usage, "{}: {}", file, std::strerror(EISDIR));
    }
  }
}

std::optional<std::int64_t> InputOptions::count_lines() const {
  const TokenFormat wanted = token_format();
  if (files.empty() || (wanted != TokenFormat::text && wanted != TokenFormat::jsonl)) {
    return std::nullopt;
  }
  std::int64_t lines = 0;
  for (const std::string& file : files) {
    struct stat status;
    if (file == "-" || !file_status(file, status) || !S_ISREG(status.st_mode)) return std::nullopt;
    for (TokenReader reader(file, wanted, {}); reader.skip();) ++lines;
  }
  return lines;
}

void InputOptions::for_each_line(TokenLimits limits,
                                 const std::function<void(TokenLine)>& take) const {
  check_readable();
  TokenFiles lines(files, token_format(), limits);
  while (std::optional<TokenLine> line = lines.next()) take(std::move(*line));
}

void InputOptions::for_each(TokenLimits limits, const std::function<void(TokenLine)>& take) const {
  if (files.size() > 1) {  // file by file, so that messages can name the file
    for (const std::string& file : files) InputOptions{{file}, format}.for_each(limits, take);
    return;
  }
  const std::string name = files.empty() || files.front() == "-" ? "standard input" : files.front();
  bool any = false;
  for_each_line(limits, [&](TokenLine line) {
    any = true;
    if (!line.error.empty()) throw Error(ErrorKind::usage, "{}", line.error);
    if (line.ids.empty()) {
      throw Error(ErrorKind::usage, "{}:{}:1: the sequence is empty", name, line.number);
    }
    take(std::move(line));
  });
  if (!any) throw Error(ErrorKind::usage, "{}:1:1: there is no sequence", name);
}

std::vector<TokenLine> InputOptions::read_all(TokenLimits limits) const {
  std::vector<TokenLine> lines;
  for_each(limits, [&](TokenLine line) { lines.push_back(std::move(line)); });
  return lines;
}

void for_line(const TokenLine& line, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device && error.kind() != ErrorKind::usage) throw;
    throw Error(error.kind(), "{}:{}: {}", line.file, line.number, error.what());
  }
}

void check_outputs(const std::vector<OutputName>& outputs) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    const auto& [option, path, only_file] = *output;
    if (path == "-") {
      const bool answer = option != "--stats";
      refuse_sources(answer ? stdout : stderr, answer ? "standard output" : "standard error");
    }
    if (path.empty() || path == "-") continue;
    refuse_sources(path, option);
    struct stat status;
    const bool exists = file_status(path, status);
    if (exists && S_ISDIR(status.st_mode)) {
      throw Error(ErrorKind::usage, "{} {}: {}", option, path, std::strerror(EISDIR));
    }
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    struct stat folder_status;
    if (!exists && !folder.empty() && !file_status(folder.string(), folder_status)) {
      throw Error(ErrorKind::io, "{} {}: {}", option, path, std::strerror(ENOENT));
    }
    if (exists && !S_ISREG(status.st_mode) && only_file) {
      throw Error(ErrorKind::usage, "{} {}: is not a regular file", option, path);
    }
    if (exists && !S_ISREG(status.st_mode)) continue;  // a device or pipe accepts several outputs
    for (auto other = outputs.begin(); other != output; ++other) {
      if (other->path.empty() || other->path == "-") continue;
      struct stat other_status;
      const bool same =
          exists ? file_status(other->path, other_status) && same_file(status, other_status)
                 : whole_path(path) == whole_path(other->path);
      if (same) {
        throw Error(ErrorKind::usage, "{} and {} name the same file: {}", other->option, option,
                    path);
      }
    }
  }
}

bool is_standard_error(const OutputName& output) {
  if (output.path.empty() || output.path == "-")
    return output.path == "-" && output.option == "--stats";
  struct stat status, error;
  if (!file_status(output.path, status) || ::fstat(STDERR_FILENO, &error) != 0) return false;
  return same_file(status, error) && (!S_ISCHR(error.st_mode) || ::isatty(STDERR_FILENO) != 0);
}

void Sink::open(const std::string& path, std::FILE* standard, std::string_view name,
                std::string_view option, FileKind kind) {
  name_ = path == "-" ? std::string(name) : path;
  if (path == "-") {
    refuse_sources(standard, name);
    stream_ = standard;
    return;
  }
  struct stat status;
  const auto make_file = [&] {
    refuse_sources(path, option);
    if (kind == FileKind::whole) {
      file_ = std::make_unique<AtomicFile>(path);
    } else {
      log_ = std::make_unique<LineLog>(path, kind == FileKind::further_log);
    }
  };
  if (!file_status(path, status)) return make_file();
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorKind::usage, "{} {}: {}", option, path, std::strerror(EISDIR));
  }
  stream_ = stream_to(status);
  if (stream_ != nullptr) return refuse_sources(stream_, option);
  if (S_ISREG(status.st_mode)) return make_file();
  // A device or a pipe is written, not replaced.
  owned_.reset(std::fopen(path.c_str(), "we"));
  if (!owned_) throw Error(ErrorKind::io, "{}: {}", path, std::strerror(errno));
  stream_ = owned_.get();
}

void Sink::write(std::string_view text) {
  if (file_) return file_->write(text);
  if (log_) return log_->write(text);
  if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size()) {
    throw Error(ErrorKind::io, "{}: {}", name_, std::strerror(errno));
  }
}

void Sink::flush() {
  if (stream_ != nullptr && std::fflush(stream_) != 0) {
    throw Error(ErrorKind::io, "{}: {}", name_, std::strerror(errno));
  }
}

void Sink::finish() {
  if (file_) {
    file_->commit();
    file_.reset();
    return;
  }
  if (log_) return log_->close();
  flush();
  if (owned_ && std::fclose(owned_.release()) != 0) {
    throw Error(ErrorKind::io, "{}: {}", name_, std::strerror(errno));
  }
}

void Output::add(CLI::App& app) {
  app.add_option("-o,--output", path_,
                 "Write the answer to this file, which appears when it is complete")
      ->type_name("FILE");
}

void Output::open() { sink_.open(path_, stdout, "standard output", "--output"); }

bool Output::makes_file() const {
  struct stat status;
  if (!is_file()) return false;
  return !file_status(path_, status) || (S_ISREG(status.st_mode) && stream_to(status) == nullptr);
}

std::string Output::real_path() const {
  std::error_code unknown;
  if (!std::filesystem::is_symlink(path_, unknown)) return path_;
  return whole_path(path_).string();
}

void StatsOutput::add(CLI::App& app) {
  app.add_flag("--stats", path_,
               "Write statistics, one JSON object per line, to standard error or, with "
               "--stats=FILE, to a file")
      ->type_name("[=FILE]");
}

void StatsOutput::open(bool go_on) {
  if (!wanted()) return;
  // CLI11 calls a flag without a value "true"; a file of that name is ./true
  sink_.open(path_ == "true" ? "-" : path_, stderr, "standard error", "--stats",
             go_on ? FileKind::further_log : FileKind::new_log);
}

void StatsOutput::write(std::string_view line) {
  if (!wanted()) return;
  sink_.write(line);
  sink_.flush();
}

void StatsOutput::finish() {
  if (wanted()) sink_.finish();
}

std::int64_t peak_resident_bytes() {
  // Not getrusage: there a process starts with its parent's peak.
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "VmHWM:" && file >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace tinyloop::cli
