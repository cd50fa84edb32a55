// SPDX-License-Identifier: Apache-2.0
// The line, or the objects, that show a long run's progress. Measures only time.
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli.h"

namespace tinyloop::cli {
namespace {

constexpr std::chrono::milliseconds kLineEvery{200}, kObjectEvery{1000};

std::string left_in_words(double seconds) {
  if (seconds < 60.0) return fmt::format("{:.0f} s", seconds);
  if (seconds < 3600.0) return fmt::format("{:.0f} min", seconds / 60.0);
  return fmt::format("{:.1f} h", seconds / 3600.0);
}

}  // namespace

void Progress::add(CLI::App& app) {
  app.add_option("--progress", form_,
                 "Progress on standard error: a line if it is a terminal, JSON objects, or none")
      ->check(CLI::IsMember({"line", "json", "off"}))
      ->type_name("FORM")
      ->default_str("line");
}

bool Progress::wanted() const {
  return as_json() || (form_ == "line" && !is_quiet() && ::isatty(STDERR_FILENO) != 0);
}

void Progress::show(const State& state) {
  if (!wanted()) return;
  const Clock::time_point now = Clock::now();
  if (now - last_ < (as_json() ? kObjectEvery : kLineEvery)) return;
  last_ = now;
  write(state);
}

void Progress::finish(const State& state) {
  if (!wanted()) return;
  write(state);
  if (line_shown_) std::fputc('\n', stderr);
  line_shown_ = false;
}

void Progress::make_room() {
  if (line_shown_) std::fputs("\r\x1b[K", stderr);
  line_shown_ = false;
}

void Progress::write(const State& state) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = seconds > 0.0 ? static_cast<double>(state.tokens) / seconds : 0.0;
  std::optional<double> left;
  if (state.total && state.done_now > 0) {
    left = seconds * static_cast<double>(*state.total - state.done) /
           static_cast<double>(state.done_now);
  }
  if (as_json()) {
    std::fputs(fmt::format("{{\"done\":{},\"total\":{},\"errors\":{},\"tokens\":{},\"seconds\":"
                           "{:.3f},\"tokens_per_second\":{:.3f},\"lanes_busy\":{},\"lanes\":{},"
                           "\"pool_hits\":{},\"pool_misses\":{},\"seconds_left\":{}}}\n",
                           state.done, state.total ? fmt::format("{}", *state.total) : "null",
                           state.errors, state.tokens, seconds, rate, state.busy, state.lanes,
                           state.pool_hits, state.pool_misses,
                           left ? fmt::format("{:.0f}", *left) : "null")
                   .c_str(),
               stderr);
    return;
  }
  std::string line = fmt::format("{}", state.done);
  if (state.total) line += fmt::format(" / {}", *state.total);
  line += fmt::format("  {:.1f} tokens/s  {} of {} lanes", rate, state.busy, state.lanes);
  if (state.pool) {
    line += fmt::format("  pool {} of {}", state.pool_hits, state.pool_hits + state.pool_misses);
  }
  if (state.errors > 0) line += fmt::format("  {} errors", state.errors);
  if (left && state.done < *state.total) line += fmt::format("  {} left", left_in_words(*left));
  std::fputs(("\r" + line + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  line_shown_ = true;
}

}  // namespace tinyloop::cli
