// SPDX-License-Identifier: Apache-2.0
// The supported conversation formats: a table, not a template language. Not about
// ids.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/text/vocabulary.h"

namespace tinyloop {

struct ChatMessage {
  std::string role, content;
};

// A formatted conversation: marks, which may be control tokens, and message texts, which
// may not.
struct ChatPiece {
  std::string text;
  bool mark = false;
};

class ChatTemplate {
 public:
  // "chatml", "llama3", "prefix=TEXT,suffix=TEXT" (with \n, \t and \\ in them) or "auto": what the
  // vocabulary's own template is. Throws Error(usage) for another name, for a vocabulary
  // template that is not one of the known ones, and for marks that are not in the vocabulary.
  static ChatTemplate choose(std::string_view name, const Vocabulary& vocabulary);

  // The conversation up to where the answer begins. Throws Error(usage) for a role that the
  // template does not support, and for no messages.
  std::vector<ChatPiece> apply(const std::vector<ChatMessage>& messages) const;

 private:
  enum class Kind { chatml, llama3, around };
  Kind kind_ = Kind::chatml;
  std::string prefix_, suffix_;  // around
  std::string system_;           // used if there is no system message; empty: nothing
};

}  // namespace tinyloop
