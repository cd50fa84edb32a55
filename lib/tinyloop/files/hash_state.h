// SPDX-License-Identifier: Apache-2.0
// The state of a hash over bytes that arrive in pieces; its allocation may fail.
// Not the hash itself: that is XXH3.
#pragma once

#include <xxhash.h>

#include <memory>
#include <new>

namespace tinyloop {

using HashState = std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)>;

// Not yet reset. Throws std::bad_alloc.
inline HashState make_hash_state() {
  HashState state(XXH3_createState(), XXH3_freeState);
  if (!state) throw std::bad_alloc();
  return state;
}

}  // namespace tinyloop
