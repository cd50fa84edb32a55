// SPDX-License-Identifier: Apache-2.0
// Runs a tool: exit codes, messages, checked standard output.
// Not the options of any tool and not its files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tinyloop::cli {

inline constexpr int kDone = 0, kFailed = 1, kUsage = 2, kPart = 3;

// Runs a tool: adds --help, --version, --completion and --quiet to `app` (which the caller has
// filled and named), parses argv, runs `body`, flushes and checks standard output, and turns every
// exception into one line "tool: message" on stderr and the exit code. Body returns the exit code.
// --help, --version and --completion need nothing else to be given.
int run(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

// On standard output. Throws Error(io) naming the cause, which is lost if a later flush finds it.
void print(const std::string& text);

// A library's message with `top_p` as --top-p, which is what every tool calls it.
std::string with_options(std::string_view message);

// "tool: warning: ..." on stderr unless --quiet was given.
void warn(const std::string& message);
bool is_quiet();

// Whether the option is on the command line; a default from the environment does not count.
bool on_command_line(std::string_view option);

// The peak memory of this process so far, including mapped files.
std::int64_t peak_resident_bytes();

}  // namespace tinyloop::cli
