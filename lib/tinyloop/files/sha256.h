// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of bytes in memory, for keys that other programs compute too. Implemented
// here because this is the only use of a cryptographic hash: a library would be one more package
// on every machine for one function. Not for secrets; other hashes here are xxHash.
#pragma once

#include <string>
#include <string_view>

namespace tinyloop {

std::string sha256_hex(std::string_view bytes);  // 64 digits, lower case

}  // namespace tinyloop
