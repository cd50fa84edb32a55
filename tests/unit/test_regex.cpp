// SPDX-License-Identifier: Apache-2.0
// Expressions written for Oniguruma mean here what they mean there; the expectations are its own.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/text/normal_form.h"
#include "tinyloop/text/regex.h"

namespace tinyloop {
namespace {

std::string matches(const std::string& pattern, const std::string& text) {
  std::vector<Regex::Match> found;
  Regex(pattern, "it").find_all(text, found);
  std::string all;
  for (const Regex::Match& match : found) {
    all += "[" + text.substr(match.begin, match.end - match.begin) + "]";
  }
  return all;
}

TEST_CASE("spaces, digits, words and lines are Unicode's") {
  CHECK(matches("\\s+", "a\u00a0\u3000b\u180ec\u0085") == "[\u00a0\u3000][\u0085]");
  CHECK(matches("\\S+", "a\u180eb c") == "[a\u180eb][c]");
  CHECK(matches("\\d", "1\u0663\u00b2") == "[1][\u0663]");
  CHECK(matches("\\w+", "a\u0301_\u203f1-\u200d") == "[a\u0301_\u203f1]");
  CHECK(matches("^.", "a\nb\n") == "[a][b]");
  CHECK(matches(".$", "a\nb") == "[a][b]");
  CHECK(matches("\\p{Han}+", "\u4e00\u3001\u30fc\u3007") == "[\u4e00][\u3007]");
  CHECK(matches("(?i:'s)", "'s'S'\u017f") == "['s]['S]['\u017f]");
}

TEST_CASE("characters that came with Unicode 15 and 16 have their categories") {
  CHECK(matches("\\p{S}", "\U0001fabf\U0001f6dc") == "[\U0001fabf][\U0001f6dc]");
  CHECK(matches("[^\\p{L}]", "\ua7dc\u1c89") == "");
  CHECK(matches("\\p{Nd}", "\U00010d40") == "[\U00010d40]");
  CHECK(matches("\\P{L}", "\ua7dcx1") == "[1]");
}

TEST_CASE("empty matches are not found behind others, and all ends") {
  CHECK(matches("x*", "axb") == "[][x][]");
  CHECK(matches("(?=\u00e9)|b", "\u00e9b") == "[][b]");
  CHECK(matches("a{,2}b", "aaab") == "[aab]");
}

TEST_CASE("what the two would read differently is refused by name") {
  for (const std::string pattern :
       {"[a[b]]", "[a&&b]", "a{2}+",     "a{2}?",  "\\h",         "\\b",  "\\1",      "(?<n>a)",
        "(?m)a",  "\\Qa",   "\\R",       "\\p{C}", "\\p{Letter}", "\\pL", "[\\W]",    "[\\P{L}]",
        "a{x}",   "\\xe9",  "(*ACCEPT)", "[a",     "(a",          "\\",   "\\p{Nope}"}) {
    CAPTURE(pattern);
    CHECK_THROWS_AS(Regex(pattern, "it"), Error);
  }
  CHECK_THROWS_WITH(Regex("a\\b", "it"),
                    "it: regular expression \"a\\\\b\": \"\\\\b\" is not supported");
}

TEST_CASE("normal forms are those of the standard, in any order of marks") {
  CHECK(normalise("e\u0301", NormalForm::nfc) == "\u00e9");
  CHECK(normalise("\u00e9\u1100\u1161", NormalForm::nfd) == "e\u0301\u1100\u1161");
  CHECK(normalise("\u1100\u1161\u11a8", NormalForm::nfc) == "\uac01");
  CHECK(normalise("\ufb01\u2460\u00a0", NormalForm::nfkc) == "fi1 ");
  CHECK(normalise("\u212b\ufb01", NormalForm::nfc) == "\u00c5\ufb01");
  CHECK(normalise("a\u0301\u0316", NormalForm::nfd) == "a\u0316\u0301");
  CHECK(normalise("\u0958", NormalForm::nfc) == "\u0915\u093c");  // composition exclusion
  // Of these Unicode 9 knew nothing, and neither do Hugging Face's tokenizers.
  CHECK(normalise("\u32ff\U0001fbf0", NormalForm::nfkd) == "\u32ff\U0001fbf0");
  CHECK(normalise("\U00011935\U00011930\U00011938", NormalForm::nfc) ==
        "\U00011935\U00011930\U00011938");
  CHECK(normalise("a\u0301\u1abf\u0316", NormalForm::nfc) == "\u00e1\u1abf\u0316");
  // Many marks in the worst order.
  std::string marks = "a", below, above;
  for (int i = 0; i < 100000; ++i) {
    marks += "\u0302\u0316";
    below += "\u0316";
    above += "\u0302";
  }
  CHECK(normalise(marks, NormalForm::nfd) == "a" + below + above);
}

}  // namespace
}  // namespace tinyloop
