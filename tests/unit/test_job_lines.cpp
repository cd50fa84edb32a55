// SPDX-License-Identifier: Apache-2.0
// Tests lib/files/token_lines with the keys that only jobs of a batch have, and the keys of
// coalitions. The other keys are in test_token_lines.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tinyloop/files/coalition.h"
#include "tinyloop/files/token_lines.h"

using namespace tinyloop;

namespace {

using Ids = std::vector<TokenId>;
constexpr TokenLimits kPlain{.vocab = 64, .longest = 8};
constexpr TokenLimits kJobs{.vocab = 64, .longest = 8, .job_keys = true};

std::string json_error(std::string_view text, TokenLimits limits) {
  return parse_json_line(text, "f", 3, limits).error;
}

}  // namespace

TEST_CASE("objects: keys of jobs") {
  const TokenLine job = parse_json_line(
      "{\"stop\":[[1,2],[3]],\"priority\":-4,\"group\":\"g\\u0041\",\"tokens\":[5]}", "f", 1,
      kJobs);
  CHECK(job.error == "");
  CHECK(job.stop == std::vector<Ids>{{1, 2}, {3}});
  CHECK(job.priority == -4);
  CHECK(job.group == "gA");
  const TokenLine none = parse_json_line("{\"stop\":[],\"tokens\":[5]}", "f", 1, kJobs);
  CHECK(none.error == "");
  CHECK((none.stop && none.stop->empty()));
  const TokenLine plain = parse_json_line("{\"tokens\":[5]}", "f", 1, kJobs);
  CHECK(!plain.stop);
  CHECK(plain.priority == 0);
  CHECK(plain.group == "");
  CHECK(parse_json_line("{\"priority\":9223372036854775807,\"tokens\":[5]}", "f", 1, kJobs)
            .priority == INT64_MAX);

  // As many ids in segments as one likes: those present make the prompt.
  const TokenLine coalition = parse_json_line(
      "{\"snapshot\":\"snap-1\",\"segments\":[{\"id\":\"alice\",\"tokens\":[1,2,3,4,5]},"
      "{\"tokens\":[6,7,8,9,10],\"id\":\"bob\"},{\"id\":\"carol\",\"tokens\":[]}],"
      "\"present\":[true,false,true],\"id\":3}",
      "f", 1, kJobs);
  CHECK(coalition.error == "");
  CHECK(coalition.ids == Ids{1, 2, 3, 4, 5});
  CHECK(coalition.group == "00fe394dc0d0ec8a");
  CHECK(coalition.id_json == "3");

  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"{\"stop\":[[64]],\"tokens\":[1]}", "stop[0][0]: id 64 is not below 64"},
           {"{\"stop\":[[1],[2,-1]],\"tokens\":[1]}", "stop[1][1]: -1 is negative"},
           {"{\"stop\":[{}],\"tokens\":[1]}", "stop[0]: an object is not allowed here"},
           {"{\"stop\":[[[1]]],\"tokens\":[1]}", "stop[0][0]: an array is not allowed here"},
           {"{\"priority\":18446744073709551615,\"tokens\":[1]}",
            "priority: number has too many digits"},
           {"{\"present\":[[true]],\"tokens\":[1]}", "present[0]: an array is not allowed here"},
           {"{\"segments\":[{\"id\":1,\"tokens\":[1]}]}", "segments[0].id: not a string"},
           {"{\"segments\":[{\"id\":\"a\",\"id\":\"b\"}]}", "segments[0].id: duplicate key"},
           {"{\"segments\":[{\"id\":\"a\",\"tokens\":1}]}", "segments[0].tokens: not an array"},
           {"{\"segments\":[{\"id\":[1]}]}", "segments[0].id: an array is not allowed here"},
           {"{\"segments\":{}}", "segments: an object is not allowed here"},
           {"{\"temperature\":1,\"tokens\":[1]}",
            "key 'temperature' cannot be set per job: all lanes share it; use --temperature"},
           {"{}", "key 'tokens' is missing"}}) {
    CHECK(json_error(text, kJobs) == "f:3: " + error);
    CHECK(!json_error(text, kPlain).empty());
  }
}

TEST_CASE("a job has at most 256 stop sequences, with 4096 ids together") {
  const auto job_with = [](std::size_t sequences, std::size_t length) {
    std::string sequence = "5";
    for (std::size_t i = 1; i < length; ++i) sequence += ",5";
    std::string text = "{\"tokens\":[1],\"stop\":[";
    for (std::size_t i = 0; i < sequences; ++i) text += (i == 0 ? "[" : ",[") + sequence + "]";
    return text + "]}";
  };
  const TokenLine most = parse_json_line(job_with(256, 16), "f", 1, kJobs);
  CHECK(most.error == "");
  CHECK(*most.stop == std::vector<Ids>(256, Ids(16, 5)));
  CHECK(json_error(job_with(257, 1), kJobs) == "f:3: stop[256]: more than 256 sequences");
  CHECK(json_error(job_with(256, 17), kJobs) ==
        "f:3: stop[240][16]: more than 4096 ids in all sequences");
}

TEST_CASE("coalition keys") {
  using Names = std::vector<std::string>;
  const Names names = {"alice", "bob", "carol"};
  CHECK(coalition_name("snap-1", names, {true, false, true}) == "00fe394dc0d0ec8a");
  CHECK(coalition_name("snap-1", names, {true, false, false}) == "00fe394dc0d0ec8a");
  CHECK(coalition_name("snap-1", names, {true, true, true}) != "00fe394dc0d0ec8a");
  // One segment is the last one: the snapshot alone counts, sha256("s").
  CHECK(coalition_name("s", Names{"a"}, {true}) == "043a718774c572bd");
}
