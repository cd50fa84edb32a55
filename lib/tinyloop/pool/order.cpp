// SPDX-License-Identifier: Apache-2.0
// Bisection over entries by their ids, and the file that stores the order.
#include "tinyloop/pool/order.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>

#include "tinyloop/error.h"
#include "tinyloop/files/temporary_file.h"
#include "tinyloop/files/text_file.h"

namespace tinyloop {

namespace {

constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kNeighbours = 4;      // looked at on each side of the prompt's place
constexpr std::size_t kMostUnordered = 64;  // missing in the order and looked at one by one

struct Split {
  std::vector<EntryKey> ordered, rest;
};

// Those of `order` that are present, and those present that it lacks.
Split split(std::vector<EntryKey> present, const std::vector<EntryKey>& order) {
  if (present == order) return {order, {}};
  const auto by_hash = [](const EntryKey& a, const EntryKey& b) { return a.low < b.low; };
  std::sort(present.begin(), present.end(), by_hash);
  std::vector<bool> taken(present.size());
  Split result;
  result.ordered.reserve(order.size());
  for (const EntryKey& key : order) {
    auto at = std::lower_bound(present.begin(), present.end(), key, by_hash);
    while (at != present.end() && at->low == key.low && *at != key) ++at;
    if (at == present.end() || *at != key) continue;
    const auto index = static_cast<std::size_t>(at - present.begin());
    if (taken[index]) continue;
    taken[index] = true;
    result.ordered.push_back(key);
  }
  for (std::size_t i = 0; i < present.size(); ++i) {
    if (!taken[i]) result.rest.push_back(present[i]);
  }
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

// What comes before and after the hash's digits in the file of `order`.
struct OrderText {
  std::string before, after = "\n";

  explicit OrderText(const Order& order)
      : before(fmt::format("listing {} keys {} xxh3 ", order.listing, order.keys.size())) {
    for (const EntryKey& key : order.keys) after += key.text() + "\n";
  }
  std::string whole() const {
    const std::string hashed = before + after;
    return fmt::format("{}{:0{}x}{}", before, XXH3_64bits(hashed.data(), hashed.size()),
                       kHashDigits, after);
  }
};

// The number after `name` at the start of `text`, which goes on behind it.
bool take_number(std::string_view& text, std::string_view name, std::int64_t& number) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc();
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

Order read_order(const std::string& path) {
  Order order;
  constexpr std::int64_t kMost = std::int64_t{64} << 20;  // of a million entries
  std::string text;
  try {
    text = read_text_file(path, kMost);
  } catch (const Error&) {  // it is made anew from the entries
    return order;
  }
  std::string_view rest = text;
  std::int64_t keys = 0;
  if (!take_number(rest, "listing ", order.listing) || !take_number(rest, " keys ", keys))
    return {};
  rest = rest.substr(std::min(rest.find('\n'), rest.size()));
  while (rest.size() > 1) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const auto key = EntryKey::parse(rest.substr(0, end));
    if (!key) return {};
    order.keys.push_back(*key);
    rest.remove_prefix(end);
  }
  // Every byte counts, those that the reading above stepped over too.
  if (keys != static_cast<std::int64_t>(order.keys.size()) || OrderText(order).whole() != text) {
    return {};
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

void write_order(const std::string& path, const Order& order) {
  AtomicFile file(path, true);
  file.write(OrderText(order).whole());
  file.commit();
}

}  // namespace tinyloop
