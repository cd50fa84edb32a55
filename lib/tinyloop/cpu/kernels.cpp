// SPDX-License-Identifier: Apache-2.0
// The kernel table of one instruction set: compiled once for each, with its flags and
// -DTL_KERNELS=kernels_<name>. Only the table is visible to the linker; everything else has
// internal linkage, so that no function compiled for one instruction set can be chosen for another
// (tests/layout/check_isa_object.sh watches).
#include "tinyloop/cpu/kernel_table.h"
#include "tinyloop/cpu/kernels_attention.h"
#include "tinyloop/cpu/kernels_limits.h"
#include "tinyloop/cpu/kernels_matmul.h"
#include "tinyloop/cpu/kernels_quantised.h"
#include "tinyloop/cpu/kernels_rows.h"

#if !defined(TL_KERNELS)
#error "compile with -DTL_KERNELS=<name of the table>"
#endif

namespace tinyloop {

extern const KernelTable TL_KERNELS;

const KernelTable TL_KERNELS = {
    {{kTileRows, packed_float_bytes, pack_floats, multiply_floats<StoredF32>},
     {kTileRows, packed_float_bytes, pack_floats, multiply_floats<StoredF16>},
     {kTileRows, packed_float_bytes, pack_floats, multiply_floats<StoredBf16>}},
    {{kQuantisedRows, packed_quantised_bytes, pack_quantised_rows<DotQ8>,
      multiply_quantised<DotQ8>},
     {kQuantisedRows, packed_quantised_bytes, pack_quantised_rows<DotQ4>,
      multiply_quantised<DotQ4>},
     {kQuantisedRows, packed_quantised_bytes, pack_quantised_rows<DotQ41>,
      multiply_quantised<DotQ41>}},
    kTileRows,
    attention_height,
    {attend_block<KvF32>, attend_block<KvF16>, attend_block<KvInt8>, attend_block<KvInt4>},
    fold_block,
    {store_kv_f32, store_kv_f16, store_kv_int8, store_kv_int4},
    add_rows,
    blend_rows,
    rms_norm,
    gated_silu,
    rotate_row,
    kReads,
    static_cast<int>(sizeof(kReads) / sizeof(kReads[0])),
    kFloatPeaks,
    static_cast<int>(sizeof(kFloatPeaks) / sizeof(kFloatPeaks[0])),
    kInt8Peaks,
    static_cast<int>(sizeof(kInt8Peaks) / sizeof(kInt8Peaks[0])),
};

}  // namespace tinyloop
