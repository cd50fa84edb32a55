// SPDX-License-Identifier: Apache-2.0
// Look-up by hashes of the prompt's prefixes and by bisection; publishing under the pool's lock.
#include "tinyloop/pool/prefix_pool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>
#include <unordered_set>

#include "tinyloop/pool/order.h"

namespace tinyloop {

namespace {

constexpr std::string_view kMatchNames[] = {"miss", "prefix", "crop", "whole", "warm"};

// Opens entries on behalf of one look-up, each once; remembers the first that is not sound.
class OpenEntries {
 public:
  OpenEntries(const PoolFolder& folder, const CacheIdentity& identity,
              const std::string& identity_folder)
      : folder_(folder), identity_(identity), identity_folder_(identity_folder) {}

  // Null if it is gone or not sound.
  std::shared_ptr<const Snapshot> open(const EntryKey& key) {
    const auto known = open_.find(key);
    if (known != open_.end()) return known->second;
    const std::string path = folder_.entry_path({identity_folder_, key});
    std::shared_ptr<const Snapshot> snapshot;
    try {
      snapshot = Snapshot::open(path);
      if (snapshot->identity() != identity_ || snapshot->length() != key.length) {
        throw Error(ErrorKind::data, "{}: its content does not match its name", path);
      }
    } catch (const Error& error) {
      snapshot = nullptr;
      if (warning_.empty() && ::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        warning_ = error.what();
      }
    }
    return open_[key] = snapshot;
  }
  const std::string& warning() const { return warning_; }

 private:
  const PoolFolder& folder_;
  const CacheIdentity& identity_;
  const std::string& identity_folder_;
  std::map<EntryKey, std::shared_ptr<const Snapshot>> open_;
  std::string warning_;
};

}  // namespace

std::string_view name_of(MatchKind kind) { return kMatchNames[static_cast<std::size_t>(kind)]; }

struct PrefixPool::Lookup {
  std::span<const TokenId> ids;
  Order order;
  std::vector<EntryKey> present;
  OpenEntries entries;
};

PrefixPool::PrefixPool(std::string folder, CacheIdentity identity)
    : folder_(folder),
      uses_(std::move(folder)),
      identity_(std::move(identity)),
      identity_folder_(identity_.folder()) {}

std::string PrefixPool::prepare(const std::optional<PoolSettings>& settings) {
  if (settings && (settings->capacity < 1 || settings->max_bytes < 0)) {
    throw Error(ErrorKind::usage, "a pool of {} entries and {} bytes", settings->capacity,
                settings->max_bytes);
  }
  folder_.require_ours();
  folder_.create();
  const FoundSettings found = folder_.settings();  // throws: what is newer is left as it is
  folder_.sweep();
  if (!settings) {
    if (!found.known) return found.warning;
    if (found.warning.empty()) {
      folder_.mark();
    } else {
      folder_.set_settings(found.settings);  // damaged, and there is nothing that it could spare
    }
    return found.warning;
  }
  folder_.set_settings(*settings);
  evict_now(folder_, {settings->capacity, settings->max_bytes > 0 ? settings->max_bytes : -1,
                      settings->policy});
  return found.warning;
}

PoolMatch PrefixPool::lookup(std::span<const TokenId> ids, bool crop) const {
  PoolMatch best;
  try {
    const FoundSettings found = folder_.settings();
    if (!folder_.exists()) {
      throw Error(ErrorKind::io, "{}: there is no pool yet", folder_.path());
    }
    Lookup lookup{ids,
                  read_order(folder_.order_path(identity_folder_)),
                  {},
                  {folder_, identity_, identity_folder_}};
    // The order's keys are all there are if the folder has not changed since; a listing of ten
    // thousand names takes longer than all the rest.
    const std::int64_t state = folder_.listing_state(identity_folder_);
    lookup.present = state != 0 && state == lookup.order.listing ? lookup.order.keys
                                                                 : folder_.keys(identity_folder_);
    if (auto exact = exact_match(lookup)) best = std::move(*exact);
    if (crop && best.kind != MatchKind::whole) crop_match(lookup, best);
    best.warning = lookup.entries.warning().empty() ? found.warning : lookup.entries.warning();
  } catch (const Error& error) {
    best = {};
    best.usable = false;
    best.warning = error.what();
  }
  return best;
}

PoolMatch PrefixPool::lookup_to_resume(std::span<const TokenId> ids, bool crop) const {
  PoolMatch best;
  std::int64_t saved = 0;
  for (std::int32_t loops = identity_.loops - 1; loops > 0; --loops) {
    CacheIdentity shallower = identity_;
    shallower.loops = loops;
    const PrefixPool pool(folder_.path(), shallower);
    if (folder_.listing_state(pool.identity_folder_) == 0) continue;
    PoolMatch match = pool.lookup(ids, crop);
    if (!match.snapshot || !match.snapshot->resumable() || match.length * loops <= saved) continue;
    saved = match.length * loops;
    best = std::move(match);
    best.kind = MatchKind::warm;
  }
  return best;
}

// The longest entry that is a prefix of the prompt: one hash for each length that is there.
std::optional<PoolMatch> PrefixPool::exact_match(Lookup& lookup) const {
  std::vector<std::int64_t> lengths;
  std::vector<EntryKey> fitting;
  for (const EntryKey& key : lookup.present) {
    if (key.length <= static_cast<std::int64_t>(lookup.ids.size())) fitting.push_back(key);
  }
  std::sort(fitting.begin(), fitting.end());
  for (const EntryKey& key : fitting) {
    if (lengths.empty() || lengths.back() != key.length) lengths.push_back(key.length);
  }
  std::vector<EntryKey> candidates;
  PrefixHasher hasher(identity_);
  std::size_t hashed = 0;
  for (const std::int64_t length : lengths) {
    hasher.add(lookup.ids.subspan(hashed, static_cast<std::size_t>(length) - hashed));
    hashed = static_cast<std::size_t>(length);
    const EntryKey key = hasher.key();
    if (std::binary_search(fitting.begin(), fitting.end(), key)) candidates.push_back(key);
  }
  for (auto key = candidates.rbegin(); key != candidates.rend(); ++key) {
    const auto snapshot = lookup.entries.open(*key);
    // A hash only finds candidates.
    if (!snapshot || shared_length(snapshot->ids(), lookup.ids) != key->length) continue;
    const bool whole = key->length == static_cast<std::int64_t>(lookup.ids.size());
    PoolMatch match;
    match.kind = whole ? MatchKind::whole : MatchKind::prefix;
    match.snapshot = snapshot;
    match.length = key->length;
    match.key = *key;
    return match;
  }
  return std::nullopt;
}

void PrefixPool::crop_match(Lookup& lookup, PoolMatch& best) const {
  const auto ids_of = [&](const EntryKey& key) -> std::optional<std::span<const TokenId>> {
    const auto snapshot = lookup.entries.open(key);
    if (!snapshot) return std::nullopt;
    return snapshot->ids();
  };
  for (const EntryKey& key : most_similar(lookup.ids, lookup.present, lookup.order.keys, ids_of)) {
    const auto snapshot = lookup.entries.open(key);
    // The last position is computed anew: what the head multiplies there is not in the entry.
    const std::int64_t length = std::min(shared_length(snapshot->ids(), lookup.ids),
                                         static_cast<std::int64_t>(lookup.ids.size()) - 1);
    if (length <= best.length || !snapshot->serves(length)) continue;
    best.kind = MatchKind::crop;
    best.snapshot = snapshot;
    best.length = length;
    best.key = key;
  }
}

std::shared_ptr<const Snapshot> PrefixPool::verified(std::span<const TokenId> ids) const {
  const EntryKey key = key_of(identity_, ids);
  const PoolEntry entry{identity_folder_, key};
  if (folder_.bytes_of(entry) < 0) return nullptr;
  try {
    const auto snapshot = Snapshot::open(folder_.entry_path(entry));
    if (snapshot->identity() == identity_ && std::ranges::equal(snapshot->ids(), ids)) {
      snapshot->verify_all();
      return snapshot;
    }
  } catch (const Error& error) {
    if (folder_.bytes_of(entry) < 0) return nullptr;  // evicted a moment ago
    if (error.kind() != ErrorKind::data) throw;       // not damaged, but not for us
  }
  folder_.remove(entry);
  return nullptr;
}

EntryKey PrefixPool::publish(SnapshotContent content, bool replace) {
  const EntryKey key = key_of(identity_, content.ids);
  const PoolEntry entry{identity_folder_, key};
  content.identity = identity_;
  content.created = static_cast<std::int64_t>(std::max<std::time_t>(0, std::time(nullptr)));
  const auto [settings, why, known] = folder_.settings();
  const std::int64_t max_bytes = known ? settings.max_bytes : 0;
  const std::int64_t bytes = snapshot_bytes(identity_, content.shape, key.length, content.hidden(),
                                            !content.injected.empty());
  // Before anything has made room for it.
  if (max_bytes > 0 && bytes > max_bytes) {
    throw Error(ErrorKind::io, "{}: an entry of {} bytes exceeds the pool's limit of {}",
                folder_.entry_path(entry), bytes, max_bytes);
  }
  folder_.create(identity_folder_);
  std::unique_ptr<TensorFileWriter> writer;
  try {
    writer = write_snapshot(folder_.entry_path(entry), content, true);
  } catch (const Error& error) {
    // Where eviction by bytes is allowed, a disk that is full before the limit is reached gets one
    // entry smaller.
    const bool full = error.system_error() == ENOSPC || error.system_error() == EDQUOT;
    if (!full || max_bytes == 0 ||
        evict_now(folder_, {std::max<std::int64_t>(0, size() - 1), -1, settings.policy}).empty()) {
      throw;
    }
    writer = write_snapshot(folder_.entry_path(entry), content, true);
  }
  PoolUses::Lock lock(uses_);
  std::unordered_set<std::uint64_t> present;
  for (const PoolEntry& there : folder_.entries()) present.insert(there.key.low);
  const bool all = !folder_.hides_entries();
  const PoolCounts counts =
      lock.fold([&](const EntryKey& k) { return !all || present.contains(k.low); });
  if (known && (replace || !present.contains(key.low))) {
    // Room is made first, so that the pool is never above its limits.
    evict(folder_, counts,
          {settings.capacity - 1, max_bytes > 0 ? max_bytes - bytes : -1, settings.policy, entry});
  }
  if (replace) {
    writer->finish();
  } else {
    writer->finish_new();
  }
  lock.add_registration(key, static_cast<std::int64_t>(content.prefill_ms * 1000.0));
  try {
    update_order();
  } catch (const Error&) {  // slower look-ups are all that follows
  }
  return key;
}

void PrefixPool::touch(const EntryKey& key) const {
  PoolUses::Lock lock(uses_);
  lock.add_registration(key, 0);
  const std::int64_t state = folder_.listing_state(identity_folder_);
  if (read_order(folder_.order_path(identity_folder_)).listing == state) return;
  try {
    update_order();
  } catch (const Error&) {  // slower look-ups are all that follows
  }
}

void PrefixPool::update_order() const {
  OpenEntries entries(folder_, identity_, identity_folder_);
  const std::string path = folder_.order_path(identity_folder_);
  Order order;
  order.listing = folder_.settled_listing_state(identity_folder_);
  const std::vector<EntryKey> present = folder_.keys(identity_folder_);
  order.keys = updated_order(present, read_order(path).keys, [&](const EntryKey& key) {
    const auto snapshot = entries.open(key);
    return snapshot ? std::optional(snapshot->ids()) : std::nullopt;
  });
  if (order.keys.size() != present.size()) order.listing = 0;  // what cannot be read is not in it
  write_order(path, order);
}

std::int64_t PrefixPool::size() const {
  return static_cast<std::int64_t>(folder_.entries().size());
}

std::int64_t PrefixPool::cached_tokens() const {
  std::int64_t sum = 0;
  for (const PoolEntry& entry : folder_.entries()) sum += entry.key.length;
  return sum;
}

}  // namespace tinyloop
