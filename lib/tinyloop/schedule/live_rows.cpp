// SPDX-License-Identifier: Apache-2.0
// Moves rows, follows the exit rule.
#include "tinyloop/schedule/live_rows.h"

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

void LiveRows::enter(std::span<LiveRow* const> rows) {
  std::vector<Row> entering, watched;
  for (const LiveRow* row : rows) {
    entering.push_back(row->row);
    if (row->ruled) watched.push_back(row->row);
  }
  forward_.enter(entering);
  watch_.entered(watched);
}

std::int64_t LiveRows::pass(std::span<LiveRow* const> rows) {
  std::vector<Row> moving, watched;
  const DecodeStats* counted = nullptr;
  for (const LiveRow* row : rows) {
    if (row->done) continue;
    moving.push_back(row->row);
    // The rows of a stream stand side by side.
    if (row->stats != counted) ++row->stats->passes;
    counted = row->stats;
    ++row->stats->rows;
    ++row->stats->loops_run;
  }
  if (moving.empty()) return 0;
  forward_.pass(moving);
  std::size_t moved = 0;
  for (LiveRow* row : rows) {
    if (row->done) continue;
    row->row = moving[moved++];
    if (row->ruled) watched.push_back(row->row);
  }
  const std::vector<bool> leaves = watch_.passed(watched);
  std::vector<Row> early;
  std::size_t seen = 0;
  for (LiveRow* row : rows) {
    if (row->done) continue;
    const bool last = row->row.loop == forward_.plan().loops;
    const bool let_go = row->ruled && leaves[seen++];
    if (row->exit_loops == 0 && (let_go || last)) {
      row->exit_loops = row->row.loop;
      if (row->select_only) forward_.copy_slot(lanes_ + row->row.slot, row->row.slot);
      if (!row->select_only && !last) early.push_back(row->row);
    }
    row->done = last || (row->exit_loops > 0 && !row->select_only);
  }
  if (!early.empty()) forward_.end_early(early);
  return static_cast<std::int64_t>(moving.size());
}

std::span<const float> LiveRows::leave(std::span<LiveRow* const> rows) {
  std::vector<std::int32_t> all(rows.size());
  std::iota(all.begin(), all.end(), 0);
  return leave(rows, all);
}

std::span<const float> LiveRows::leave(std::span<LiveRow* const> rows,
                                       std::span<const std::int32_t> wanted) {
  std::vector<Row> leaving;
  for (const LiveRow* row : rows) {
    leaving.push_back(row->row);
    if (row->select_only && row->exit_loops > 0) leaving.back().slot += lanes_;
  }
  return forward_.leave(leaving, wanted);
}

void LiveRows::confirm(const LiveRow& row) {
  ++row.stats->exits[static_cast<std::size_t>(row.exit_loops - 1)];
  row.stats->loops_saved += forward_.plan().loops - row.row.loop;
}

}  // namespace tinyloop
