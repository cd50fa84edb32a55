// SPDX-License-Identifier: Apache-2.0
// Normaliser and pre-tokenizer steps as Hugging Face's tokenizers have them.
#include "tinyloop/text/text_steps.h"

#include <algorithm>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/text/normal_form.h"

namespace tinyloop {

PatternFinder::PatternFinder(const TextPattern& pattern, std::string_view where)
    : text_(pattern.text) {
  if (pattern.regex) regex_.emplace(pattern.text, where);
}

void PatternFinder::find_all(std::string_view text, std::vector<Regex::Match>& matches) const {
  if (regex_) return regex_->find_all(text, matches);
  for (std::size_t at = text.find(text_); at != std::string_view::npos;
       at = text.find(text_, at + text_.size())) {
    matches.push_back({at, at + text_.size()});
  }
}

Normalizer::Normalizer(std::span<const NormalizerStep> steps, std::string_view where) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps_.push_back({steps[i], {}});
    if (steps[i].kind == NormalizerKind::replace) {
      steps_.back().pattern.emplace(steps[i].pattern,
                                    fmt::format("{}: normaliser step {}", where, i + 1));
    }
  }
}

std::string Normalizer::apply(std::string_view text, bool glued) const {
  std::string now(text);
  std::vector<Regex::Match> matches;
  for (const auto& [step, pattern] : steps_) {
    switch (step.kind) {
      case NormalizerKind::nfc:
        now = normalise(now, NormalForm::nfc);
        break;
      case NormalizerKind::nfd:
        now = normalise(now, NormalForm::nfd);
        break;
      case NormalizerKind::nfkc:
        now = normalise(now, NormalForm::nfkc);
        break;
      case NormalizerKind::nfkd:
        now = normalise(now, NormalForm::nfkd);
        break;
      case NormalizerKind::prepend:
        if (!now.empty() && !glued) now.insert(0, step.content);
        break;
      case NormalizerKind::replace: {
        matches.clear();
        pattern->find_all(now, matches);
        std::string made;
        std::size_t done = 0;
        for (const Regex::Match& match : matches) {
          made.append(now, done, match.begin - done).append(step.content);
          done = match.end;
        }
        now = made.append(now, done);
        break;
      }
    }
  }
  return now;
}

PreTokenizer::PreTokenizer(std::span<const PreTokenizerStep> steps, std::string_view where) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps_.push_back({steps[i], {}});
    const std::string place = fmt::format("{}: pre-tokenizer step {}", where, i + 1);
    if (steps[i].kind == PreTokenizerKind::split) {
      steps_.back().pattern.emplace(steps[i].pattern, place);
    } else if (steps[i].kind == PreTokenizerKind::metaspace) {
      steps_.back().pattern.emplace(TextPattern{false, steps[i].replacement}, place);
    }
  }
}

PreTokenizer::Pieces PreTokenizer::apply(std::string_view text, bool at_start, bool glued) {
  text_ = text;
  pieces_.assign(1, {0, static_cast<std::uint32_t>(text.size())});
  if (text.empty()) pieces_.clear();
  for (const Step& step : steps_) {
    if (pieces_.empty()) break;
    const std::uint32_t first = pieces_.front().begin;
    switch (step.step.kind) {
      case PreTokenizerKind::split:
        split(step);
        break;
      case PreTokenizerKind::byte_level:
        if (step.step.prefix_space) put_spaces_before(glued);
        break;
      case PreTokenizerKind::metaspace:
        replace_spaces(step, at_start, glued);
        if (step.step.split) split(step);
        break;
    }
    // What was the beginning may have been removed.
    if (!pieces_.empty() && step.step.kind == PreTokenizerKind::split) {
      at_start = at_start && pieces_.front().begin == first;
      glued = glued && pieces_.front().begin == first;
    }
  }
  return {text_, pieces_};
}

void PreTokenizer::split(const Step& step) {
  const bool spaces = step.step.kind == PreTokenizerKind::metaspace;
  const SplitBehavior behavior = spaces ? SplitBehavior::merged_with_next : step.step.behavior;
  next_.clear();
  for (const Piece piece : pieces_) {
    matches_.clear();
    step.pattern->find_all(text_.substr(piece.begin, piece.end - piece.begin), matches_);
    cut(piece, behavior, !spaces && step.step.invert);
  }
  pieces_.swap(next_);
}

// Appends to next_ what becomes of `piece`, in which matches_ were found.
void PreTokenizer::cut(Piece piece, SplitBehavior behavior, bool invert) {
  parts_.clear();
  std::uint32_t at = piece.begin;
  const auto part = [&](std::uint32_t end, bool match) {
    parts_.push_back({{at, end}, match != invert});
    at = end;
  };
  for (const Regex::Match& match : matches_) {
    const auto begin = piece.begin + static_cast<std::uint32_t>(match.begin);
    if (begin > at) part(begin, false);
    part(piece.begin + static_cast<std::uint32_t>(match.end), true);
  }
  if (at < piece.end) part(piece.end, false);

  const std::size_t first = next_.size();
  bool last_match = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& [range, match] = parts_[i];
    bool join = false;  // with the piece before
    switch (behavior) {
      case SplitBehavior::removed:
        if (match) continue;
        break;
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::merged_with_previous:
        join = match && !last_match;
        break;
      case SplitBehavior::merged_with_next:
        join = !match && last_match;
        break;
      case SplitBehavior::contiguous:
        join = match == last_match;
        break;
    }
    last_match = match;
    if (join && next_.size() > first) {
      next_.back().end = range.end;
    } else {
      next_.push_back(range);
    }
  }
  const auto is_empty = [](const Piece& p) { return p.begin == p.end; };
  next_.erase(
      std::remove_if(next_.begin() + static_cast<std::ptrdiff_t>(first), next_.end(), is_empty),
      next_.end());
}

void PreTokenizer::replace_spaces(const Step& step, bool at_start, bool glued) {
  const std::string& mark = step.step.replacement;
  std::string made;
  next_.clear();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const std::string_view old = text_.substr(pieces_[i].begin, pieces_[i].end - pieces_[i].begin);
    const auto begin = static_cast<std::uint32_t>(made.size());
    const bool wanted = step.step.prepend == PrependScheme::always ||
                        (step.step.prepend == PrependScheme::first && at_start && i == 0);
    const bool there = old.starts_with(' ') || old.starts_with(mark);
    if (wanted && !there && !(glued && i == 0)) made += mark;
    for (const char c : old) {
      if (c == ' ') {
        made += mark;
      } else {
        made += c;
      }
    }
    next_.push_back({begin, static_cast<std::uint32_t>(made.size())});
  }
  pieces_.swap(next_);
  made_.swap(made);
  text_ = made_;
}

void PreTokenizer::put_spaces_before(bool glued) {
  std::string made;
  next_.clear();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const std::string_view old = text_.substr(pieces_[i].begin, pieces_[i].end - pieces_[i].begin);
    const auto begin = static_cast<std::uint32_t>(made.size());
    if (!old.starts_with(' ') && !(glued && i == 0)) made += ' ';
    made += old;
    next_.push_back({begin, static_cast<std::uint32_t>(made.size())});
  }
  pieces_.swap(next_);
  made_.swap(made);
  text_ = made_;
}

}  // namespace tinyloop
