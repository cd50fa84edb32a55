// SPDX-License-Identifier: Apache-2.0
// The sixteen integers that a half byte of q4 stands for. Constants only, with internal linkage:
// kernels that are compiled once for each instruction set include this.
#pragma once

#include <cstdint>

namespace tinyloop {

// Lloyd's quantiser (IEEE Trans. Inf. Theory 28, 1982) of weights over the scale of their group of
// 32, that scale being the one with the least squared error; the sign of a scale may be either, so
// that the longer end of the codebook goes where the group's longer tail is. Bell-shaped: dense
// near 0. Within -64..63, so that with 64 added a product of bytes fits 16 bits twice.
constexpr std::int8_t kCodebook[16] = {-63, -49, -39, -30, -23, -16, -10, -5,
                                       1,   6,   12,  18,  25,  33,  42,  55};
constexpr std::int32_t kCodebookZero = 8;  // the half byte nearest to 0

}  // namespace tinyloop
