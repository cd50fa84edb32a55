// SPDX-License-Identifier: Apache-2.0
// How GGUF's blocks hold values. The layouts are those of the ggml library (its ggml-common.h);
// each block has f16 scales in front or behind and its values in a few bits each. Reading only, one
// row at a time; not for hot loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tinyloop/files/gguf_file.h"

namespace tinyloop {

// Whether values share scales: what was stored was rounded to few bits.
bool is_blocked(BlockType type);

// out.size() values from as many blocks as hold them; the bytes may stand at any address. Each
// value is computed in float as the format says: scale times integer, then minus or plus a minimum.
void read_blocks(BlockType type, std::span<const std::byte> bytes, std::span<float> out);

// The bit-for-bit way of one row, whose bytes go to the lane of a panel (packed_matrix.h) as they
// are. `data` and `scales` are one panel with k inputs.
//
// Q8_0 to q8: both have groups of 32 integers and an f16 scale. Returns false, with nothing
// meaningful written, where a value is -128, which q8 does not have.
bool place_q8_0(std::span<const std::byte> row, std::int64_t k, std::int64_t lane,
                std::span<std::byte> data, std::span<std::byte> scales);
// Q4_1, or Q4_0, whose minimum is -8 scales, to q4_1. Returns false, likewise, where that minimum
// is not an f16.
bool place_q4(BlockType type, std::span<const std::byte> row, std::int64_t k, std::int64_t lane,
              std::span<std::byte> data, std::span<std::byte> scales);

}  // namespace tinyloop
