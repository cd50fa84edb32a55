// SPDX-License-Identifier: Apache-2.0
// Opens the model like all other code, so that its problems are reported in the same words.
#include "tinyloop/model/model_vocabulary.h"

#include "tinyloop/error.h"
#include "tinyloop/model/model.h"

namespace tinyloop {

Vocabulary load_vocabulary(const std::string& model_path) {
  const Model model = Model::open(model_path);
  if (model.vocabulary().empty()) {
    throw Error(
        ErrorKind::data,
        "{}: has no vocabulary; tl-convert stores one if a folder has a tokenizer.json or a "
        "GGUF file has one",
        model_path);
  }
  return Vocabulary::parse(model.vocabulary(), model_path);
}

}  // namespace tinyloop
