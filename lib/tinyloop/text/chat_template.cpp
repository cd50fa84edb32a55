// SPDX-License-Identifier: Apache-2.0
// Writes conversations, and recognises the templates of model files that would write the same.
#include "tinyloop/text/chat_template.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"

namespace tinyloop {

namespace {

// Whether what lies between two tags is layout that leaves no trace: where a tag trims, and behind
// and before statements, as transformers sets Jinja up.
bool leaves_no_trace(std::string_view between, std::string_view before, std::string_view behind) {
  if (between.find_first_not_of(" \t\r\n") != std::string_view::npos) return false;
  if (between.empty() || before.ends_with("-%}") || before.ends_with("-}}")) return true;
  if (behind.starts_with("{%-") || behind.starts_with("{{-")) return true;
  // A statement takes the line end behind it along, and the indentation before it.
  if (!before.empty()) {
    if (!before.ends_with("%}") || between.front() != '\n') return false;
    between.remove_prefix(1);
  }
  return between.empty() ||
         (between.find_first_of("\r\n") == std::string_view::npos && behind.starts_with("{%"));
}

// The inside of a tag without blanks outside of strings, with one kind of quotes.
std::string squeezed_tag(std::string_view tag) {
  std::string out;
  char quote = 0;
  for (std::size_t i = 0; i < tag.size(); ++i) {
    const char c = tag[i];
    if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
      out += '"';
    } else if (quote == c && quote != 0) {
      quote = 0;
      out += '"';
    } else if (quote != 0 && c == '\\' && i + 1 < tag.size() && tag[i + 1] == 'n') {
      out += '\n';
      ++i;
    } else if (quote != 0 || std::isspace(static_cast<unsigned char>(c)) == 0) {
      out += c;
    }
  }
  return out;
}

// A template without layout, so that only what it says is compared.
std::string squeezed(std::string_view text) {
  std::string out;
  std::string_view before;  // the last tag
  while (true) {
    const std::size_t begin = std::min(text.find("{%"), text.find("{{"));
    const std::string_view between = text.substr(0, begin);
    if (begin == std::string_view::npos) {
      if (!leaves_no_trace(between, before, {})) out += between;
      break;
    }
    text.remove_prefix(begin);
    const std::size_t end = text.find(text[1] == '%' ? "%}" : "}}");
    if (!leaves_no_trace(between, before, text)) out += between;
    before = text.substr(0, end == std::string_view::npos ? end : end + 2);
    text.remove_prefix(before.size());
    std::string tag = squeezed_tag(before);
    if (tag.size() > 4 && tag[2] == '-') tag.erase(2, 1);
    if (tag.size() > 4 && tag[tag.size() - 3] == '-') tag.erase(tag.size() - 3, 1);
    out += tag;
  }
  // Two spellings of the same.
  for (const std::string_view key : {"role", "content"}) {
    const std::string dotted = fmt::format("message.{}", key);
    const std::string bracketed = fmt::format("message[\"{}\"]", key);
    for (std::size_t at = out.find(dotted); at != std::string::npos; at = out.find(dotted)) {
      out.replace(at, dotted.size(), bracketed);
    }
  }
  return out;
}

constexpr std::string_view kAsk =
    "{%ifadd_generation_prompt%}{{\"<|im_start|>assistant\n\"}}{%endif%}";
constexpr std::string_view kLoop = "{%formessageinmessages%}";
constexpr std::string_view kMessage =
    "{{\"<|im_start|>\"+message[\"role\"]+\"\n\"+message[\"content\"]+\"<|im_end|>\"+\"\n\"}}"
    "{%endfor%}";
constexpr std::string_view kMessageShort =
    "{{\"<|im_start|>\"+message[\"role\"]+\"\n\"+message[\"content\"]+\"<|im_end|>\n\"}}{%endfor%}";
// Before the text of a system message that is there by default, and behind it.
constexpr std::string_view kDefaultBegin =
    "{%ifloop.firstandmessages[0][\"role\"]!=\"system\"%}{{\"<|im_start|>system\n";
constexpr std::string_view kDefaultEnd = "<|im_end|>\n\"}}{%endif%}";
constexpr std::string_view kLlama3 =
    "{%setloop_messages=messages%}{%formessageinloop_messages%}"
    "{%setcontent=\"<|start_header_id|>\"+message[\"role\"]+\"<|end_header_id|>\n\n\"+"
    "message[\"content\"]|trim+\"<|eot_id|>\"%}{%ifloop.index0==0%}"
    "{%setcontent=bos_token+content%}{%endif%}{{content}}{%endfor%}";
constexpr std::string_view kLlama3Ask = "{{\"<|start_header_id|>assistant<|end_header_id|>\n\n\"}}";

bool is_chatml(std::string_view rest, std::string& system) {
  if (!rest.starts_with(kLoop)) return false;
  rest.remove_prefix(kLoop.size());
  if (rest.starts_with(kDefaultBegin)) {
    rest.remove_prefix(kDefaultBegin.size());
    const std::size_t end = rest.find(kDefaultEnd);
    if (end == std::string_view::npos) return false;
    system = rest.substr(0, end);
    if (system.find('"') != std::string::npos || system.find('{') != std::string::npos) {
      return false;
    }
    rest.remove_prefix(end + kDefaultEnd.size());
  }
  for (const std::string_view message : {kMessage, kMessageShort}) {
    if (rest.starts_with(message)) return rest.substr(message.size()) == kAsk;
  }
  return false;
}

bool is_llama3(std::string_view rest) {
  if (!rest.starts_with(kLlama3)) return false;
  rest.remove_prefix(kLlama3.size());
  return rest == kLlama3Ask ||
         rest == fmt::format("{{%ifadd_generation_prompt%}}{}{{%endif%}}", kLlama3Ask);
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const char next = i + 1 < text.size() ? text[i + 1] : 0;
    if (next != 'n' && next != 't' && next != '\\') {
      throw Error(ErrorKind::usage,
                  "`template`: expected n, t or another backslash after a backslash");
    }
    out += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    ++i;
  }
  return out;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
}

}  // namespace

ChatTemplate ChatTemplate::choose(std::string_view name, const Vocabulary& vocabulary) {
  ChatTemplate chosen;
  constexpr std::string_view kPrefix = "prefix=", kSuffix = ",suffix=";
  const std::size_t suffix = name.rfind(kSuffix);
  if (name.starts_with(kPrefix) && suffix != std::string_view::npos) {
    chosen.kind_ = Kind::around;
    chosen.prefix_ = unescaped(name.substr(kPrefix.size(), suffix - kPrefix.size()));
    chosen.suffix_ = unescaped(name.substr(suffix + kSuffix.size()));
    return chosen;
  }
  if (name == "auto") {
    const std::string own = squeezed(vocabulary.chat_template);
    if (own.empty()) {
      throw Error(ErrorKind::usage, "`template` auto: the vocabulary has no template; name one");
    }
    if (is_chatml(own, chosen.system_)) {
      chosen.kind_ = Kind::chatml;
    } else if (is_llama3(own)) {
      chosen.kind_ = Kind::llama3;
    } else {
      throw Error(ErrorKind::usage,
                  "`template` auto: the model's own template, \"{}\", is neither chatml nor "
                  "llama3; name one, or prefix=TEXT,suffix=TEXT",
                  excerpt(vocabulary.chat_template));
    }
  } else if (name == "chatml") {
    chosen.kind_ = Kind::chatml;
  } else if (name == "llama3") {
    chosen.kind_ = Kind::llama3;
  } else {
    throw Error(ErrorKind::usage,
                "`template` '{}': is none of auto, chatml, llama3, prefix=TEXT,suffix=TEXT",
                excerpt(name));
  }
  const std::vector<std::string_view> marks =
      chosen.kind_ == Kind::chatml
          ? std::vector<std::string_view>{"<|im_start|>", "<|im_end|>"}
          : std::vector<std::string_view>{"<|begin_of_text|>", "<|start_header_id|>",
                                          "<|end_header_id|>", "<|eot_id|>"};
  for (const std::string_view mark : marks) {
    if (vocabulary.find_added(mark) == nullptr) {
      throw Error(ErrorKind::usage, "`template` {}: the vocabulary has no token {}", name, mark);
    }
  }
  return chosen;
}

std::vector<ChatPiece> ChatTemplate::apply(const std::vector<ChatMessage>& messages) const {
  if (messages.empty()) throw Error(ErrorKind::usage, "there are no messages");
  std::vector<ChatPiece> pieces;
  const auto mark = [&](std::string text) { pieces.push_back({std::move(text), true}); };
  const auto text = [&](std::string given) { pieces.push_back({std::move(given), false}); };
  const auto chatml = [&](const std::string& role, const std::string& content) {
    mark("<|im_start|>");
    text(role + "\n" + content);
    mark("<|im_end|>");
    text("\n");
  };
  if (kind_ == Kind::chatml && !system_.empty() && messages.front().role != "system") {
    chatml("system", system_);
  }
  if (kind_ == Kind::llama3) mark("<|begin_of_text|>");
  for (const auto& [role, content] : messages) {
    switch (kind_) {
      case Kind::chatml:
        chatml(role, content);
        break;
      case Kind::llama3:
        mark("<|start_header_id|>");
        text(role);
        mark("<|end_header_id|>");
        text("\n\n" + trimmed(content));
        mark("<|eot_id|>");
        break;
      case Kind::around:
        if (role != "user" && role != "assistant") {
          throw Error(ErrorKind::usage, "prefix and suffix do not support the role '{}'",
                      excerpt(role));
        }
        if (role == "user") mark(prefix_);
        text(content);
        if (role == "user") mark(suffix_);
        break;
    }
  }
  if (kind_ == Kind::chatml) {
    mark("<|im_start|>");
    text("assistant\n");
  } else if (kind_ == Kind::llama3) {
    mark("<|start_header_id|>");
    text("assistant");
    mark("<|end_header_id|>");
    text("\n\n");
  }
  return pieces;
}

}  // namespace tinyloop
