// SPDX-License-Identifier: Apache-2.0
// What a run's keys and values are known by: model, device, plan and initial state in one.
#pragma once

#include "tinyloop/engine/forward.h"
#include "tinyloop/kv/cache_identity.h"

namespace tinyloop {

// What another run must have in common to use this one's keys and values.
CacheIdentity cache_identity(Forward& forward);

}  // namespace tinyloop
