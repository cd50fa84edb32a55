// SPDX-License-Identifier: Apache-2.0
// Reads the vocabulary that a GGUF file has in its metadata (keys "tokenizer.ggml.*"). Such a file
// names its pre-tokenizer; what the names stand for is a table here, by the tokenizer.json of the
// models that they come from. Not the ids that end an answer: those are the configuration's.
#pragma once

#include <string>

#include "tinyloop/files/gguf_file.h"
#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

// Kinds gpt2 (byte-level BPE) and llama (SentencePiece's BPE: scores become merges). Throws
// Error(data) naming the key for other kinds, pre-tokenizers that are not known, and parts that
// contradict each other.
Vocabulary gguf_vocabulary(const GgufMetadata& metadata);

// Whether the metadata has a vocabulary, be it one that is not supported.
bool has_gguf_vocabulary(const GgufMetadata& metadata);

// The same of the file at `path`, which may have no tensors.
Vocabulary read_gguf_vocabulary(const std::string& path);

}  // namespace tinyloop
