// SPDX-License-Identifier: Apache-2.0
// Vocabularies from models and tokenizer files, and text as it arrives.
#include "text_options.h"

#include <fmt/format.h>

#include "tinyloop/error.h"
#include "tinyloop/files/byte_source.h"
#include "tinyloop/model/model_vocabulary.h"
#include "tinyloop/text/gguf_vocabulary.h"
#include "tinyloop/text/tokenizer_json.h"

namespace tinyloop::cli {

void VocabularyOptions::add(CLI::App& app) {
  CLI::Option* from_model = names_source(
      app.add_option("-m,--model", model, "The model, a .tinyloop file that has a vocabulary"));
  from_model->type_name("MODEL");
  names_source(
      app.add_option("--tokenizer", tokenizer,
                     "A tokenizer.json or a GGUF file to use instead of a model's vocabulary"))
      ->type_name("FILE");
}

Vocabulary VocabularyOptions::load() const {
  if (model.empty() == tokenizer.empty()) {
    throw Error(ErrorKind::usage, "{}",
                model.empty() ? "no vocabulary: give --model or --tokenizer"
                              : "--model and --tokenizer exclude each other");
  }
  if (!model.empty()) return load_vocabulary(model);
  return is_gguf_file(tokenizer) ? read_gguf_vocabulary(tokenizer) : read_tokenizer_json(tokenizer);
}

void TextFiles::add(CLI::App& app, const std::string& description) {
  names_source(app.add_option("FILE", files,
                              fmt::format("{}, - for standard input; without FILE: standard input",
                                          description)))
      ->type_name("");
}

void TextFiles::check_readable() const { InputOptions{files, ""}.check_readable(); }

void TextFiles::for_each_line(const std::function<void(const Line&)>& take) const {
  for (const std::string& path : paths()) {
    ByteSource source(path);
    std::string line;
    std::int64_t number = 0;
    const auto end_line = [&] {
      take({line, fmt::format("{}:{}", source.name(), ++number)});
      line.clear();
    };
    for (std::string_view bytes = source.peek(); !bytes.empty(); bytes = source.peek()) {
      const std::size_t end = bytes.find('\n');
      line += bytes.substr(0, end);
      source.consume(end == std::string_view::npos ? bytes.size() : end + 1);
      if (end != std::string_view::npos) end_line();
    }
    if (!line.empty()) end_line();
  }
}

void TextFiles::for_each_file(const std::function<void(const Line&)>& take) const {
  for (const std::string& path : paths()) {
    ByteSource source(path);
    std::string text;
    for (std::string_view bytes = source.peek(); !bytes.empty(); bytes = source.peek()) {
      text += bytes;
      source.consume(bytes.size());
    }
    take({text, source.name()});
  }
}

}  // namespace tinyloop::cli
