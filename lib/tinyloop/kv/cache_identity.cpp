// SPDX-License-Identifier: Apache-2.0
// Identities and entry keys as text.
#include "tinyloop/kv/cache_identity.h"

#include <fmt/format.h>

#include <charconv>

namespace tinyloop {

namespace {

constexpr std::size_t kDigits = 16;  // of 64 bits

// Look-ups read ten thousand names, so this is no general parser.
std::optional<std::uint64_t> parse_hex(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<std::uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

}  // namespace

std::string CacheIdentity::text() const {
  return fmt::format(
      "version={}\nmodel={}\narithmetic={}\nkv={}\nkv_slots=0\nloops={}\nexit=\n"
      "cache_window={}\ninitial_state={}\n",
      kSnapshotVersion, model, arithmetic, kv, loops, window, initial_state);
}

std::string CacheIdentity::folder() const {
  const std::string all = text();
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string EntryKey::text() const { return fmt::format("{}-{:016x}{:016x}", length, high, low); }

std::optional<EntryKey> EntryKey::parse(std::string_view text) {
  EntryKey key;
  const char* end = text.data() + text.size();
  const auto [dash, fault] = std::from_chars(text.data(), end, key.length);
  if (fault != std::errc() || key.length < 1 || dash == end || *dash != '-') return std::nullopt;
  const std::string_view digits(dash + 1, static_cast<std::size_t>(end - dash - 1));
  if (digits.size() != 2 * kDigits || text.front() == '0') return std::nullopt;
  const auto high = parse_hex(digits.substr(0, kDigits));
  const auto low = parse_hex(digits.substr(kDigits));
  if (!high || !low) return std::nullopt;
  key.high = *high;
  key.low = *low;
  return key;
}

PrefixHasher::PrefixHasher(const CacheIdentity& identity) : state_(make_hash_state()) {
  const std::string text = identity.text();
  XXH3_128bits_reset(state_.get());
  XXH3_128bits_update(state_.get(), text.data(), text.size());
}

void PrefixHasher::add(std::span<const TokenId> ids) {
  XXH3_128bits_update(state_.get(), ids.data(), ids.size_bytes());
  length_ += static_cast<std::int64_t>(ids.size());
}

EntryKey PrefixHasher::key() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {length_, hash.high64, hash.low64};
}

EntryKey key_of(const CacheIdentity& identity, std::span<const TokenId> ids) {
  PrefixHasher hasher(identity);
  hasher.add(ids);
  return hasher.key();
}

}  // namespace tinyloop
