// SPDX-License-Identifier: Apache-2.0
// Bisection over entries by their ids, and the file that remembers the order.
#include "kv/pool_order.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <unordered_set>

#include "files/temporary_file.h"

namespace tinyloop {

namespace {

constexpr std::size_t kNeighbours = 4;      // looked at on each side of the prompt's place
constexpr std::size_t kMostUnordered = 64;  // missing in the order and looked at one by one

struct KeyHash {
  std::size_t operator()(const EntryKey& key) const { return key.low; }
};
using KeySet = std::unordered_set<EntryKey, KeyHash>;

struct Split {
  std::vector<EntryKey> ordered, rest;
};

Split split(std::vector<EntryKey> present, const std::vector<EntryKey>& order) {
  KeySet left(present.begin(), present.end());
  Split result;
  for (const EntryKey& key : order) {
    if (left.erase(key) > 0) result.ordered.push_back(key);
  }
  result.rest.assign(left.begin(), left.end());
  // Longest first, and the same on every machine.
  std::sort(result.rest.begin(), result.rest.end(), std::greater<>());
  return result;
}

// Where `ids` would stand; entries that cannot be read are stepped over.
std::size_t place_of(std::span<const TokenId> ids, const std::vector<EntryKey>& ordered,
                     const IdsOf& ids_of) {
  std::size_t first = 0, last = ordered.size();
  while (first < last) {
    const std::size_t middle = first + (last - first) / 2;
    std::size_t at = middle;
    std::optional<std::span<const TokenId>> there;
    while (at < last && !(there = ids_of(ordered[at]))) ++at;
    if (!there) {
      last = middle;
    } else if (std::ranges::lexicographical_compare(*there, ids)) {
      first = at + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

}  // namespace

std::int64_t shared_length(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

std::vector<EntryKey> most_similar(std::span<const TokenId> ids, std::vector<EntryKey> present,
                                   const std::vector<EntryKey>& order, const IdsOf& ids_of) {
  const Split keys = split(std::move(present), order);
  const std::size_t place = place_of(ids, keys.ordered, ids_of);
  const std::size_t first = place > kNeighbours ? place - kNeighbours : 0;
  const std::size_t last = std::min(place + kNeighbours, keys.ordered.size());
  std::vector<EntryKey> candidates(keys.ordered.begin() + static_cast<std::ptrdiff_t>(first),
                                   keys.ordered.begin() + static_cast<std::ptrdiff_t>(last));
  candidates.insert(
      candidates.end(), keys.rest.begin(),
      keys.rest.begin() + static_cast<std::ptrdiff_t>(std::min(kMostUnordered, keys.rest.size())));
  std::vector<std::pair<std::int64_t, EntryKey>> found;
  for (const EntryKey& key : candidates) {
    const auto there = ids_of(key);
    const std::int64_t shared = there ? shared_length(*there, ids) : 0;
    if (shared > 0) found.emplace_back(shared, key);
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<EntryKey> best;
  for (const auto& [shared, key] : found) best.push_back(key);
  return best;
}

std::vector<EntryKey> read_order(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<EntryKey> order;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (const auto key = EntryKey::parse(std::string_view(text).substr(begin, end - begin))) {
      order.push_back(*key);
    }
    begin = end + 1;
  }
  return order;
}

std::vector<EntryKey> updated_order(std::vector<EntryKey> present,
                                    const std::vector<EntryKey>& order, const IdsOf& ids_of) {
  Split keys = split(std::move(present), order);
  for (const EntryKey& key : keys.rest) {
    const auto ids = ids_of(key);
    if (!ids) continue;
    const std::size_t place = place_of(*ids, keys.ordered, ids_of);
    keys.ordered.insert(keys.ordered.begin() + static_cast<std::ptrdiff_t>(place), key);
  }
  return keys.ordered;
}

void write_order(const std::string& path, std::span<const EntryKey> order) {
  AtomicFile file(path);
  for (const EntryKey& key : order) file.write(key.text() + "\n");
  file.commit();
}

}  // namespace tinyloop
