// SPDX-License-Identifier: Apache-2.0
// What two runs must share before one may use the other's keys and values, and the names
// derived from it. Not files and not the values themselves.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tinyloop/files/hash_state.h"
#include "tinyloop/token.h"

namespace tinyloop {

inline constexpr int kSnapshotVersion = 2;

struct CacheIdentity {
  std::string model;          // fingerprint
  std::string arithmetic;     // of the device, "cpu-1"
  std::string kv;             // storage mode, those of store-h included
  std::string initial_state;  // "" if the model fixes it
  std::int32_t loops = 0;
  std::int64_t window = 0;

  bool operator==(const CacheIdentity&) const = default;
  // All fields and the snapshot version as lines; equal texts mean equal identities. Two lines are
  // the same in all: a prompt runs all its loops, each with planes of its own, whatever exit rule
  // and sharing of planes the answer goes on with.
  std::string text() const;
  // 32 hex digits, a hash of text(): the entry's folder in a pool.
  std::string folder() const;
};

// The name of an entry: its length and a hash of identity and ids, the same on every machine.
struct EntryKey {
  std::int64_t length = 0;
  std::uint64_t high = 0, low = 0;

  auto operator<=>(const EntryKey&) const = default;
  std::string text() const;  // "1024-" and 32 hex digits
  static std::optional<EntryKey> parse(std::string_view text);
};

// Keys of all prefixes of one sequence in a single run over it.
class PrefixHasher {
 public:
  explicit PrefixHasher(const CacheIdentity& identity);
  void add(std::span<const TokenId> ids);
  EntryKey key() const;  // of the ids added so far

 private:
  HashState state_;
  std::int64_t length_ = 0;
};

EntryKey key_of(const CacheIdentity& identity, std::span<const TokenId> ids);

}  // namespace tinyloop
