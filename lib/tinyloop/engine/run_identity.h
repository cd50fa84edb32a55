// SPDX-License-Identifier: Apache-2.0
// The identity of a run's keys and values: model, device, plan and initial state.
#pragma once

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/cache_identity.h"

namespace tinyloop {

// What another run must share to use this one's keys and values.
CacheIdentity cache_identity(Forward& forward);

}  // namespace tinyloop
