// SPDX-License-Identifier: Apache-2.0
// tl-detokenize: converts token ids to text. See tl-detokenize(1). Parses, calls the library,
// prints; the conversion is lib/text's business.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "options.h"
#include "streams.h"
#include "text_options.h"
#include "tinyloop/files/json_fields.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/token_lines.h"
#include "tinyloop/text/detokenizer.h"

namespace {

using namespace tinyloop;

struct Options {
  cli::VocabularyOptions vocabulary;
  cli::TextFiles input;
  cli::Output output;
  DetokenizerOptions text;
  bool jsonl = false, offsets = false;
};

// The object with its text in the place of the ids; one without ids, such as an error record,
// stays.
std::string record(const Options& options, const cli::TextFiles::Line& line,
                   Detokenizer& detokenizer) {
  const std::vector<JsonField> fields = split_json_object(line.text, line.where);
  const auto has = [&](std::string_view name) {
    return std::any_of(fields.begin(), fields.end(),
                       [&](const JsonField& field) { return field.name == name; });
  };
  for (const char* made : {"text", "offsets"}) {
    if (has("tokens") && has(made)) {
      throw Error(ErrorKind::usage, "{}: it already has '{}'", line.where, made);
    }
  }
  std::string out;
  for (const JsonField& field : fields) {
    out += out.empty() ? "{" : ",";
    if (field.name != "tokens") {
      out += fmt::format("{}:{}", field.raw, field.value);
      continue;
    }
    const Detokenizer::Aligned aligned = detokenizer.align(
        json_ids_value(field.value, detokenizer.vocabulary_size() - 1, line.where + ": tokens"));
    out += fmt::format("\"text\":{}", json_string(aligned.text));
    if (options.offsets) out += fmt::format(",\"offsets\":[{}]", fmt::join(aligned.offsets, ","));
  }
  return (out.empty() ? "{" : out) + "}\n";
}

// Writes text as soon as it is final, or a line of offsets for a line of ids.
void write_file(Options& options, const std::string& path, Detokenizer& detokenizer) {
  TokenStream stream(path, {.vocab = detokenizer.vocabulary_size()});
  std::vector<TokenId> line;
  while (const std::optional<TokenStream::Part> part = stream.next()) {
    std::string text;
    if (options.offsets) {
      line.insert(line.end(), part->ids.begin(), part->ids.end());
      if (part->line_end) {
        text = fmt::format("{}\n", fmt::join(detokenizer.align(line).offsets, " "));
        line.clear();
      }
    } else {
      for (const TokenId id : part->ids) text += detokenizer.push(id);
      if (part->line_end) text += detokenizer.finish() + "\n";
    }
    if (text.empty()) continue;
    options.output.write(text);
    options.output.flush();
  }
}

int detokenize(Options& options) {
  if (options.jsonl && options.text.bytes) {
    throw Error(ErrorKind::usage, "--jsonl and --bytes exclude each other: JSON is UTF-8");
  }
  options.input.check_readable();
  cli::check_outputs({options.output.name()});
  Detokenizer detokenizer(options.vocabulary.load(), options.text);
  options.output.open();
  if (options.jsonl) {
    options.input.for_each_line([&](const cli::TextFiles::Line& line) {
      options.output.write(record(options, line, detokenizer));
      options.output.flush();
    });
  } else {
    for (const std::string& path : options.input.paths()) write_file(options, path, detokenizer);
  }
  options.output.finish();
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Converts token ids to text.", "tl-detokenize");
  options.vocabulary.add(app);
  options.input.add(app, "Sequences of token ids");
  app.add_flag("--jsonl", options.jsonl,
               "JSON Lines in and out: tokens become text, other fields are kept");
  app.add_flag("--special", options.text.special, "Write control tokens by their names");
  app.add_flag("--bytes", options.text.bytes, "Write invalid UTF-8 as it is, not as U+FFFD");
  app.add_flag(
      "--offsets", options.offsets,
      "Write the byte offset of each token's text instead of the text (with --jsonl: as well)");
  options.output.add(app);
  return cli::run(app, argc, argv, [&] { return detokenize(options); });
}
