// SPDX-License-Identifier: Apache-2.0
// How the store-h modes store a layer's input instead of its keys and values: h16 as f16, h8 and h4
// as integers with a scale for every 32 channels. Host code, one position at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tinyloop/model/loop_plan.h"

namespace tinyloop {

// A record of one position is: scales [groups] f32 (not for h16), then values: h16 [hidden] f16,
// h8 [groups][32] int8, h4 [groups][16 bytes] with channel j in the low and j + 16 in the high half
// of byte j, a half being the value + 8. A multiple of 4 bytes.
std::size_t hidden_record_bytes(StorageMode mode, std::int64_t hidden);

// Encodes row [hidden] and replaces it by what decoding gives: scale = largest magnitude / 127
// (7), q = round-to-nearest-even(x * (1 / scale)), value = q * scale.
void encode_hidden(StorageMode mode, std::span<float> row, std::span<std::byte> record);
void decode_hidden(StorageMode mode, std::span<const std::byte> record, std::span<float> row);

}  // namespace tinyloop
