// SPDX-License-Identifier: Apache-2.0
// A table from 64-bit keys to 64-bit values that is filled once and looked up often. Not a general
// map: nothing is ever removed, and the key of all ones cannot be stored.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tinyloop {

class PairTable {
 public:
  explicit PairTable(std::size_t expected = 0) { resize(expected); }

  // Sets the key's value, replacing an earlier one.
  void set(std::uint64_t key, std::uint64_t value) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == kFree) ++used_;
    slot = {key, value};
  }
  const std::uint64_t* find(std::uint64_t key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == kFree ? nullptr : &slot.value;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree, value = 0;
  };

  void resize(std::size_t expected) {
    slots_.assign(std::bit_ceil(2 * expected + 2), {});
    shift_ = 64 - std::countr_zero(slots_.size());
  }
  void grow() {
    std::vector<Slot> old;
    old.swap(slots_);
    resize(old.size());
    for (const Slot& slot : old) {
      if (slot.key != kFree) slots_[place(slot.key)] = slot;
    }
  }
  // Where the key is, or the free slot where it would be.
  std::size_t place(std::uint64_t key) const {
    const std::uint64_t mixed = (key ^ (key >> 29)) * 0x9e3779b97f4a7c15u;
    std::size_t at = static_cast<std::size_t>(mixed >> shift_);
    while (slots_[at].key != key && slots_[at].key != kFree) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  int shift_ = 63;
};

}  // namespace tinyloop
