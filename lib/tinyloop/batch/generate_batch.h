// SPDX-License-Identifier: Apache-2.0
// Answers many prompts together: lanes share passes, and each prompt gets the answer it would get
// alone. Not where jobs come from or records go: that is the caller's business.
#pragma once

#include <functional>
#include <optional>

#include "tinyloop/batch/job.h"
#include "tinyloop/engine/forward.h"

namespace tinyloop {

// Answers every job that `next` returns (no value: no more jobs) and calls `done` once for each, in
// the order they finish; at most options.in_sight are taken ahead of the oldest unfinished one, so
// memory is bounded. `progress`, if given, is called between passes. Needs `lanes + chunk` rows and
// slots of forward, and `lanes` more slots with an exit rule. A job's own faults (an empty or too
// long prompt, logits that are not finite, a cache too large for the requested memory or, even
// alone, for the device) become its outcome's error. Throws Error(usage) at entry, naming both
// settings, if two settings conflict.
BatchStats generate_batch(Forward& forward, const BatchOptions& options,
                          const std::function<std::optional<BatchJob>()>& next,
                          const std::function<void(BatchOutcome)>& done,
                          const std::function<void(const BatchStats&)>& progress = {});

}  // namespace tinyloop
