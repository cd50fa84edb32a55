// SPDX-License-Identifier: Apache-2.0
// Coalitions: prompts made of the segments of a snapshot that are present, as programs that
// attribute answers to parts of a prompt send them by the hundred. What their groups are called and
// when two are the same. Not how a line of JSON becomes one: that is token_lines.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

// The name of a coalition's group, which other programs compute too: 16 hex digits of SHA-256 over
// the snapshot's id and then, for every segment but the last, its id and a byte that says whether
// it is present, 1 or 0. What differs only in the last segment, or in whether that is there, has
// one name: it shares all that goes before. `present` has as many values as there are segments, at
// least one. The parts are joined without their lengths, so different ones may have one name.
std::string coalition_name(std::string_view snapshot, std::span<const std::string> segments,
                           const std::vector<bool>& present);

// The same parts with their lengths: equal texts are equal groups.
std::string coalition_parts(std::string_view snapshot, std::span<const std::string> segments,
                            const std::vector<bool>& present);

}  // namespace tinyloop
