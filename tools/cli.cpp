// SPDX-License-Identifier: Apache-2.0
// Runs a tool: --help, --version, --completion, messages, exit codes. The contract is in
// tinyloop(7). Option groups are in cli_options.cpp, input and output in cli_streams.cpp.
#include "cli.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <stdexcept>

#include "device/backend.h"

namespace tinyloop::cli {
namespace {

// One tool a process, so one name; warn() is called where no app is at hand.
std::string tool_name;
bool quiet = false;
std::vector<std::string_view> command_line;

void complain(std::string_view message) {
  std::string line = fmt::format("{}: {}", tool_name, message);
  // One line an event, whatever a file name holds.
  std::replace_if(
      line.begin(), line.end(),
      [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }, '?');
  line += '\n';
  std::fputs(line.c_str(), stderr);
}

// A closed standard stream would lend its number to the next file opened, and an answer could end
// up there. The stand-ins refuse what the stream is for.
void occupy_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) == -1 && errno == EBADF) {
      if (::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY) < 0) return;
    }
  }
}

// CLI11's text made one line in the manner of all others.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  // Before what is missing: a misspelt option is often why.
  if (const std::vector<std::string> rest = app.remaining(); !rest.empty()) {
    const std::string& first = rest.front();
    if (first.size() > 1 && first.front() == '-') {
      return fmt::format("unknown option {}", first.substr(0, first.find('=')));
    }
    return fmt::format("unexpected argument {}", first);
  }
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  const std::string name = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (text.find("At Most") != std::string::npos) return name + ": given more than once";
    if (text.find("missing") != std::string::npos) return name + ": the value is missing";
  }
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

// "--name=" without a value: CLI11 would take the next argument for it.
void refuse_empty_values(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--") && word.ends_with('=')) {
      throw Error(ErrorKind::usage, "{}: the value is missing", word.substr(0, word.size() - 1));
    }
  }
}

// A function over the app's own options, so that no list has to be kept.
std::string bash_completion(const CLI::App& app) {
  std::string function = "_" + app.get_name();
  std::replace_if(
      function.begin(), function.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  std::string words, with_file, cases;
  for (const CLI::Option* option : app.get_options()) {
    std::string names;
    for (const std::string& name : option->get_snames()) names += fmt::format("|-{}", name);
    for (const std::string& name : option->get_lnames()) {
      names += fmt::format("|--{}", name);
      words += fmt::format(" --{}", name);
    }
    if (names.empty() || option->get_items_expected_max() == 0) continue;
    // An enumeration's check calls itself {a,b,c}; other values are completed as file names.
    const std::string type = option->get_type_name();
    const std::size_t open = type.find('{'), close = type.find('}');
    if (open == std::string::npos || close == std::string::npos) {
      with_file += names;
      continue;
    }
    std::string values = type.substr(open + 1, close - open - 1);
    std::replace(values.begin(), values.end(), ',', ' ');
    cases += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                         names.substr(1), values);
  }
  if (!with_file.empty()) cases += fmt::format("    {}) return ;;\n", with_file.substr(1));
  return fmt::format(
      "{0}() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  COMPREPLY=()\n"
      "  case $before in\n{1}  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W '{2}' -- \"$word\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o default -F {0} {3}\n",
      function, cases, words.substr(1), app.get_name());
}

// Something to print in place of running the tool.
struct Notice {
  std::string text;
};

void add_common_options(CLI::App& app) {
  app.set_help_flag();  // ours acts as soon as it is read, before anything can be missing
  app.add_flag_callback(
         "-h,--help", [&app] { throw Notice{app.help()}; }, "Print this help and exit")
      ->trigger_on_parse();
  app.add_flag_callback(
         "--version",
         [&app] {
           throw Notice{fmt::format("{} {}{}\n", app.get_name(), TL_VERSION,
                                    have_cuda() ? " with CUDA" : "")};
         },
         "Print the version and exit")
      ->trigger_on_parse();
  app.add_option_function<std::string>(
         "--completion", [&app](const std::string&) { throw Notice{bash_completion(app)}; },
         "Print a completion function for the shell and exit")
      ->check(CLI::IsMember({"bash"}))
      ->type_name("SHELL")
      ->trigger_on_parse();
  app.add_flag("-q,--quiet", quiet, "No warnings");
}

int run_body(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  try {
    refuse_empty_values(argc, argv);
    app.parse(argc, argv);
    return body();
  } catch (const Notice& notice) {
    std::fputs(notice.text.c_str(), stdout);
    return kDone;
  } catch (const CLI::ParseError& error) {
    complain(parse_message(app, error));
    return kUsage;
  } catch (const Error& error) {
    complain(error.what());
    return error.kind() == ErrorKind::usage ? kUsage : kFailed;
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::length_error&) {  // a container asked for more than there can be
    complain("out of memory");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return kFailed;
}

}  // namespace

int run(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  occupy_standard_descriptors();
  // A closed pipe ends the tool quietly; a parent may have left the signal ignored.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk
  tool_name = app.get_name();
  command_line.assign(argv + 1, argv + argc);
  add_common_options(app);
  const int code = run_body(app, argc, argv, body);

  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (code != kFailed && code != kUsage && (!flushed || std::ferror(stdout) != 0)) {
    complain(fmt::format("standard output: {}", errno != 0 ? std::strerror(errno) : "write error"));
    return kFailed;
  }
  return code;
}

bool on_command_line(std::string_view option) {
  return std::ranges::any_of(command_line, [&](std::string_view word) {
    return word.substr(0, word.find('=')) == option;
  });
}

void warn(const std::string& message) {
  if (!quiet) complain("warning: " + message);
}

bool is_quiet() { return quiet; }

}  // namespace tinyloop::cli
