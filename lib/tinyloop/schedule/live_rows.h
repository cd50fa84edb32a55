// SPDX-License-Identifier: Apache-2.0
// The rows of a schedule on their way from loop 0 to their last one: passes are counted here and
// exit rules obeyed, so that schedules only choose who moves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tinyloop/schedule/exit_rule.h"
#include "tinyloop/schedule/request.h"

namespace tinyloop {

struct LiveRow {
  Row row;
  DecodeStats* stats = nullptr;  // of the stream it belongs to
  bool ruled = true;             // follows the exit rule; false: does all loops
  bool select_only = false;      // as the rule's
  bool done = false;             // has done all the loops it will do
  std::int32_t exit_loops = 0;  // loops that the state for coda and head has behind it, once chosen
};

class LiveRows {
 public:
  // Rows under the rule use the slots 0 .. lanes-1 and, if there is one, another `lanes` behind
  // them. `stats`: of the rows made by at().
  LiveRows(Forward& forward, const ExitRule& rule, DecodeStats& stats, std::int32_t lanes);

  LiveRow at(const Row& row) const { return {row, &stats_, true, rule_.select_only, false, 0}; }
  void enter(std::span<LiveRow> rows) { enter(all_of(rows)); }
  void enter(std::span<LiveRow* const> rows);
  // One loop for those that are not done; returns how many these are.
  std::int64_t pass(std::span<LiveRow> rows) { return pass(all_of(rows)); }
  std::int64_t pass(std::span<LiveRow* const> rows);
  // Logits [rows][vocab] of the rows as they stand, or of the state their exit chose.
  std::span<const float> leave(std::span<LiveRow> rows) { return leave(all_of(rows)); }
  std::span<const float> leave(std::span<LiveRow* const> rows);
  // The same, with logits [wanted][vocab] of some of them only.
  std::span<const float> leave(std::span<LiveRow* const> rows,
                               std::span<const std::int32_t> wanted);
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
