// SPDX-License-Identifier: Apache-2.0
// The fields of one JSON object as written, so that some can be replaced and the others
// kept byte for byte. Not for reading the values of the kept ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

struct JsonField {
  std::string name;        // decoded
  std::string_view raw;    // the name as it is written, with its quotes
  std::string_view value;  // as it is written, without blanks around it
};

// The fields of `text`, in order; they point into it. Throws Error(usage) naming `where` and the
// column if the text is not a JSON object, Error(usage) for a duplicate name.
std::vector<JsonField> split_json_object(std::string_view text, std::string_view where);

// A value that must be a string or a list of integers in [0, max_id]; throws Error(usage) naming
// `where`.
std::string json_text_value(std::string_view value, std::string_view where);
std::vector<std::int32_t> json_ids_value(std::string_view value, std::int64_t max_id,
                                         std::string_view where);
// The raw elements of a list; throws Error(usage) naming `where` if it is not a list.
std::vector<std::string_view> split_json_list(std::string_view value, std::string_view where);

}  // namespace tinyloop
