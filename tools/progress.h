// SPDX-License-Identifier: Apache-2.0
// The line, or the objects, that show a long run's progress. Measures only time.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tinyloop::cli {

// One line on a terminal that is written over itself; nothing elsewhere, or with --quiet.
class ProgressLine {
 public:
  ProgressLine() = default;
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  static bool wanted();
  void show(const std::string& text);
  // "12 of 96 prefixes", when the time has come for another look.
  void show(std::int64_t done, std::int64_t total, std::string_view unit);
  void clear();
  void keep();  // the line stays and the next one is another

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_{};
  bool shown_ = false;
};

// The progress of a batch: one line on a terminal, overwritten, or a JSON object per second.
// Both go to standard error; nothing is shown if that is not a terminal and JSON was not requested.
class Progress {
 public:
  struct State {
    std::int64_t done = 0;      // of `total`, all runs together
    std::int64_t done_now = 0;  // by this one
    std::optional<std::int64_t> total;
    std::int64_t errors = 0, tokens = 0;
    std::int32_t busy = 0, lanes = 0;
    std::int64_t pool_hits = 0, pool_misses = 0;
    bool pool = false;  // there is one
  };
  void add(CLI::App& app);  // --progress
  bool wanted() const;
  bool as_json() const { return form_ == "json"; }
  void show(const State& state);    // as often as one likes
  void finish(const State& state);  // the last state is always shown
  // Before anything else is written to standard error.
  void make_room() { line_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  void write(const State& state);

  std::string form_ = "line";
  Clock::time_point start_ = Clock::now(), last_{};
  ProgressLine line_;
};

}  // namespace tinyloop::cli
