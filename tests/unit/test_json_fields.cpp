// SPDX-License-Identifier: Apache-2.0
// Fields come as they are written; what is no object of fields is refused.
#include <doctest/doctest.h>

#include <string>

#include "tinyloop/error.h"
#include "tinyloop/files/json_fields.h"

namespace tinyloop {
namespace {

TEST_CASE("fields come in order and to the byte") {
  const std::string text = R"( {"b" : [1, {"x":"}],"}] , "a\n":"q\"\\", "c":1.50e2 ,"d":{} } )";
  const std::vector<JsonField> fields = split_json_object(text, "it");
  REQUIRE(fields.size() == 4);
  CHECK(fields[0].name == "b");
  CHECK(fields[0].value == R"([1, {"x":"}],"}])");
  CHECK(fields[1].name == "a\n");
  CHECK(fields[1].raw == R"("a\n")");
  CHECK(json_text_value(fields[1].value, "it") == "q\"\\");
  CHECK(fields[2].value == "1.50e2");
  CHECK(fields[3].value == "{}");
  CHECK(split_json_object("{}", "it").empty());
}

TEST_CASE("what is no object, or has a name twice, is refused with its place") {
  CHECK_THROWS_WITH(split_json_object("{\"a\":1,}", "it:3"), "it:3:8: is not JSON");
  CHECK_THROWS_WITH(split_json_object("[1]", "it:3"), "it:3:1: expected a JSON object");
  CHECK_THROWS_WITH(split_json_object("", "it:3"), "it:3:1: is not JSON");
  CHECK_THROWS_WITH(split_json_object("{\"a\":1,\"\\u0061\":2}", "it:3"),
                    "it:3: duplicate key 'a'");
  CHECK_THROWS_WITH(split_json_object(std::string("{}\0x", 4), "it:3"), "it:3:3: NUL byte");
  CHECK_THROWS_AS(split_json_object("{\"a\":\"\xff\"}", "it:3"), Error);
}

TEST_CASE("ids are integers that there are") {
  CHECK(json_ids_value("[ 1,2 , 3]", 3, "it") == std::vector<std::int32_t>{1, 2, 3});
  CHECK(json_ids_value("[]", 3, "it").empty());
  for (const char* wrong : {"[4]", "[-1]", "[1.0]", "[\"1\"]", "[null]", "[[1]]", "1", "{}",
                            "[18446744073709551616]"}) {
    CHECK_THROWS_AS(json_ids_value(wrong, 3, "it"), Error);
  }
}

}  // namespace
}  // namespace tinyloop
