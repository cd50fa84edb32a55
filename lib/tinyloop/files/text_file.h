// SPDX-License-Identifier: Apache-2.0
// Small files read whole: settings, profiles, indexes. Not for input that a pipe may bring, and not
// for models.
#pragma once

#include <cstdint>
#include <string>

namespace tinyloop {

// All bytes of a regular file. Throws Error(io) naming the path if it cannot be read or is no
// regular file (nothing is waited for), Error(data) if it holds more than `most` bytes.
std::string read_text_file(const std::string& path, std::int64_t most);

}  // namespace tinyloop
