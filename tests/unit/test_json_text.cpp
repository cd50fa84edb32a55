// SPDX-License-Identifier: Apache-2.0
// JSON text that a JSON library reads back as what was meant.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "tinyloop/files/json_text.h"

namespace tinyloop {
namespace {

TEST_CASE("strings come back from a JSON library as they went in, in ASCII") {
  std::string bytes;
  for (int c = 0; c < 128; ++c) bytes += static_cast<char>(c);
  for (const std::string& text :
       {bytes, std::string("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x94\x81"), std::string(),
        std::string("a\\b\"c/")}) {
    const std::string json = json_string(text);
    CHECK(nlohmann::json::parse(json).get<std::string>() == text);
    for (const char c : json) CHECK((c >= 0x20 && c < 0x7f));
  }
}

TEST_CASE("bytes that are not UTF-8 become replacement characters, one each") {
  for (const std::string text :
       {"\xff", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"}) {
    const auto back = nlohmann::json::parse(json_string(text)).get<std::string>();
    CHECK(back.size() == 3 * text.size());
    CHECK(back.substr(0, 3) == "\xef\xbf\xbd");
  }
}

TEST_CASE("an excerpt stays on its line and is short") {
  CHECK(excerpt("plain") == "plain");
  CHECK(excerpt("a\n\x1b[2J\"") == "a\\u000a\\u001b[2J\\\"");
  CHECK(excerpt(std::string(41, 'x')) == std::string(40, 'x') + "...");
}

TEST_CASE("numbers round-trip; what JSON does not know is null") {
  for (const double value : {0.0, -1.5, 0.1, 1e300, 5e-324, -123456789.123456789}) {
    CHECK(nlohmann::json::parse(json_number(value)).get<double>() == value);
  }
  CHECK(json_number(std::nan("")) == "null");
  CHECK(json_number(-std::numeric_limits<double>::infinity()) == "null");
}

}  // namespace
}  // namespace tinyloop
