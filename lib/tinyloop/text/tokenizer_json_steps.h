// SPDX-License-Identifier: Apache-2.0
// The steps in tokenizer.json around the model: normalizer, pre_tokenizer, post_processor, decoder.
// The rest of the file is tokenizer_json's.
#pragma once

#include "tinyloop/text/json_node.h"
#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Each adds to the vocabulary; the node is the step or, for a sequence, a list of them.
void read_normalizer(const JsonNode& node, Vocabulary& vocabulary);
void read_pre_tokenizer(const JsonNode& node, Vocabulary& vocabulary);
void read_post_processor(const JsonNode& node, Vocabulary& vocabulary);
// After the pre-tokenizer.
void read_decoder(const JsonNode& node, Vocabulary& vocabulary);

}  // namespace tinyloop
