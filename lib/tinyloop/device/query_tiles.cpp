// SPDX-License-Identifier: Apache-2.0
// One walk over the rows.
#include "tinyloop/device/query_tiles.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tinyloop {

void list_query_tiles(std::vector<QueryTile>& tiles, std::span<const KvRow> rows,
                      std::int64_t group, std::int64_t window, int most) {
  tiles.clear();
  std::int64_t units = 0;
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && rows[end].sequence == rows[begin].sequence &&
           rows[end].plane == rows[begin].plane) {
      ++end;
    }
    const std::int64_t queries = static_cast<std::int64_t>(end - begin) * group;
    for (std::int64_t first = 0; first < queries; first += most) {
      const auto count = static_cast<int>(std::min<std::int64_t>(queries - first, most));
      std::int64_t oldest = std::numeric_limits<std::int64_t>::max(), newest = 0;
      for (std::int64_t i = first / group; i <= (first + count - 1) / group; ++i) {
        const std::int64_t position = rows[begin + static_cast<std::size_t>(i)].position;
        oldest =
            std::min(oldest, window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0);
        newest = std::max(newest, position);
      }
      const std::int64_t blocks = newest / kBlock - oldest / kBlock + 1;
      tiles.push_back(
          {static_cast<std::int64_t>(begin), first, count, oldest / kBlock, blocks, units});
      units += blocks;
    }
    begin = end;
  }
}

}  // namespace tinyloop
