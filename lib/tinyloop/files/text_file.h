// SPDX-License-Identifier: Apache-2.0
// Small files read whole: settings, profiles, indexes. Not for input from pipes, and not
// for models.
#pragma once

#include <cstdint>
#include <string>

namespace tinyloop {

// All bytes of a regular file. Throws Error(io) naming the path if it cannot be read or is not a
// regular file (nothing is waited for), Error(data) if it is longer than `max_bytes`.
std::string read_text_file(const std::string& path, std::int64_t max_bytes);

}  // namespace tinyloop
