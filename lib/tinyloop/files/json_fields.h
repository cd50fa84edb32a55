// SPDX-License-Identifier: Apache-2.0
// The fields of one JSON object as they are written, so that some can be replaced and the others
// kept to the byte. Not for reading what is inside the kept ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

struct JsonField {
  std::string name;       // decoded
  std::string_view raw;   // the name as it is written, with its quotes
  std::string_view value; // as it is written, without blanks around it
};

// The fields of `text`, in order; they point into it. Throws Error(usage) naming `where` and the
// column if the text is no JSON object, Error(usage) if a name is there twice.
std::vector<JsonField> split_json_object(std::string_view text, std::string_view where);

// A value that must be a string or a list of integers in [0, most]; throws Error(usage) naming
// `where`.
std::string json_text_value(std::string_view value, std::string_view where);
std::vector<std::int32_t> json_ids_value(std::string_view value, std::int64_t most,
                                         std::string_view where);
// The raw elements of a list; throws Error(usage) naming `where` if it is none.
std::vector<std::string_view> split_json_list(std::string_view value, std::string_view where);

}  // namespace tinyloop
