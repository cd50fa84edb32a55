// SPDX-License-Identifier: Apache-2.0
// How the queries of an attention are cut into tiles that read the same blocks of positions.
// Computes nothing of the attention, and how large a tile may be is the device's business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tinyloop/device/ops.h"

namespace tinyloop {

// Queries of one kv head that share sequence and plane: `count` of them from query `first` of the
// rows from `row` on, query i being head i % group of row i / group.
struct QueryTile {
  std::int64_t row = 0, first = 0;
  int count = 0;
  std::int64_t first_block = 0, blocks = 0;  // of positions that any of them sees
  std::int64_t first_unit = 0;               // blocks of the tiles before this one
};

// Cuts runs of rows that share sequence and plane into tiles of at most `most` queries; `group`:
// heads that share a kv head; window as in AttentionShape. `tiles` is filled anew.
void list_query_tiles(std::vector<QueryTile>& tiles, std::span<const KvRow> rows,
                      std::int64_t group, std::int64_t window, int most);

}  // namespace tinyloop
