// SPDX-License-Identifier: Apache-2.0
// Runs a tool: --help, --version, --completion, messages, exit codes. The contract is in
// tinyloop(7). Option groups are in options.h, input and output in streams.h.
#include "cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#include "tinyloop/backend.h"
#include "tinyloop/error.h"

namespace tinyloop::cli {
namespace {

// One tool a process, so one name; warn() is called where no app is at hand.
std::string tool_name;
bool quiet = false;
std::vector<std::string_view> command_line;

void complain(std::string_view library_message) {
  const std::string message = with_options(library_message);
  std::string line = fmt::format("{}: {}", tool_name, message);
  // One line an event, whatever a file name holds.
  std::replace_if(
      line.begin(), line.end(),
      [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }, '?');
  line += '\n';
  std::fputs(line.c_str(), stderr);
}

// For when there may be no memory for a message, or in a signal handler.
void complain_plainly(std::string_view text) {
  if (::write(2, tool_name.data(), tool_name.size()) > 0 &&
      ::write(2, text.data(), text.size()) > 0) {
  }
}

int out_of_memory() {
  complain_plainly(": out of memory\n");
  return kFailed;
}

std::terminate_handler usual_terminate = std::abort;

// Some destructors allocate, as those of JSON values do, and may not throw.
void end_at_terminate() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    ::_exit(out_of_memory());
  } catch (...) {
  }
  usual_terminate();
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

// Files are mapped, and one that is truncated while in use ends the process. Incomplete outputs
// have no name yet.
extern "C" void end_at_bus_error(int) {
  complain_plainly(
      ": a model, state or pool entry was truncated while in use, or its disk failed\n");
  ::_exit(kFailed);
}

// CLI11's text as one line in the style of all other messages.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  // Checked before missing options: a misspelt option is often why.
  if (const std::vector<std::string> rest = app.remaining(); !rest.empty()) {
    const std::string& first = rest.front();
    if (first.size() > 1 && first.front() == '-') {
      return fmt::format("unknown option {}; --help lists all", first.substr(0, first.find('=')));
    }
    return fmt::format("unexpected argument {}", first);
  }
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (text.find("flag override") != std::string::npos) {
    return fmt::format("--{}: takes no value", text.substr(0, text.find(' ')));
  }
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

// Refuses empty values, most often from unset shell variables. "--name=" is
// refused before CLI11 takes the next argument for the value.
void refuse_empty_values(CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--") && word.ends_with('=')) {
      throw Error(ErrorKind::usage, "{}: the value is missing", word.substr(0, word.size() - 1));
    }
  }
  const auto not_empty = [](const std::string& value) {
    return value.empty() ? std::string("the value is empty") : std::string();
  };
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0) option->check(CLI::Validator(not_empty, ""));
  }
}

// If an option's value comes from the environment, the message names the variable.
std::string with_variable(const CLI::App& app, std::string message) {
  const std::string name = message.substr(0, message.find_first_of(": "));
  const CLI::Option* option = name.starts_with("--") ? app.get_option_no_throw(name) : nullptr;
  if (option == nullptr || option->get_envname().empty() || on_command_line(name)) return message;
  const char* value = std::getenv(option->get_envname().c_str());
  if (value == nullptr || *value == '\0') return message;
  return fmt::format("environment variable {}: {}", option->get_envname(), message);
}

// "--stats FILE": FILE is parsed as an input, since only "--stats=FILE" passes it to the option.
std::string with_likely_meaning(const CLI::App& app, const std::string& message) {
  for (std::size_t i = 1; i < command_line.size(); ++i) {
    const std::string before(command_line[i - 1]);
    const CLI::Option* option =
        before.starts_with("--") ? app.get_option_no_throw(before) : nullptr;
    if (option == nullptr || !option->get_type_name().starts_with("[=")) continue;
    if (!message.starts_with(std::string(command_line[i]) + ":")) continue;
    return fmt::format("{} (did you mean {}={}?)", message, before, command_line[i]);
  }
  return message;
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

// Something to print instead of running the tool.
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
         "Print a shell completion function and exit")
      ->check(CLI::IsMember({"bash"}))
      ->type_name("SHELL")
      ->trigger_on_parse();
  app.add_flag("-q,--quiet", quiet, "Do not print warnings or progress");
}

int run_body(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  try {
    refuse_empty_values(app, argc, argv);
    for (CLI::Option* option : app.get_options()) {  // so that "--quiet=false" is refused
      if (option->get_type_name().empty()) option->disable_flag_override();
      // "--stats=a --stats=b": CLI11 takes the last value of a flag.
      if (option->get_type_name().starts_with("[=")) {
        option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
      }
    }
    app.parse(argc, argv);
    return body();
  } catch (const Notice& notice) {
    try {
      print(notice.text);
    } catch (const Error& error) {
      complain(error.what());
      return kFailed;
    }
    return kDone;
  } catch (const CLI::ParseError& error) {
    complain(with_variable(app, parse_message(app, error)));
    return kUsage;
  } catch (const Error& error) {
    complain(with_likely_meaning(app, with_variable(app, error.what())));
    return error.kind() == ErrorKind::usage ? kUsage : kFailed;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::length_error&) {  // a container asked for more than possible
    return out_of_memory();
  } catch (const std::exception& error) {
    complain(error.what());
    return kFailed;
  }
}

// The body, and its output to the end.
int run_and_flush(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  const int code = run_body(app, argc, argv, body);
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (code != kFailed && code != kUsage && (!flushed || std::ferror(stdout) != 0)) {
    complain(fmt::format("standard output: {}", errno != 0 ? std::strerror(errno) : "write error"));
    return kFailed;
  }
  return code;
}

}  // namespace

int run(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  occupy_standard_descriptors();
  // A closed pipe ends the tool quietly; a parent may have left the signal ignored.
  std::signal(SIGPIPE, SIG_DFL);
  struct sigaction cut {};
  cut.sa_handler = end_at_bus_error;
  ::sigaction(SIGBUS, &cut, nullptr);
  usual_terminate = std::set_terminate(end_at_terminate);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk
  tool_name = app.get_name();
  command_line.assign(argv + 1, argv + argc);
  try {
    add_common_options(app);
    return run_and_flush(app, argc, argv, body);
  } catch (const std::bad_alloc&) {  // while another failure was reported
    return out_of_memory();
  }
}

std::string with_options(std::string_view message) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyz_";
  std::string text;
  while (!message.empty()) {
    const std::size_t open = message.find('`');
    const std::size_t end =
        open == std::string_view::npos ? open : message.find_first_not_of(kName, open + 1);
    if (end == std::string_view::npos || end == open + 1 || message[end] != '`') {
      const std::size_t plain = std::min(open, message.size() - 1) + 1;  // and a lone backtick
      text += message.substr(0, plain);
      message.remove_prefix(plain);
      continue;
    }
    std::string option(message.substr(open + 1, end - open - 1));
    std::ranges::replace(option, '_', '-');
    text += fmt::format("{}--{}", message.substr(0, open), option);
    message.remove_prefix(end + 1);
  }
  return text;
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
  const int error = errno;
  throw Error(ErrorKind::io, "standard output: {}", std::strerror(error));
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
