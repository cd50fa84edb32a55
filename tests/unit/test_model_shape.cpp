// SPDX-License-Identifier: Apache-2.0
// Shapes in text: what they mean, and that each wrong one is refused with the key named.
#include <doctest/doctest.h>

#include <string>

#include "tinyloop/error.h"
#include "tinyloop/model/model_shape.h"

namespace tinyloop {
namespace {

std::string refusal(const char* text) {
  try {
    parse_model_shape(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a shape says what the keys say, the rest has defaults") {
  const ModelConfig all = parse_model_shape(
      "vocab=100,layers=3,coda=2,prelude=1,loops=4,heads=6,kv-heads=2,head-dim=10,ffn=50,dim=40");
  CHECK(all.vocab == 100);
  CHECK(all.prelude_layers == 1);
  CHECK(all.core_layers == 3);
  CHECK(all.coda_layers == 2);
  CHECK(all.default_loops == 4);
  CHECK(all.heads == 6);
  CHECK(all.kv_heads == 2);
  CHECK(all.head_dim == 10);
  CHECK(all.ffn == 50);
  CHECK(all.hidden == 40);

  const ModelConfig few = parse_model_shape("dim=40,ffn=50,heads=4,layers=3,vocab=100");
  CHECK(few.kv_heads == 4);
  CHECK(few.head_dim == 10);
  CHECK(few.default_loops == 1);
  CHECK(few.layers() == 3);
  CHECK(few.max_loops > 1);
}

TEST_CASE("a wrong shape is refused and the key is named") {
  CHECK(holds(refusal("dim=40,ffn=50,heads=4,layers=3"), "vocab"));
  CHECK(holds(refusal("dim=40,ffn=50,heads=4,layers=3,vocab=100,width=3"), "width"));
  CHECK(holds(refusal("dim=40,ffn=50,heads=4,layers=3,vocab=100,loops=0"), "loops"));
  CHECK(holds(refusal("dim=40,ffn=50,heads=4,layers=3,vocab=100,loops=2,loops=3"), "loops"));
  CHECK(holds(refusal("dim=40,ffn=fifty,heads=4,layers=3,vocab=100"), "ffn"));
  CHECK(holds(refusal("dim=40,ffn,heads=4,layers=3,vocab=100"), "ffn"));
  CHECK(holds(refusal("dim=40,ffn=99999999999,heads=4,layers=3,vocab=100"), "ffn"));
  CHECK(holds(refusal("dim=40,ffn=50,heads=7,layers=3,vocab=100"), "heads"));
  CHECK(holds(refusal("dim=40,ffn=50,heads=4,kv-heads=3,layers=3,vocab=100"), "kv_heads"));
  CHECK(holds(refusal("dim=12,ffn=50,heads=4,layers=3,vocab=100"), "head_dim"));  // 3 is odd
  CHECK(holds(refusal(""), "key"));
  CHECK(holds(refusal("dim=40,"), "key"));
}

}  // namespace tinyloop
