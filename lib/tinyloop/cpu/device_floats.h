// SPDX-License-Identifier: Apache-2.0
// Device addresses as host pointers: only the CPU device may look through them.
#pragma once

#include <cstdint>

#include "tinyloop/device/ops.h"

namespace tinyloop {

inline float* floats_at(DevicePtr memory) { return reinterpret_cast<float*>(memory.address); }
inline float* row_at(Rows rows, std::int64_t row) {
  return floats_at(rows.data) + row * rows.stride;
}
inline unsigned char* bytes_at(DevicePtr memory) {
  return reinterpret_cast<unsigned char*>(memory.address);
}

}  // namespace tinyloop
