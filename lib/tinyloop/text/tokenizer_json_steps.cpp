// SPDX-License-Identifier: Apache-2.0
// One function per kind of step, one branch per known type.
#include "tinyloop/text/tokenizer_json_steps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tinyloop/files/utf8.h"
#include "tinyloop/text/split_patterns.h"

namespace tinyloop {

namespace {

TextPattern pattern_of(const JsonNode& node) {
  node.only({"String", "Regex"});
  const auto text = node.find("String"), regex = node.find("Regex");
  if (text.has_value() == regex.has_value()) node.refuse("expected String or Regex");
  const JsonNode& given = text ? *text : *regex;
  if (given.text().empty()) given.refuse("it is empty");
  return {regex.has_value(), given.text()};
}

// A text of one character.
std::string character_of(const JsonNode& node) {
  const std::string& text = node.text();
  if (text.empty() || first_utf8_char(text).bytes != text.size()) {
    node.refuse("expected one character");
  }
  return text;
}

PrependScheme prepend_scheme(const JsonNode& node) {
  constexpr std::array<std::pair<std::string_view, PrependScheme>, 3> kSchemes = {
      {{"always", PrependScheme::always},
       {"first", PrependScheme::first},
       {"never", PrependScheme::never}}};
  const auto given = node.find("prepend_scheme");
  // Older files say only this.
  if (!given) {
    return node.flag_or("add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
  }
  for (const auto& [name, scheme] : kSchemes) {
    if (given->text() != name) continue;
    if (!node.flag_or("add_prefix_space", true) && scheme != PrependScheme::never) {
      node.refuse("add_prefix_space and prepend_scheme contradict each other");
    }
    return scheme;
  }
  given->refuse(fmt::format("\"{}\" is not supported", excerpt(given->text())));
}

SplitBehavior behavior_of(const JsonNode& node) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {
      {{"Removed", SplitBehavior::removed},
       {"Isolated", SplitBehavior::isolated},
       {"MergedWithPrevious", SplitBehavior::merged_with_previous},
       {"MergedWithNext", SplitBehavior::merged_with_next},
       {"Contiguous", SplitBehavior::contiguous}}};
  for (const auto& [name, behavior] : kBehaviors) {
    if (node.text() == name) return behavior;
  }
  node.refuse(fmt::format("\"{}\" is not supported", excerpt(node.text())));
}

// SpecialToken ... Sequence A ... SpecialToken
void read_template(const JsonNode& node, Vocabulary& vocabulary) {
  node.only({"type", "single", "pair", "special_tokens"});
  bool behind = false;
  for (const JsonNode& part : node.at("single").elements()) {
    part.only({"SpecialToken", "Sequence"});
    if (const auto sequence = part.find("Sequence")) {
      if (std::exchange(behind, true)) part.refuse("a second sequence is not supported");
      continue;
    }
    const std::string& name = part.at("SpecialToken").text("id");
    for (const JsonNode& id : node.at("special_tokens").at(name).at("ids").elements()) {
      const auto token = static_cast<TokenId>(id.integer(0, vocabulary.size() - 1));
      (behind ? vocabulary.after : vocabulary.before).push_back(token);
    }
  }
  if (!behind) node.at("single").refuse("the sequence is missing");
}

}  // namespace

void read_normalizer(const JsonNode& node, Vocabulary& vocabulary) {
  const std::string& type = node.text("type");
  NormalizerStep step;
  constexpr std::array<std::pair<std::string_view, NormalizerKind>, 4> kForms = {
      {{"NFC", NormalizerKind::nfc},
       {"NFD", NormalizerKind::nfd},
       {"NFKC", NormalizerKind::nfkc},
       {"NFKD", NormalizerKind::nfkd}}};
  for (const auto& [name, kind] : kForms) {
    if (type != name) continue;
    node.only({"type"});
    step.kind = kind;
    vocabulary.normalizer.push_back(std::move(step));
    return;
  }
  if (type == "Sequence") {
    node.only({"type", "normalizers"});
    for (const JsonNode& part : node.at("normalizers").elements()) {
      read_normalizer(part, vocabulary);
    }
    return;
  }
  if (type == "Prepend") {
    node.only({"type", "prepend"});
    step.kind = NormalizerKind::prepend;
    step.content = node.text("prepend");
  } else if (type == "Replace") {
    node.only({"type", "pattern", "content"});
    step.kind = NormalizerKind::replace;
    step.pattern = pattern_of(node.at("pattern"));
    step.content = node.text("content");
  } else {
    node.refuse_type(type);
  }
  vocabulary.normalizer.push_back(std::move(step));
}

void read_pre_tokenizer(const JsonNode& node, Vocabulary& vocabulary) {
  const std::string& type = node.text("type");
  if (vocabulary.byte_level) {
    node.refuse(fmt::format("type \"{}\" behind ByteLevel is not supported", excerpt(type)));
  }
  PreTokenizerStep step;
  if (type == "Sequence") {
    node.only({"type", "pretokenizers"});
    for (const JsonNode& part : node.at("pretokenizers").elements()) {
      read_pre_tokenizer(part, vocabulary);
    }
    return;
  }
  if (type == "Split") {
    node.only({"type", "pattern", "behavior", "invert"});
    step.pattern = pattern_of(node.at("pattern"));
    step.behavior = behavior_of(node.at("behavior"));
    step.invert = node.flag_or("invert", false);
  } else if (type == "Digits") {
    node.only({"type", "individual_digits"});
    step.pattern = {true, std::string(kDigits)};
    step.behavior = node.flag_or("individual_digits", false) ? SplitBehavior::isolated
                                                             : SplitBehavior::contiguous;
  } else if (type == "Metaspace") {
    node.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    step.kind = PreTokenizerKind::metaspace;
    step.replacement = character_of(node.at("replacement"));
    step.prepend = prepend_scheme(node);
    step.split = node.flag_or("split", true);
  } else if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    vocabulary.byte_level = true;
    if (node.flag_or("add_prefix_space", true)) {
      step.kind = PreTokenizerKind::byte_level;
      step.prefix_space = true;
      vocabulary.pre_tokenizer.push_back(step);
    }
    if (!node.flag_or("use_regex", true)) return;
    step = {};
    step.pattern = {true, std::string(kByteLevelPattern)};
  } else {
    node.refuse_type(type);
  }
  vocabulary.pre_tokenizer.push_back(std::move(step));
}

void read_post_processor(const JsonNode& node, Vocabulary& vocabulary) {
  const std::string& type = node.text("type");
  if (type == "Sequence") {
    node.only({"type", "processors"});
    for (const JsonNode& part : node.at("processors").elements()) {
      read_post_processor(part, vocabulary);
    }
  } else if (type == "TemplateProcessing") {
    if (!vocabulary.before.empty() || !vocabulary.after.empty()) {
      node.refuse("a second template is not supported");
    }
    read_template(node, vocabulary);
  } else if (type != "ByteLevel") {  // which moves offsets only
    node.refuse_type(type);
  }
}

void read_decoder(const JsonNode& node, Vocabulary& vocabulary) {
  const std::string& type = node.text("type");
  const auto has = [&](DecoderKind kind) {
    return std::any_of(vocabulary.decoder.begin(), vocabulary.decoder.end(),
                       [&](const DecoderStep& step) { return step.kind == kind; });
  };
  const bool fused = has(DecoderKind::fuse);
  DecoderStep step;
  if (type == "Sequence") {
    node.only({"type", "decoders"});
    for (const JsonNode& part : node.at("decoders").elements()) read_decoder(part, vocabulary);
    return;
  }
  if (vocabulary.byte_level != (type == "ByteLevel")) {
    node.refuse(fmt::format("type \"{}\" does not fit the pre-tokenizer", excerpt(type)));
  }
  if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "Replace") {
    node.only({"type", "pattern", "content"});
    const TextPattern pattern = pattern_of(node.at("pattern"));
    if (pattern.regex) node.at("pattern").refuse("Regex is not supported");
    // One that tokens share would be seen there, and is not seen here.
    if (fused) node.refuse("type \"Replace\" behind Fuse is not supported");
    step.kind = DecoderKind::replace;
    step.pattern = pattern.text;
    step.content = node.text("content");
  } else if (type == "ByteFallback") {
    node.only({"type"});
    if (fused) node.refuse("type \"ByteFallback\" behind Fuse is not supported");
    step.kind = DecoderKind::byte_fallback;
  } else if (type == "Fuse") {
    node.only({"type"});
    step.kind = DecoderKind::fuse;
  } else if (type == "Strip") {
    node.only({"type", "content", "start", "stop"});
    if (!fused) node.refuse("type \"Strip\" without Fuse before it is not supported");
    if (has(DecoderKind::strip)) node.refuse("a second Strip is not supported");
    step.kind = DecoderKind::strip;
    step.pattern = character_of(node.at("content"));
    step.count = node.at("start").integer(0, 1 << 20);
    if (node.at("stop").integer(0, 1 << 20) != 0) node.at("stop").refuse("only 0 is supported");
  } else if (type == "Metaspace") {
    node.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    if (fused) node.refuse("type \"Metaspace\" behind Fuse is not supported");
    step.kind = DecoderKind::metaspace;
    step.pattern = character_of(node.at("replacement"));
    step.drop_first = prepend_scheme(node) != PrependScheme::never;
  } else {
    node.refuse_type(type);
  }
  vocabulary.decoder.push_back(std::move(step));
}

}  // namespace tinyloop
