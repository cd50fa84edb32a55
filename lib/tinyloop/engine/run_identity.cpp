// SPDX-License-Identifier: Apache-2.0
// Collects the parts of an identity.
#include "tinyloop/engine/run_identity.h"

#include <string>

namespace tinyloop {
namespace {

// What is stored in a mode, by a new name whenever its numbers change: entries, states and journals
// of the older numbers are not taken for the same.
std::string stored_name(StorageMode mode) {
  const bool second = mode == StorageMode::int8 || mode == StorageMode::int4 ||
                      mode == StorageMode::h8 || mode == StorageMode::h4;
  return std::string(name_of(mode)) + (second ? "-2" : "");
}

}  // namespace

CacheIdentity cache_identity(Forward& forward) {
  CacheIdentity identity;
  identity.model = forward.model().fingerprint();
  identity.arithmetic = forward.ops().arithmetic();
  identity.kv = stored_name(forward.plan().storage);
  identity.initial_state = forward.initial_identity();
  identity.loops = forward.plan().loops;
  identity.window = forward.plan().window;
  return identity;
}

}  // namespace tinyloop
