// SPDX-License-Identifier: Apache-2.0
// Which entries are evicted when a pool exceeds its limits. prefix_pool decides when.
#include <algorithm>
#include <unordered_set>

#include "tinyloop/pool/prefix_pool.h"

namespace tinyloop {

namespace {

struct Candidate {
  PoolEntry entry;
  std::int64_t bytes = 0;
  EntryUse use;
  bool known = true;  // its use is in the counts
};

// An entry that is not in the counts (they were lost, or it came a moment ago) counts as used when
// its file was written: its order is just above that of those whose last use was not later. The
// known ones have even numbers.
void place_unknown(std::vector<Candidate>& candidates) {
  for (Candidate& candidate : candidates) {
    if (candidate.known) continue;
    for (const Candidate& other : candidates) {
      if (other.known && other.use.last_used <= candidate.use.last_used) {
        candidate.use.order = std::max(candidate.use.order, other.use.order + 1);
      }
    }
  }
}

// Computing time that the entry has saved for its bytes; a use to come is counted as one.
double saved_per_byte(const Candidate& candidate) {
  return static_cast<double>(candidate.use.prefill_us) *
         static_cast<double>(1 + candidate.use.hits) /
         static_cast<double>(std::max<std::int64_t>(1, candidate.bytes));
}

// Whether `a` goes before `b`; entries that are equal to the policy go by last use, then by name.
bool goes_first(EvictionPolicy policy, const Candidate& a, const Candidate& b) {
  if (policy == EvictionPolicy::shortest && a.entry.key.length != b.entry.key.length) {
    return a.entry.key.length < b.entry.key.length;
  }
  if (policy == EvictionPolicy::cost && saved_per_byte(a) != saved_per_byte(b)) {
    return saved_per_byte(a) < saved_per_byte(b);
  }
  if (a.use.order != b.use.order) return a.use.order < b.use.order;
  if (a.use.last_used != b.use.last_used) return a.use.last_used < b.use.last_used;
  return a.entry.key < b.entry.key;
}

}  // namespace

std::vector<PoolEntry> evict(const PoolFolder& folder, const PoolCounts& counts,
                             const EvictionRequest& request) {
  std::vector<Candidate> candidates;
  std::int64_t count = 0, bytes = 0;
  for (const PoolEntry& entry : folder.entries()) {
    Candidate candidate{entry, folder.bytes_of(entry), {}};
    if (candidate.bytes < 0 || entry == request.replaced) continue;
    ++count;
    bytes += candidate.bytes;
    const auto known = counts.entries.find(entry.key);
    if (known != counts.entries.end()) {
      candidate.use = known->second;
      candidate.use.order *= 2;
    } else {
      candidate.known = false;
      candidate.use.last_used = folder.written_at(entry);
    }
    candidates.push_back(std::move(candidate));
  }
  place_unknown(candidates);
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    return goes_first(request.policy, a, b);
  });
  std::vector<PoolEntry> removed;
  for (const Candidate& candidate : candidates) {
    const bool too_many = request.entries >= 0 && count > request.entries;
    const bool too_big = request.bytes >= 0 && bytes > request.bytes;
    if (!too_many && !too_big) break;
    folder.remove(candidate.entry);
    --count;
    bytes -= candidate.bytes;
    removed.push_back(candidate.entry);
  }
  return removed;
}

std::vector<PoolEntry> evict_now(const PoolFolder& folder, const EvictionRequest& request) {
  const PoolUses uses(folder.path());
  PoolUses::Lock lock(uses);
  std::unordered_set<std::uint64_t> present;
  for (const PoolEntry& entry : folder.entries()) present.insert(entry.key.low);
  const bool all = !folder.hides_entries();
  const PoolCounts counts =
      lock.fold([&](const EntryKey& key) { return !all || present.contains(key.low); });
  return evict(folder, counts, request);
}

}  // namespace tinyloop
