// SPDX-License-Identifier: Apache-2.0
// The table of all kernels, compiled once with each compiler. No kernel.
#include "launch.h"

namespace tinyloop::cuda {

const Kernels& TL_KERNEL_TABLE() {
  static const Kernels table = [] {
    Kernels made = {};
    TL_KERNELS_NAMESPACE::enter_rows(made);
    TL_KERNELS_NAMESPACE::enter_matmul(made);
    TL_KERNELS_NAMESPACE::enter_kv(made);
    TL_KERNELS_NAMESPACE::enter_attention(made);
    TL_KERNELS_NAMESPACE::enter_top_k(made);
    return made;
  }();
  return table;
}

}  // namespace tinyloop::cuda
