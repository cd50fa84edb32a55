// SPDX-License-Identifier: Apache-2.0
// The largest logits of each row, so that only candidates are copied to the host. No sampling.
//
// A logit and its id become one 64-bit key, larger for larger logits and, for equal ones, for lower
// ids; blocks sort kSortedKeys keys each and keep the k largest, in rounds until one block is left.
// All keys differ, so the result does not depend on how the work is split.
#include "device_values.h"
#include "kernel_plans.h"

namespace tinyloop::cuda {
namespace {

constexpr std::uint32_t kSortThreads = 256;
constexpr std::uint64_t kNotFinite = ~std::uint64_t{0};  // beyond the key of any number
constexpr auto kKeys = static_cast<std::int32_t>(kSortedKeys);

TL_DEVICE std::uint64_t key_of(float logit, std::int64_t id) {
  std::uint32_t bits = bits_of(logit);
  if ((bits & 0x7f800000u) == 0x7f800000u) return kNotFinite;
  if (bits == 0x80000000u) bits = 0;  // -0 and 0 are equals
  const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

// Sorts keys[kSortedKeys] in shared memory, the greatest first (bitonic: K. Batcher 1968).
TL_DEVICE void sort_keys(std::uint64_t* keys) {
  for (std::int32_t run = 2; run <= kKeys; run *= 2) {
    for (std::int32_t step = run / 2; step > 0; step /= 2) {
      barrier();
      for (auto i = static_cast<std::int32_t>(thread_index()); i < kKeys / 2;
           i += static_cast<std::int32_t>(kSortThreads)) {
        const std::int32_t low = i / step * step * 2 + i % step, high = low + step;
        const bool descending = (low & run) == 0;
        const std::uint64_t a = keys[low], b = keys[high];
        if ((a < b) == descending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  barrier();
}

struct TopKCall {
  Rows logits;                // of the first round
  const std::uint64_t* from;  // [rows][count] of the later ones
  std::int64_t count;         // numbers of a row
  std::int32_t k;
  std::int64_t blocks;  // of a row
  std::uint64_t* to;    // [rows][blocks][k], if there is more than one block; otherwise:
  float* values;
  TokenId* ids;
  std::int32_t* not_finite;
};

template <bool kFirst>
TL_GLOBAL_OF(kSortThreads)
void top_k_kernel(TopKCall call) {
  auto* keys = reinterpret_cast<std::uint64_t*>(shared_memory());
  const std::int64_t row = block_x() / call.blocks, block = block_x() % call.blocks;
  for (auto i = static_cast<std::int32_t>(thread_index()); i < kKeys;
       i += static_cast<std::int32_t>(kSortThreads)) {
    const std::int64_t at = block * kSortedKeys + i;
    std::uint64_t key = 0;  // below the key of any number
    if (at < call.count) {
      if constexpr (kFirst) {
        key = key_of(row_at(call.logits, row)[at], at);
      } else {
        key = call.from[row * call.count + at];
      }
    }
    keys[i] = key;
  }
  sort_keys(keys);
  for (auto i = static_cast<std::int32_t>(thread_index()); i < call.k;
       i += static_cast<std::int32_t>(kSortThreads)) {
    if (call.blocks > 1) {
      call.to[(row * call.blocks + block) * call.k + i] = keys[i];
    } else {
      const bool is_number = keys[i] != kNotFinite;
      const auto id = is_number
                          ? static_cast<TokenId>(0xffffffffu - static_cast<std::uint32_t>(keys[i]))
                          : TokenId{0};
      call.ids[row * call.k + i] = id;
      call.values[row * call.k + i] = row_at(call.logits, row)[id];
      if (i == 0) call.not_finite[row] = is_number ? 0 : 1;
    }
  }
}

void top_k(float* values, TokenId* ids, std::int32_t* not_finite, Rows logits, std::int64_t rows,
           std::int64_t vocab, int k, Workspace workspace, Stream stream) {
  if (rows == 0) return;
  TopKCall call = {logits,  nullptr, vocab, k,         top_k_blocks(vocab),
                   nullptr, values,  ids,   not_finite};
  // Rounds write to the two halves of the workspace in turn.
  auto* first = reinterpret_cast<std::uint64_t*>(workspace.data);
  auto* second = reinterpret_cast<std::uint64_t*>(
      workspace.data + aligned_bytes(rows * call.blocks * k * std::int64_t{sizeof(std::uint64_t)}));
  call.to = first;
  for (bool is_first = true;; is_first = false) {
    const Grid grid = {static_cast<std::uint32_t>(rows * call.blocks)};
    const std::size_t bytes = kSortedKeys * sizeof(std::uint64_t);
    if (is_first) {
      launch(top_k_kernel<true>, grid, kSortThreads, bytes, stream, call);
    } else {
      launch(top_k_kernel<false>, grid, kSortThreads, bytes, stream, call);
    }
    if (call.blocks == 1) return;
    call.from = call.to;
    call.to = call.to == first ? second : first;
    call.count = call.blocks * k;
    call.blocks = top_k_blocks(call.count);
  }
}

}  // namespace

void TL_KERNELS_NAMESPACE::enter_top_k(Kernels& table) { table.top_k = top_k; }

}  // namespace tinyloop::cuda
