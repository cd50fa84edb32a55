// SPDX-License-Identifier: Apache-2.0
// Collects the parts of an identity.
#include "tinyloop/engine/run_identity.h"

namespace tinyloop {

CacheIdentity cache_identity(Forward& forward) {
  CacheIdentity identity;
  identity.model = forward.model().fingerprint();
  identity.arithmetic = forward.ops().arithmetic();
  identity.kv = name_of(forward.plan().storage);
  identity.initial_state = forward.initial_identity();
  identity.loops = forward.plan().loops;
  identity.window = forward.plan().window;
  return identity;
}

}  // namespace tinyloop
