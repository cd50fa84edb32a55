// SPDX-License-Identifier: Apache-2.0
// Plain decoding of one sequence: the newest position from loop 0 to the last, one token at a time;
// every other schedule is tested against it by equality. And the call that takes any of them.
#pragma once

#include "tinyloop/engine/forward.h"
#include "tinyloop/prompt/prompt.h"
#include "tinyloop/sampling/sampler.h"
#include "tinyloop/schedule/request.h"
#include "tinyloop/schedule/speculation.h"

namespace tinyloop {

// Continues a prompt that was read (see prompt/prompt.h) with tokens picked by `sampler`; its cache
// afterwards also holds the continuation, but for the last token, in the planes that the request
// wants. With an exit rule its last position is run again, or for the first time. Needs 1 slot of
// `forward`, 2 with an exit rule. Throws Error(device) naming step and position if logits are not
// finite.
Answer decode(Forward& forward, Prompt&& prompt, const Sampler& sampler,
              const DecodeRequest& request);

// The same by a speculation, or plainly.
Answer generate(Forward& forward, Prompt&& prompt, const Sampler& sampler,
                const DecodeRequest& request, const Speculation& speculation);

}  // namespace tinyloop
