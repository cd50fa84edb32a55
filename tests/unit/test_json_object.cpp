// SPDX-License-Identifier: Apache-2.0
// Objects that a JSON library reads back as what was added, in the order in which it was.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tinyloop/files/json_object.h"

namespace tinyloop {
namespace {

using Json = nlohmann::ordered_json;

TEST_CASE("members come back from a JSON library with their order, types and values") {
  const std::vector<std::int32_t> ids = {1, -2, 3};
  const std::vector<double> times = {0.5, std::numeric_limits<double>::infinity()};
  const JsonObject inner = JsonObject().add("x", 1);
  const std::vector<JsonObject> objects = {inner, JsonObject()};
  JsonObject object;
  object.add("largest", std::numeric_limits<std::uint64_t>::max())
      .add("least", std::numeric_limits<std::int64_t>::min())
      .add("yes", true)
      .add("text", "a\"b\n")
      .add("exact", 0.1)
      .add("rounded", 2.0 / 3.0, 3)
      .add("infinite", -std::numeric_limits<double>::infinity(), 3)
      .add("none", std::optional<double>(), 3)
      .add("some", std::optional<double>(1.5), 1)
      .add("inner", inner)
      .add_array<std::int32_t>("ids", ids)
      .add_array("times", times, 2)
      .add_array("objects", objects)
      .add_json("raw", "[null]")
      .add_all(JsonObject().add("last", 0));
  Json wanted;
  wanted["largest"] = std::numeric_limits<std::uint64_t>::max();
  wanted["least"] = std::numeric_limits<std::int64_t>::min();
  wanted["yes"] = true;
  wanted["text"] = "a\"b\n";
  wanted["exact"] = 0.1;
  wanted["rounded"] = 0.667;
  wanted["infinite"] = nullptr;
  wanted["none"] = nullptr;
  wanted["some"] = 1.5;
  wanted["inner"] = {{"x", 1}};
  wanted["ids"] = {1, -2, 3};
  wanted["times"] = {0.5, nullptr};
  wanted["objects"] = Json::array({{{"x", 1}}, Json::object()});
  wanted["raw"] = Json::array({nullptr});
  wanted["last"] = 0;
  const Json read = Json::parse(object.text());
  CHECK(read == wanted);
  CHECK(read.dump() == wanted.dump());
  CHECK(object.line() == object.text() + "\n");
}

TEST_CASE("nothing added gives an empty object, which adds nothing to another") {
  CHECK(JsonObject().text() == "{}");
  CHECK(JsonObject().add_all(JsonObject()).add("a", 1).add_all(JsonObject()).text() == "{\"a\":1}");
}

}  // namespace
}  // namespace tinyloop
