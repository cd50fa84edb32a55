// SPDX-License-Identifier: Apache-2.0
// One function a block type.
#include "tinyloop/model/gguf_blocks.h"

#include <array>
#include <cassert>
#include <cstring>

#include "tinyloop/model/packed_matrix.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {

namespace {

using Byte = std::uint8_t;

float half_at(const Byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, 2);
  return half_to_float(bits);
}

float bfloat_at(const Byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, 2);
  return bfloat_to_float(bits);
}

// Value i of 32 in 4 bits each: byte j has value j in its low and value j + 16 in its high half.
int nibble(const Byte* halves, int i) { return (halves[i % 16] >> (i < 16 ? 0 : 4)) & 15; }

int bit(const Byte* bits, int i) { return (bits[i / 8] >> (i % 8)) & 1; }

void read_q4_0(const Byte* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

void read_q4_1(const Byte* block, float* out) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(nibble(block + 4, i)) + least;
}

void read_q5_0(const Byte* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) {
    const int q = nibble(block + 6, i) | (bit(block + 2, i) << 4);
    out[i] = scale * static_cast<float>(q - 16);
  }
}

void read_q5_1(const Byte* block, float* out) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; ++i) {
    const int q = nibble(block + 8, i) | (bit(block + 4, i) << 4);
    out[i] = scale * static_cast<float>(q) + least;
  }
}

void read_q8_0(const Byte* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

// The types of 256 values, in sixteen or eight groups whose scales are small integers.

// Value i in 2 bits: 128 values lie in 32 bytes, 32 in each pair of bits.
int two_bits(const Byte* bytes, int i) {
  return (bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
}

void read_q2_k(const Byte* block, float* out) {
  const Byte *groups = block, *values = block + 16;
  const float scale = half_at(block + 80), least = half_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int group = groups[i / 16];
    const float step = scale * static_cast<float>(group & 15);
    const float offset = least * static_cast<float>(group >> 4);
    out[i] = step * static_cast<float>(two_bits(values, i)) - offset;
  }
}

void read_q3_k(const Byte* block, float* out) {
  const Byte *high = block, *values = block + 32, *groups = block + 96;
  const float scale = half_at(block + 108);
  for (int i = 0; i < 256; ++i) {
    // Of the group's 6 bits four are in eight bytes' halves, two in the last four bytes.
    const int g = i / 16;
    const int low = (groups[g % 8] >> (g < 8 ? 0 : 4)) & 15;
    const int top = (groups[8 + g % 4] >> (g / 4 * 2)) & 3;
    const float step = scale * static_cast<float>((low | (top << 4)) - 32);
    const int above = (high[i % 32] >> (i / 32)) & 1;  // without it the value is 4 lower
    out[i] = step * static_cast<float>(two_bits(values, i) - (above != 0 ? 0 : 4));
  }
}

// Scale and minimum of group g of 8, 6 bits each in 12 bytes: the first four groups have the low
// bits of bytes g and g + 4, the others the halves of byte g + 4 and the upper bits of the former.
struct ScaleAndLeast {
  float scale, least;
};
ScaleAndLeast group_of(const Byte* block, int g) {
  const Byte* packed = block + 4;
  const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | (packed[g - 4] >> 6 << 4);
  const int least = g < 4 ? packed[g + 4] & 63 : (packed[g + 4] >> 4) | (packed[g] >> 6 << 4);
  return {half_at(block) * static_cast<float>(scale),
          half_at(block + 2) * static_cast<float>(least)};
}

// Value i in 4 bits: 64 values lie in 32 bytes, the first 32 in the low halves.
int four_bits(const Byte* bytes, int i) {
  return (bytes[i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4)) & 15;
}

void read_q4_k(const Byte* block, float* out) {
  for (int i = 0; i < 256; ++i) {
    const ScaleAndLeast group = group_of(block, i / 32);
    out[i] = group.scale * static_cast<float>(four_bits(block + 16, i)) - group.least;
  }
}

void read_q5_k(const Byte* block, float* out) {
  const Byte* high = block + 16;
  for (int i = 0; i < 256; ++i) {
    const ScaleAndLeast group = group_of(block, i / 32);
    const int q = four_bits(block + 48, i) | (((high[i % 32] >> (i / 32)) & 1) << 4);
    out[i] = group.scale * static_cast<float>(q) - group.least;
  }
}

void read_q6_k(const Byte* block, float* out) {
  const Byte *low = block, *high = block + 128, *groups = block + 192;
  const float scale = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    // 128 values lie in 64 bytes: the first 64 in the low halves.
    const int four = (low[i / 128 * 64 + i % 64] >> (i % 128 < 64 ? 0 : 4)) & 15;
    const float step = scale * static_cast<float>(static_cast<std::int8_t>(groups[i / 16]));
    out[i] = step * static_cast<float>((four | (two_bits(high, i) << 4)) - 32);
  }
}

void read_one(BlockType type, const Byte* block, float* out) {
  switch (type) {
    case BlockType::f32:
      std::memcpy(out, block, 4);
      return;
    case BlockType::f16:
      *out = half_at(block);
      return;
    case BlockType::bf16:
      *out = bfloat_at(block);
      return;
    case BlockType::q4_0:
      return read_q4_0(block, out);
    case BlockType::q4_1:
      return read_q4_1(block, out);
    case BlockType::q5_0:
      return read_q5_0(block, out);
    case BlockType::q5_1:
      return read_q5_1(block, out);
    case BlockType::q8_0:
      return read_q8_0(block, out);
    case BlockType::q2_k:
      return read_q2_k(block, out);
    case BlockType::q3_k:
      return read_q3_k(block, out);
    case BlockType::q4_k:
      return read_q4_k(block, out);
    case BlockType::q5_k:
      return read_q5_k(block, out);
    case BlockType::q6_k:
      return read_q6_k(block, out);
  }
}

}  // namespace

bool is_blocked(BlockType type) { return block_values(type) > 1; }

void read_blocks(BlockType type, std::span<const std::byte> bytes, std::span<float> out) {
  const auto values = static_cast<std::size_t>(block_values(type));
  const auto size = static_cast<std::size_t>(block_bytes(type));
  assert(out.size() % values == 0 && bytes.size() == out.size() / values * size);
  const Byte* block = reinterpret_cast<const Byte*>(bytes.data());
  for (std::size_t at = 0; at < out.size(); at += values, block += size) {
    read_one(type, block, out.data() + at);
  }
}

bool place_q8_0(std::span<const std::byte> row, std::int64_t k, std::int64_t lane,
                std::span<std::byte> data, std::span<std::byte> scales) {
  constexpr std::size_t kBlock = 34;
  assert(k % kGroup == 0 && row.size() == static_cast<std::size_t>(k / kGroup) * kBlock);
  bool fits = true;
  for (std::int64_t group = 0; group < k / kGroup; ++group) {
    const std::byte* block = row.data() + static_cast<std::size_t>(group) * kBlock;
    std::memcpy(scales.data() + (group * kPanel + lane) * 2, block, 2);
    for (std::int64_t quad = 0; quad < 8; ++quad) {
      std::memcpy(data.data() + ((group * 8 + quad) * kPanel + lane) * 4, block + 2 + quad * 4, 4);
    }
    for (int e = 0; e < 32; ++e) fits = fits && block[2 + e] != std::byte{0x80};
  }
  return fits;
}

bool place_q4(BlockType type, std::span<const std::byte> row, std::int64_t k, std::int64_t lane,
              std::span<std::byte> data, std::span<std::byte> scales) {
  const bool has_minimum = type == BlockType::q4_1;
  const std::size_t head = has_minimum ? 4 : 2, size = head + 16;
  assert(k % kGroup == 0 && row.size() == static_cast<std::size_t>(k / kGroup) * size);
  bool fits = true;
  for (std::int64_t group = 0; group < k / kGroup; ++group) {
    const std::byte* block = row.data() + static_cast<std::size_t>(group) * size;
    std::uint16_t scale = 0, minimum = 0;
    std::memcpy(&scale, block, 2);
    if (has_minimum) {
      std::memcpy(&minimum, block + 2, 2);
    } else {
      const float wanted = -8.0f * half_to_float(scale);
      minimum = float_to_half(wanted);
      fits = fits && half_to_float(minimum) == wanted;
    }
    std::memcpy(scales.data() + (group * 2 * kPanel + lane) * 2, &scale, 2);
    std::memcpy(scales.data() + ((group * 2 + 1) * kPanel + lane) * 2, &minimum, 2);
    for (std::int64_t quad = 0; quad < 4; ++quad) {
      std::memcpy(data.data() + ((group * 4 + quad) * kPanel + lane) * 4,
                  block + head + static_cast<std::size_t>(quad) * 4, 4);
    }
  }
  return fits;
}

}  // namespace tinyloop
