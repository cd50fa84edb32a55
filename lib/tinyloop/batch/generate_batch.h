// SPDX-License-Identifier: Apache-2.0
// Many prompts answered together: lanes share passes, and each answer is the one that its prompt
// gets alone. Not where jobs come from or records go: that is the caller's.
#pragma once

#include <functional>
#include <optional>

#include "tinyloop/batch/job.h"
#include "tinyloop/engine/forward.h"

namespace tinyloop {

// Answers every job that `next` gives (no value: there are no more) and calls `done` once for each,
// in the order they finish; no more than options.in_sight are taken ahead of the oldest unfinished
// one, so memory is bounded. `progress`, if given, is called between passes. Needs `lanes + chunk`
// rows and slots of forward, with an exit rule `lanes` more slots. A job's own faults (empty or too
// long prompt, logits that are not finite, a cache too large for the memory asked for or, even if
// it is the only one, for the device) become its outcome's error. Throws Error(usage) at entry,
// naming the two, for what cannot work together.
BatchStats generate_batch(Forward& forward, const BatchOptions& options,
                          const std::function<std::optional<BatchJob>()>& next,
                          const std::function<void(BatchOutcome)>& done,
                          const std::function<void(const BatchStats&)>& progress = {});

}  // namespace tinyloop
