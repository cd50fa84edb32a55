// SPDX-License-Identifier: Apache-2.0
// Conversations as known templates write them, and templates that are recognised or refused.
#include <doctest/doctest.h>

#include <string>

#include "tinyloop/error.h"
#include "tinyloop/text/chat_template.h"

namespace tinyloop {
namespace {

Vocabulary vocabulary_with(const std::string& chat_template) {
  Vocabulary vocabulary;
  TokenId id = 0;
  for (const char* mark : {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
                           "<|end_header_id|>", "<|eot_id|>"}) {
    vocabulary.tokens.push_back({mark, false});
    vocabulary.added.push_back({id++, mark, true, false, false, false, false});
  }
  vocabulary.chat_template = chat_template;
  return vocabulary;
}

std::string written(const ChatTemplate& chat, const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatPiece& piece : chat.apply(messages)) text += piece.text;
  return text;
}

const std::string kSmol =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\nBe a good one.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
    "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const std::string kLlama3 =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
    "+ "
    "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ "
    "content }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

TEST_CASE("conversations are written as the templates say") {
  const Vocabulary plain = vocabulary_with("");
  CHECK(written(ChatTemplate::choose("chatml", plain), {{"user", " a\nb "}}) ==
        "<|im_start|>user\n a\nb <|im_end|>\n<|im_start|>assistant\n");
  CHECK(written(ChatTemplate::choose("llama3", plain), {{"system", "s"}, {"user", " a\nb "}}) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\na\nb<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(written(ChatTemplate::choose("prefix=<\\n,suffix=,\\\\>", plain),
                {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}) == "<\na,\\>b<\nc,\\>");
}

TEST_CASE("texts of messages are no marks") {
  for (const char* name : {"chatml", "llama3", "prefix=a,suffix=b"}) {
    const ChatTemplate chat = ChatTemplate::choose(name, vocabulary_with(""));
    bool found = false;
    for (const ChatPiece& piece : chat.apply({{"user", "<|im_end|>x"}})) {
      if (piece.text.find("<|im_end|>x") == std::string::npos) continue;
      found = true;
      CHECK(!piece.mark);
    }
    CHECK(found);
  }
}

TEST_CASE("a model's own template is recognised, with what it puts before a conversation") {
  const ChatTemplate chat = ChatTemplate::choose("auto", vocabulary_with(kSmol));
  CHECK(written(chat, {{"user", "a"}}) ==
        "<|im_start|>system\nBe a good one.<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(written(chat, {{"system", "b"}}) ==
        "<|im_start|>system\nb<|im_end|>\n<|im_start|>assistant\n");
  CHECK(written(ChatTemplate::choose("auto", vocabulary_with(kSmol + "\n")), {{"user", "a"}}) ==
        written(chat, {{"user", "a"}}));
  const ChatTemplate llama = ChatTemplate::choose("auto", vocabulary_with(kLlama3));
  CHECK(written(llama, {{"user", "a"}}).starts_with("<|begin_of_text|><|start_header_id|>user"));
  const std::string spread =
      "{%- for message in messages -%}\n  {{- \"<|im_start|>\" + message.role + \"\\n\" + "
      "message.content + \"<|im_end|>\\n\" -}}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n"
      "  {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}\n";
  CHECK(written(ChatTemplate::choose("auto", vocabulary_with(spread)), {{"user", "a"}}) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("what would be written otherwise is refused by name") {
  std::string quoted = kSmol, apart = kSmol;
  quoted.replace(quoted.find("good"), 4, "\"g\"");
  apart.insert(apart.find("{% if add"), " ");
  for (const std::string& other :
       {quoted, apart, std::string("{{ messages }}"), kSmol + " ", kSmol + "\n\n", kSmol + "x",
        "{{ bos_token }}" + kSmol,
        std::string("{% for message in messages %}\n{{'<|im_start|>' + message['role'] + '\n' + "
                    "message['content'] + '<|im_end|>' + '\n'}}\n{% endfor %}{% if "
                    "add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
        std::string("{{"), std::string("{% for")}) {
    CAPTURE(other);
    CHECK_THROWS_AS(ChatTemplate::choose("auto", vocabulary_with(other)), Error);
  }
  CHECK_THROWS_WITH(ChatTemplate::choose("auto", vocabulary_with("{{ tools }}")),
                    "`template` auto: the model's own template, \"{{ tools }}\", is neither chatml "
                    "nor llama3; name one, or prefix=TEXT,suffix=TEXT");
  CHECK_THROWS_AS(ChatTemplate::choose("auto", vocabulary_with("")), Error);
  CHECK_THROWS_AS(ChatTemplate::choose("alpaca", vocabulary_with("")), Error);
  CHECK_THROWS_WITH(ChatTemplate::choose("chatml", Vocabulary()),
                    "`template` chatml: the vocabulary has no token <|im_start|>");
  CHECK_THROWS_AS(ChatTemplate::choose("prefix=\\q,suffix=", vocabulary_with("")), Error);
  const ChatTemplate around = ChatTemplate::choose("prefix=,suffix=", vocabulary_with(""));
  CHECK_THROWS_AS(around.apply({{"system", "x"}}), Error);
  CHECK_THROWS_AS(around.apply({}), Error);
}

}  // namespace
}  // namespace tinyloop
