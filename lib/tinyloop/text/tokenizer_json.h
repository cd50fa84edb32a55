// SPDX-License-Identifier: Apache-2.0
// Reads Hugging Face's tokenizer.json, with tokenizer_config.json and chat_template.jinja if
// they are beside it. Refuses anything unknown by name and place: ids that are almost right
// are worse than none.
#pragma once

#include <string>
#include <string_view>

#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Throws Error(io) or Error(data) naming the file.
Vocabulary read_tokenizer_json(const std::string& path);

// The same from memory. `where` and `config_where` are names in messages; config: of
// tokenizer_config.json, empty: there is none.
Vocabulary parse_tokenizer_json(std::string_view text, const std::string& where,
                                std::string_view config = {}, const std::string& config_where = {});

}  // namespace tinyloop
