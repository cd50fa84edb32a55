// SPDX-License-Identifier: Apache-2.0
// The rows of a schedule on their way from loop 0 to their last one: passes are counted here and
// exit rules obeyed, so that schedules only choose who moves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/decode.h"
#include "schedule/exit_rule.h"

namespace tinyloop {

struct LiveRow {
  Row row;
  bool done = false;            // has done all the loops it will do
  std::int32_t exit_loops = 0;  // loops that the state for coda and head has behind it, once chosen
};

class LiveRows {
 public:
  // Rows use the slots 0 .. lanes-1 and, with an exit rule, another `lanes` behind them.
  LiveRows(Forward& forward, const ExitRule& rule, DecodeStats& stats, std::int32_t lanes);

  LiveRow at(const Row& row) const { return {row, false, 0}; }
  void enter(std::span<LiveRow> rows);
  // One loop for those that are not done.
  void pass(std::span<LiveRow> rows) { pass(all_of(rows)); }
  void pass(std::span<LiveRow* const> rows);
  // Logits [rows][vocab] of the rows as they stand, or of the state their exit chose.
  std::span<const float> leave(std::span<LiveRow> rows) { return leave(all_of(rows)); }
  std::span<const float> leave(std::span<LiveRow* const> rows);
  // A token was picked from this row's last logits.
  void confirm(const LiveRow& row);
  // leave() for one row whose logits stay on the device; see Forward::leave_on_device.
  void leave_on_device(const LiveRow& row);

 private:
  static std::vector<LiveRow*> all_of(std::span<LiveRow> rows);

  Forward& forward_;
  ExitRule rule_;
  ExitWatch watch_;
  DecodeStats& stats_;
  std::int32_t lanes_;
};

}  // namespace tinyloop
