// SPDX-License-Identifier: Apache-2.0
// Writes JSON values as text. For output only: JSON is read with a library where files
// enter.
#pragma once

#include <string>
#include <string_view>

namespace tinyloop {

// "text" as a JSON string with its quotes, in ASCII: control characters and bytes above 127 become
// escapes (valid UTF-8 as \uXXXX, other bytes as U+FFFD).
std::string json_string(std::string_view text);

// The beginning of a text of unknown length and content, in the same ASCII without quotes: for
// messages, which must stay on a line and not steer a terminal.
std::string excerpt(std::string_view text);

// A number; NaN and infinities, which JSON does not know, become null.
std::string json_number(double value);

}  // namespace tinyloop
