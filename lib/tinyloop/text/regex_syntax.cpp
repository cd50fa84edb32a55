// SPDX-License-Identifier: Apache-2.0
// Translates Oniguruma's syntax into PCRE2's: spaces, digits and words as Unicode defines them,
// scripts without their extensions, line beginnings and ends. Refuses unknown syntax by
// name, since a different interpretation would silently give other ids.
#include <algorithm>
#include <array>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/utf8.h"
#include "tinyloop/text/regex.h"
#include "tinyloop/text/unicode_additions.h"

namespace tinyloop {

namespace {

constexpr std::array<std::string_view, 35> kCategories = {
    "Cc", "Cf", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc",
    "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

// The characters of a category or script, as the inside of a class.
std::string members(std::string_view name, bool script) {
  std::string out = fmt::format("\\p{{{}{}}}", script ? "sc:" : "", name);
  for (const auto& [first, last, category] : unicode_additions()) {
    if (script ? category != name : category.size() > 2 || !category.starts_with(name)) continue;
    out += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(first));
    if (last > first) out += fmt::format("-\\x{{{:x}}}", static_cast<unsigned>(last));
  }
  return out;
}

std::string word_members() {
  std::string out = "\\p{Alphabetic}";
  for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) out += members(name, false);
  return out;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : all_(pattern), where_(where) {}

  std::string run() {
    if (valid_utf8_prefix(all_) != all_.size()) refuse("it is not UTF-8");
    while (at_ < all_.size()) part();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view cause) const {
    throw Error(ErrorKind::data, "{}: regular expression \"{}\": {}", where_, excerpt(all_), cause);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    refuse(fmt::format("\"{}\" is not supported", excerpt(what)));
  }
  bool at_end() const { return at_ == all_.size(); }
  bool next_is(std::string_view text) const { return all_.substr(at_).starts_with(text); }
  void copy(std::size_t count) {
    out_ += all_.substr(at_, count);
    at_ += count;
  }

  void part() {
    switch (all_[at_]) {
      case '\\':
        return escape(false);
      case '[':
        return char_class();
      case '(':
        return group();
      case '{':
        return interval();
      case '^':
      case '$':  // of each line
        out_ += fmt::format("(?m:{})", all_[at_++]);
        return;
      default:
        copy(1);
    }
  }

  void group() {
    for (const std::string_view begin : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (next_is(begin)) return copy(begin.size());
    }
    if (next_is("(?") || next_is("(*")) unsupported(all_.substr(at_, 3));
    out_ += "(?:";  // nothing refers to what it captures
    ++at_;
  }

  // {n}, {n,}, {n,m}, {,m}
  void interval() {
    const std::size_t end = all_.find('}', at_);
    if (end == std::string_view::npos) unsupported("{");
    const std::string_view whole = all_.substr(at_, end + 1 - at_);
    const std::string_view inside = whole.substr(1, whole.size() - 2);
    const std::size_t comma = inside.find(',');
    const auto digits = [](std::string_view text) {
      return text.size() <= 5 &&
             std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    const std::string_view low = inside.substr(0, comma);
    const std::string_view high =
        comma == std::string_view::npos ? std::string_view() : inside.substr(comma + 1);
    if (!digits(low) || !digits(high) || (low.empty() && high.empty())) unsupported(whole);
    at_ = end + 1;
    // The two take these for different things.
    if (next_is("+") || (next_is("?") && comma == std::string_view::npos)) {
      unsupported(fmt::format("{}{}", whole, all_[at_]));
    }
    out_ += low.empty() ? fmt::format("{{0,{}}}", high) : std::string(whole);
  }

  void char_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) unsupported("[]");
    while (!next_is("]")) {
      if (at_end()) refuse("a class does not end");
      if (next_is("[")) unsupported("a class in a class");
      if (next_is("&&")) unsupported("&&");
      if (next_is("\\")) {
        escape(true);
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  void escape(bool in_class) {
    if (at_ + 1 == all_.size()) refuse("it ends with a backslash");
    const char c = all_[at_ + 1];
    const std::string_view two = all_.substr(at_, 2);
    at_ += 2;
    switch (c) {
      case 's':
        out_ += "\\p{White_Space}";
        return;
      case 'S':
        out_ += "\\P{White_Space}";
        return;
      case 'd':
      case 'D':
        return put(members("Nd", false), c == 'D', in_class, two);
      case 'w':
      case 'W':
        return put(word_members(), c == 'W', in_class, two);
      case 'p':
      case 'P':
        return property(c, in_class);
      case 'x':
      case 'u':
        return code(c);
      case 'r':
      case 'n':
      case 't':
      case 'f':
        out_ += two;
        return;
      case 'A':
      case 'z':
        if (in_class) unsupported(two);
        out_ += two;
        return;
      default:
        break;
    }
    const bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) unsupported(two);
    if (static_cast<unsigned char>(c) < 0x80) out_ += '\\';
    out_ += c;
  }

  // \p{L}, \p{Han}, \P{...}, \p{^...}
  void property(char c, bool in_class) {
    const std::size_t end = all_.find('}', at_);
    if (!next_is("{") || end == std::string_view::npos) unsupported(all_.substr(at_ - 2, 3));
    std::string_view name = all_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    bool negated = c == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool category =
        std::find(kCategories.begin(), kCategories.end(), name) != kCategories.end();
    const bool letters = name.size() > 2 && std::all_of(name.begin(), name.end(), [](char l) {
                           return (l >= 'a' && l <= 'z') || (l >= 'A' && l <= 'Z') || l == '_';
                         });
    if (!category && !letters) unsupported(fmt::format("\\p{{{}}}", name));
    put(members(name, !category), negated, in_class, fmt::format("\\P{{{}}}", name));
  }

  // One character of `inside`, or of all others.
  void put(const std::string& inside, bool negated, bool in_class, std::string_view shown) {
    if (in_class && negated) unsupported(fmt::format("{} in a class", shown));
    out_ += in_class ? inside : fmt::format("[{}{}]", negated ? "^" : "", inside);
  }

  // A code point: \x0a, \x{3000}, or \u and four digits.
  void code(char c) {
    std::string_view digits;
    if (c == 'x' && next_is("{")) {
      const std::size_t end = all_.find('}', at_);
      if (end == std::string_view::npos) unsupported("\\x{");
      digits = all_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    } else {
      digits = all_.substr(at_, c == 'x' ? 2 : 4);
      at_ += digits.size();
      // One byte of several to Oniguruma.
      if (c == 'x' && (digits.size() != 2 || digits[0] > '7')) {
        unsupported(fmt::format("\\x{}", digits));
      }
      if (c == 'u' && digits.size() != 4) unsupported("\\u");
    }
    const bool hex = !digits.empty() && digits.size() <= 6 &&
                     digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
    if (!hex) unsupported(fmt::format("\\{}{}", c, digits));
    out_ += fmt::format("\\x{{{}}}", digits);
  }

  std::string_view all_, where_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_regex(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace tinyloop
