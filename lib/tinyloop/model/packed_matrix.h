// SPDX-License-Identifier: Apache-2.0
// The packed layout of weight matrices, in which a vector lane is an output: panels of 16 rows of
// W. Packing happens once, at conversion, on the host. Reading at speed: cpu/kernels and cuda/.
//
//   y[T][n] = x[T][k] * W[n][k]^T          panels = ceil(n / 16), rows beyond n are zero
//   f32 f16 bf16   data [panels][k][16]
//   q8             data [panels][groups][8][16][4] int8: lane j of quad i holds
//                  W[16p+j][32g+4i .. +3]; scales [panels][groups][16] f16;  W = q * scale, q in
//                  -127..127
//   q4             data [panels][groups][4][64] bytes: byte 4j + e of quad i is for W[16p+j],
//                  the low nibble for k = 32g + 4i + e, the high one for k = 32g + 16 + 4i + e;
//                  scales as q8, of either sign;
//                  W = kCodebook[nibble] * scale (codebook.h)
//   q4_1           data as q4; scales [panels][groups][2][16] f16, a scale and a minimum;
//                  W = nibble * scale + minimum
// groups = ceil(k / 32); what lies beyond k counts nothing (q8: zero, q4: nibble 8, q4_1: 0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tinyloop {

enum class WeightType { f32, f16, bf16, q8, q4, q4_1 };

inline constexpr std::int64_t kPanel = 16;  // outputs of one panel
inline constexpr std::int64_t kGroup = 32;  // inputs that share a scale in the quantised types

std::string_view name_of(WeightType type);
WeightType parse_weight_type(std::string_view name);  // throws Error(usage) naming the known ones

inline std::int64_t panels_of(std::int64_t n) { return (n + kPanel - 1) / kPanel; }
inline std::int64_t groups_of(std::int64_t k) { return (k + kGroup - 1) / kGroup; }
inline bool is_four_bits(WeightType type) {
  return type == WeightType::q4 || type == WeightType::q4_1;
}
inline bool is_quantised(WeightType type) { return type == WeightType::q8 || is_four_bits(type); }

std::size_t packed_data_bytes(WeightType type, std::int64_t n, std::int64_t k);
std::size_t packed_scale_bytes(WeightType type, std::int64_t n,
                               std::int64_t k);  // 0 for f32, f16, bf16

// Packs one panel: rows[16][k] (absent rows zero) to data and scales of exactly one panel's bytes.
// The scale of a group of q8 is the f16 nearest to its greatest magnitude / 127, rounded up to the
// next f16 where rounding down would clip; q = round-to-nearest-even(w / scale). That of q4 is the
// one of 52 that are tried (codebook_search.h) with the least sum of weight * (stored - w)^2, each
// w going to the nearest entry of the codebook; `weights` [k] are above 0, one for each input,
// none: all 1. q4_1 does the same with the scales and minimums that minimum_search.h tries. Other
// types ignore the weights. Values must be finite: the caller checks.
void pack_panel(WeightType type, std::int64_t k, std::span<const float> rows,
                std::span<std::byte> data, std::span<std::byte> scales,
                std::span<const float> weights = {});

// The value that the packed matrix holds at [row][column]; for tests, error figures and single
// look-ups.
float unpack_value(WeightType type, std::int64_t k, std::span<const std::byte> data,
                   std::span<const std::byte> scales, std::int64_t row, std::int64_t column);

}  // namespace tinyloop
