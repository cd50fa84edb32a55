// SPDX-License-Identifier: Apache-2.0
// An identity's entries in the order of their ids, kept in a file IDENTITY.order, so that the entry
// that shares the most ids with a prompt is found by bisection. Derived and never trusted: a
// file whose hash does not match is ignored, names that no longer exist are skipped, missing names
// are examined one by one, and the caller compares what is found id by id.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/kv/cache_identity.h"
#include "tinyloop/token.h"

namespace tinyloop {

// The ids of an entry, valid until the lookup ends; no value if it cannot be read.
using IdsOf = std::function<std::optional<std::span<const TokenId>>(const EntryKey&)>;

std::int64_t shared_length(std::span<const TokenId> a, std::span<const TokenId> b);

// The entries of `present` that share the most leading ids with `ids`, best first; at most a few,
// and only those that share any. `order` as read from the file.
std::vector<EntryKey> most_similar(std::span<const TokenId> ids, std::vector<EntryKey> present,
                                   const std::vector<EntryKey>& order, const IdsOf& ids_of);

struct Order {
  // The state of the listing that the keys are from, see PoolFolder::listing_state; 0: unknown.
  std::int64_t listing = 0;
  std::vector<EntryKey> keys;
};

// If missing, unreadable or altered in any byte: empty, with an unknown listing.
Order read_order(const std::string& path);

// `present` in order of ids, keeping those already in `order` in place.
std::vector<EntryKey> updated_order(std::vector<EntryKey> present,
                                    const std::vector<EntryKey>& order, const IdsOf& ids_of);

// Throws Error(io).
void write_order(const std::string& path, const Order& order);

}  // namespace tinyloop
