// SPDX-License-Identifier: Apache-2.0
// The few ways to write a conversation that are known: a table, not a template language. Not about
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

// What a conversation becomes: marks, which may be control tokens, and texts of the messages, which
// may not.
struct ChatPiece {
  std::string text;
  bool mark = false;
};

class ChatTemplate {
 public:
  // "chatml", "llama3", "prefix=TEXT,suffix=TEXT" (with \n, \t and \\ in them) or "auto": what the
  // vocabulary's own template is. Throws Error(usage) for another name, for a template of the
  // vocabulary that is none of the known ones, and for marks that are no tokens of it.
  static ChatTemplate choose(std::string_view name, const Vocabulary& vocabulary);

  // The conversation up to where the answer begins. Throws Error(usage) for a role that the
  // template has no place for, and for no messages.
  std::vector<ChatPiece> apply(const std::vector<ChatMessage>& messages) const;

 private:
  enum class Kind { chatml, llama3, around };
  Kind kind_ = Kind::chatml;
  std::string prefix_, suffix_;  // around
  std::string system_;           // where no message is of the system; empty: nothing
};

}  // namespace tinyloop
