// SPDX-License-Identifier: Apache-2.0
// The line, or the objects, that show a long run's progress. Measures only time.
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli.h"
#include "tinyloop/files/json_object.h"

namespace tinyloop::cli {
namespace {

constexpr std::chrono::milliseconds kLineEvery{200}, kObjectEvery{1000};

std::string left_in_words(double seconds) {
  if (seconds < 60.0) return fmt::format("{:.0f} s", seconds);
  if (seconds < 3600.0) return fmt::format("{:.0f} min", seconds / 60.0);
  return fmt::format("{:.1f} h", seconds / 3600.0);
}

}  // namespace

bool ProgressLine::wanted() { return !is_quiet() && ::isatty(STDERR_FILENO) != 0; }

void ProgressLine::show(const std::string& text) {
  if (!wanted()) return;
  std::fputs(("\r" + text + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::show(std::int64_t done, std::int64_t total, std::string_view unit) {
  const Clock::time_point now = Clock::now();
  if (now - last_ < kLineEvery && done < total) return;
  last_ = now;
  show(fmt::format("{} of {} {}", done, total, unit));
}

void ProgressLine::clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

void ProgressLine::keep() {
  if (shown_) std::fputc('\n', stderr);
  shown_ = false;
}

void Progress::add(CLI::App& app) {
  app.add_option("--progress", form_,
                 "Progress on standard error: a line if it is a terminal, JSON objects, or none")
      ->check(CLI::IsMember({"line", "json", "off"}))
      ->type_name("FORM")
      ->default_str("line");
}

bool Progress::wanted() const { return as_json() || (form_ == "line" && ProgressLine::wanted()); }

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
  line_.keep();
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
    JsonObject object;
    object.add("done", state.done)
        .add("total", state.total)
        .add("errors", state.errors)
        .add("tokens", state.tokens)
        .add("seconds", seconds, 3)
        .add("tokens_per_second", rate, 3)
        .add("lanes_busy", state.busy)
        .add("lanes", state.lanes)
        .add("pool_hits", state.pool_hits)
        .add("pool_misses", state.pool_misses)
        .add("seconds_left", left, 0);
    std::fputs(object.line().c_str(), stderr);
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
  line_.show(line);
}

}  // namespace tinyloop::cli
