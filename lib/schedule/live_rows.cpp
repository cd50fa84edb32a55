// SPDX-License-Identifier: Apache-2.0
// Moves rows, follows the exit rule.
#include "schedule/live_rows.h"

#include <cassert>
#include <numeric>

namespace tinyloop {

LiveRows::LiveRows(Forward& forward, const ExitRule& rule, DecodeStats& stats, std::int32_t lanes)
    : forward_(forward), rule_(rule), watch_(forward, rule), stats_(stats), lanes_(lanes) {
  assert(forward.slots() >= (rule.kind == ExitRule::Kind::none ? lanes : 2 * lanes));
}

void LiveRows::leave_on_device(const LiveRow& row) {
  Row leaving = row.row;
  if (rule_.select_only && row.exit_loops > 0) leaving.slot += lanes_;
  const std::int32_t wanted = 0;
  forward_.leave_on_device({&leaving, 1}, {&wanted, 1});
}

std::vector<LiveRow*> LiveRows::all_of(std::span<LiveRow> rows) {
  std::vector<LiveRow*> all;
  for (LiveRow& row : rows) all.push_back(&row);
  return all;
}

void LiveRows::enter(std::span<LiveRow> rows) {
  std::vector<Row> entering;
  for (const LiveRow& row : rows) entering.push_back(row.row);
  forward_.enter(entering);
  watch_.entered(entering);
}

void LiveRows::pass(std::span<LiveRow* const> rows) {
  std::vector<Row> moving;
  for (const LiveRow* row : rows) {
    if (!row->done) moving.push_back(row->row);
  }
  if (moving.empty()) return;
  forward_.pass(moving);
  ++stats_.passes;
  stats_.rows += static_cast<std::int64_t>(moving.size());
  stats_.loops_run += static_cast<std::int64_t>(moving.size());
  const std::vector<bool> leaves = watch_.passed(moving);
  std::vector<Row> early;
  std::size_t moved = 0;
  for (LiveRow* row : rows) {
    if (row->done) continue;
    row->row = moving[moved];
    const bool last = row->row.loop == forward_.plan().loops;
    if (row->exit_loops == 0 && (leaves[moved] || last)) {
      row->exit_loops = row->row.loop;
      if (rule_.select_only) forward_.copy_slot(lanes_ + row->row.slot, row->row.slot);
      if (!rule_.select_only && !last) early.push_back(row->row);
    }
    row->done = last || (row->exit_loops > 0 && !rule_.select_only);
    ++moved;
  }
  if (!early.empty()) forward_.end_early(early);
}

std::span<const float> LiveRows::leave(std::span<LiveRow* const> rows) {
  std::vector<Row> leaving;
  for (const LiveRow* row : rows) {
    leaving.push_back(row->row);
    if (rule_.select_only && row->exit_loops > 0) leaving.back().slot += lanes_;
  }
  std::vector<std::int32_t> all(rows.size());
  std::iota(all.begin(), all.end(), 0);
  return forward_.leave(leaving, all);
}

void LiveRows::confirm(const LiveRow& row) {
  ++stats_.exits[static_cast<std::size_t>(row.exit_loops - 1)];
  stats_.loops_saved += forward_.plan().loops - row.row.loop;
}

}  // namespace tinyloop
