// SPDX-License-Identifier: Apache-2.0
// tl-tokenize: converts text to token ids. See tl-tokenize(1). Parses, calls the library, prints;
// the conversion is lib/text's business.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "options.h"
#include "streams.h"
#include "text_options.h"
#include "tinyloop/files/json_fields.h"
#include "tinyloop/text/chat_template.h"
#include "tinyloop/text/tokenizer.h"

namespace {

using namespace tinyloop;

struct Options {
  cli::VocabularyOptions vocabulary;
  cli::TextFiles input;
  cli::Output output;
  std::string chat;  // --template
  bool whole = false, jsonl = false, bos = false, special = false;
};

class Encoder {
 public:
  Encoder(const Options& options, Vocabulary vocabulary)
      : options_(options), tokenizer_(std::move(vocabulary), options.vocabulary.where()) {
    const Vocabulary& known = tokenizer_.vocabulary();
    if (options.bos && !known.bos) {
      throw Error(ErrorKind::usage, "--bos: {} names no begin-of-sequence token",
                  options.vocabulary.where());
    }
    if (!options.chat.empty()) template_ = ChatTemplate::choose(options.chat, known);
  }

  std::vector<TokenId> text(std::string_view given) {
    if (template_) return messages({{"user", std::string(given)}});
    return with_bos(tokenizer_.encode(given, options_.special));
  }

  std::vector<TokenId> messages(const std::vector<ChatMessage>& given) {
    if (!template_) {
      throw Error(ErrorKind::usage, "messages need --template");
    }
    const std::vector<ChatPiece> pieces = template_->apply(given);
    std::vector<TextPart> parts;
    for (const ChatPiece& piece : pieces) {
      parts.push_back({piece.text, piece.mark || options_.special});
    }
    return with_bos(tokenizer_.encode(parts));
  }

 private:
  std::vector<TokenId> with_bos(std::vector<TokenId> ids) const {
    if (!options_.bos) return ids;
    const TokenId bos = *tokenizer_.vocabulary().bos;
    if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
    return ids;
  }

  const Options& options_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
};

std::vector<ChatMessage> messages_of(std::string_view value, const std::string& where) {
  std::vector<ChatMessage> messages;
  for (const std::string_view element : split_json_list(value, where)) {
    const std::string place = fmt::format("{}[{}]", where, messages.size());
    if (!element.starts_with('{')) {
      throw Error(ErrorKind::usage, "{}: expected an object", place);
    }
    std::optional<std::string> role, content;
    for (const JsonField& field : split_json_object(element, place)) {
      const std::string at = fmt::format("{}.{}", place, field.name);
      if (field.name == "role") {
        role = json_text_value(field.value, at);
      } else if (field.name == "content") {
        content = json_text_value(field.value, at);
      } else {
        throw Error(ErrorKind::usage, "{}: only role and content are supported", at);
      }
    }
    if (!role || !content) {
      throw Error(ErrorKind::usage, "{}: key '{}' is missing", place, role ? "content" : "role");
    }
    messages.push_back({std::move(*role), std::move(*content)});
  }
  return messages;
}

// The object with ids instead of its text.
std::string record(const cli::TextFiles::Line& line, Encoder& encoder) {
  std::string out;
  bool found = false;
  for (const JsonField& field : split_json_object(line.text, line.where)) {
    out += out.empty() ? "{" : ",";
    const bool messages = field.name == "messages";
    if (field.name == "tokens") {
      throw Error(ErrorKind::usage, "{}: it already has tokens", line.where);
    }
    if (field.name != "text" && !messages) {
      out += fmt::format("{}:{}", field.raw, field.value);
      continue;
    }
    if (std::exchange(found, true)) {
      throw Error(ErrorKind::usage, "{}: text and messages exclude each other", line.where);
    }
    const std::string place = fmt::format("{}: {}", line.where, field.name);
    const std::vector<TokenId> ids = messages ? encoder.messages(messages_of(field.value, place))
                                              : encoder.text(json_text_value(field.value, place));
    out += fmt::format("\"tokens\":[{}]", fmt::join(ids, ","));
  }
  if (!found) throw Error(ErrorKind::usage, "{}: key 'text' or 'messages' is missing", line.where);
  return out + "}\n";
}

int tokenize(Options& options) {
  if (options.whole && options.jsonl) {
    throw Error(ErrorKind::usage, "--whole and --jsonl exclude each other");
  }
  options.input.check_readable();
  cli::check_outputs({options.output.name()});
  Encoder encoder(options, options.vocabulary.load());
  options.output.open();
  const auto take = [&](const cli::TextFiles::Line& line) {
    std::string answer;
    try {
      answer = options.jsonl ? record(line, encoder) : format_ids(encoder.text(line.text)) + "\n";
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with(line.where)) throw;
      throw Error(error.kind(), "{}: {}", line.where, error.what());
    }
    options.output.write(answer);
    options.output.flush();
  };
  if (options.whole) {
    options.input.for_each_file(take);
  } else {
    options.input.for_each_line(take);
  }
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Converts text to token ids.", "tl-tokenize");
  options.vocabulary.add(app);
  options.input.add(app, "Text");
  app.add_flag("--whole", options.whole, "Read each FILE as one text; default: each line");
  app.add_flag("--jsonl", options.jsonl,
               "JSON Lines in and out: text or messages become tokens, other fields are kept");
  app.add_option("--template", options.chat,
                 "Format conversations: auto, chatml, llama3 or prefix=TEXT,suffix=TEXT")
      ->type_name("NAME");
  app.add_flag("--bos", options.bos, "Start with the begin-of-sequence token");
  app.add_flag("--special", options.special, "Let text name control tokens");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return tokenize(options); });
}
