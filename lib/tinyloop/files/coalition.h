// SPDX-License-Identifier: Apache-2.0
// Coalitions: prompts made of the present segments of a snapshot, as sent by the hundred by
// programs that attribute answers to parts of a prompt. Defines the names of their groups and when
// two are equal. Not how a line of JSON becomes one: that is token_lines.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

// The name of a coalition's group, which other programs compute too: 16 hex digits of SHA-256 over
// the snapshot's id and then, for every segment but the last, its id and a byte that says whether
// it is present, 1 or 0. Coalitions that differ only in the last segment, or in its presence, have
// the same name: they share all before it. `present` has one value per segment, at least one. The
// parts are joined without their lengths, so different ones may have the same name.
std::string coalition_name(std::string_view snapshot, std::span<const std::string> segments,
                           const std::vector<bool>& present);

// The same parts with their lengths: equal texts are equal groups.
std::string coalition_parts(std::string_view snapshot, std::span<const std::string> segments,
                            const std::vector<bool>& present);

}  // namespace tinyloop
