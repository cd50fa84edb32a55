// SPDX-License-Identifier: Apache-2.0
// Tests lib/files/token_lines: every accepted and refused form of text, objects and arrays, and
// that one bad line spoils no other (CASES U-16, U-19). Not the tools' exit codes.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>
#include <thread>

#include "tinyloop/error.h"
#include "tinyloop/files/byte_source.h"
#include "tinyloop/files/token_lines.h"

using namespace tinyloop;

namespace {

using Ids = std::vector<TokenId>;
constexpr TokenLimits kLimits{.vocab = 64, .longest = 8};

// A file with this content, gone at the end.
class TestFile {
 public:
  explicit TestFile(std::string_view content) {
    const int descriptor = ::mkstemp(path_);
    REQUIRE(descriptor >= 0);
    REQUIRE(::write(descriptor, content.data(), content.size()) ==
            static_cast<ssize_t>(content.size()));
    ::close(descriptor);
  }
  ~TestFile() { ::unlink(path_); }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/token_lines.XXXXXX";
};

// Each line as "1 2 3" or "! 3:14: cause", the file's name left out.
std::vector<std::string> read(TokenFormat format, std::string_view content,
                              TokenLimits limits = kLimits) {
  const TestFile file(content);
  TokenReader reader(file.path(), format, limits);
  std::vector<std::string> lines;
  while (const std::optional<TokenLine> line = reader.next()) {
    if (line->error.empty()) {
      lines.push_back(format_ids(line->ids));
    } else {
      CHECK(line->ids.empty());
      REQUIRE(line->error.starts_with(file.path() + ":"));
      lines.push_back("! " + line->error.substr(file.path().size() + 1));
    }
    if (format != TokenFormat::npy) CHECK(line->number == static_cast<std::int64_t>(lines.size()));
  }
  CHECK(!reader.next());
  return lines;
}

using Lines = std::vector<std::string>;

std::string text_error(std::string_view text, TokenLimits limits = kLimits) {
  return parse_text_line(text, "f", 3, limits).error;
}

std::string json_error(std::string_view text, TokenLimits limits = kLimits) {
  return parse_json_line(text, "f", 3, limits).error;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string npy(const std::string& type, const std::string& shape, const std::string& data,
                const std::string& order = "False") {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.resize(118, ' ');
  header.back() = '\n';
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + data;
}

}  // namespace

TEST_CASE("format names") {
  CHECK(parse_token_format("text") == TokenFormat::text);
  CHECK(parse_token_format("jsonl") == TokenFormat::jsonl);
  CHECK(parse_token_format("u16") == TokenFormat::u16);
  CHECK(parse_token_format("i32") == TokenFormat::i32);
  CHECK(parse_token_format("npy") == TokenFormat::npy);
  try {
    parse_token_format("csv");
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()) ==
          "input format 'csv' is not one of text, jsonl, u16, i32, npy");
  }
}

TEST_CASE("text: the same ids however the line is written (U-19)") {
  for (const std::string_view content :
       {"1 2 3 60 5\n", "1 2 3 60 5\r\n", "1 2 3 60 5", "1 2 3 60 5\r", "  1 2 3 60 5 \n",
        "\t1\t2 \t 3\t60  5\t\r\n", "001 2 03 0060 5\n", "1 2 3 60 5 \r\n"}) {
    CHECK(read(TokenFormat::text, content) == Lines{"1 2 3 60 5"});
  }
}

TEST_CASE("text: lines, empty lines and the end of the file") {
  CHECK(read(TokenFormat::text, "") == Lines{});
  CHECK(read(TokenFormat::text, "\n") == Lines{""});
  CHECK(read(TokenFormat::text, "1\n\n2") == Lines{"1", "", "2"});
  CHECK(read(TokenFormat::text, "1\n \t\n2\n") == Lines{"1", "", "2"});
  CHECK(read(TokenFormat::text, "\r\n\r\n") == Lines{"", ""});
  CHECK(read(TokenFormat::text, " ") == Lines{""});
}

TEST_CASE("text: what is wrong has line, column and cause") {
  CHECK(text_error("-1") == "f:3:1: '-' is not a digit");
  CHECK(text_error("5 -1") == "f:3:3: '-' is not a digit");
  CHECK(text_error("+1") == "f:3:1: '+' is not a digit");
  CHECK(text_error("64") == "f:3:1: id 64 is not below 64");
  CHECK(text_error("1 2 70000 3") == "f:3:5: id 70000 is not below 64");
  CHECK(text_error("63 64") == "f:3:4: id 64 is not below 64");
  CHECK(text_error("9999999999") == "f:3:1: id 9999999999 is not below 64");
  CHECK(text_error("7 99999999999999999999") == "f:3:3: number has too many digits");
  CHECK(text_error("00000000001") == "f:3:1: number has too many digits");
  CHECK(text_error("18446744073709551617") ==
        "f:3:1: number has too many digits");                                 // 1 modulo 2^64
  CHECK(text_error("4294967297") == "f:3:1: id 4294967297 is not below 64");  // 1 modulo 2^32
  CHECK(text_error("1.5") == "f:3:2: '.' is not a digit");
  CHECK(text_error("0x10") == "f:3:2: 'x' is not a digit");
  CHECK(text_error("1e3") == "f:3:2: 'e' is not a digit");
  CHECK(text_error("1,,2") == "f:3:2: ',' is not a digit; separate ids with blanks");
  CHECK(text_error("{1") == "f:3:1: '{' is not a digit; JSON is another input format");
  CHECK(text_error("[1") == "f:3:1: '[' is not a digit; JSON is another input format");
  CHECK(text_error("abc") == "f:3:1: 'a' is not a digit; expected ids, not text");
  CHECK(text_error(std::string_view("1 \0 2", 5)) == "f:3:3: NUL byte");
  CHECK(text_error("\xef\xbb\xbf"
                   "1 2") == "f:3:1: byte-order mark");
  CHECK(text_error("\xef\xbb\xbe") == "f:3:1: byte 0xef is not a digit");
  CHECK(text_error("1 \xef\xbb\xbf") == "f:3:3: byte 0xef is not a digit");
  CHECK(text_error("\xff\xfe") == "f:3:1: byte 0xff is not a digit");
  CHECK(text_error("1\r2") == "f:3:2: byte 0x0d is not a digit");
  CHECK(text_error("1\r\r") == "f:3:2: byte 0x0d is not a digit");
  CHECK(text_error("1\v2") == "f:3:2: byte 0x0b is not a digit");
  CHECK(text_error("1\n2") == "f:3:2: byte 0x0a is not a digit");
  CHECK(text_error("1 \x7f") == "f:3:3: byte 0x7f is not a digit");
  // The first fault counts, also where a number only ends behind it.
  CHECK(text_error("64x") == "f:3:3: 'x' is not a digit");
  CHECK(text_error("64 x") == "f:3:1: id 64 is not below 64");
}

TEST_CASE("text: the context is a limit, not a cut") {
  CHECK(parse_text_line("1 2 3 4 5 6 7 8  ", "f", 1, kLimits).ids == Ids{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(text_error("1 2 3 4 5 6 7 8 9") ==
        "f:3:17: prompt too long: more than 8 ids (the context)");
  CHECK(text_error("1 2 3 4 5 6 7 8 x") == "f:3:17: 'x' is not a digit; expected ids, not text");
  CHECK(parse_text_line("1 2 3 4 5 6 7 8 9", "f", 1, {.vocab = 64, .longest = 0}).ids.size() == 9);
}

TEST_CASE("text: one bad line spoils no other (U-16)") {
  CHECK(read(TokenFormat::text, "1 2\n3\n64\n4\n\n-1\nabc\n1 2 3 4 5 6 7 8 9\n5 6\n7\n") ==
        Lines{"1 2", "3", "! 3:1: id 64 is not below 64", "4", "", "! 6:1: '-' is not a digit",
              "! 7:1: 'a' is not a digit; expected ids, not text",
              "! 8:17: prompt too long: more than 8 ids (the context)", "5 6", "7"});
}

TEST_CASE("text: lines of a megabyte are refused as a whole and skipped (U-19)") {
  const std::string digits(1 << 20, '7');
  CHECK(read(TokenFormat::text, "1\n" + digits + "\n2\n") ==
        Lines{"1", "! 2:1: number has too many digits", "2"});
  std::string ids;
  while (ids.size() < (1 << 20)) ids += "12 ";
  CHECK(read(TokenFormat::text, ids + "\n2\n") ==
        Lines{"! 1:25: prompt too long: more than 8 ids (the context)", "2"});
  const std::string blanks(1 << 20, ' ');
  CHECK(read(TokenFormat::text, blanks + "5" + blanks + "\n") == Lines{"5"});
}

TEST_CASE("text: pieces that cross the blocks of a file give the same ids") {
  std::mt19937 random(5);
  std::string content;
  Lines expected;
  while (content.size() < 400000) {
    std::string line;
    for (auto n = random() % 50; n > 0; --n) {
      line += std::to_string(random() % 50000) + (n > 1 ? " " : "");
    }
    expected.push_back(line);
    content += line + (random() % 2 == 0 ? "\n" : "\r\n");
  }
  CHECK(read(TokenFormat::text, content, {.vocab = 50000, .longest = 64}) == expected);
}

TEST_CASE("a line is delivered as soon as it has arrived") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  REQUIRE(::write(ends[1], "1 2\n3", 5) == 5);
  TokenReader reader(path, TokenFormat::text, kLimits);
  CHECK(reader.next()->ids == Ids{1, 2});  // would wait for ever if it asked for a full block
  REQUIRE(::write(ends[1], " 4\n", 3) == 3);
  CHECK(reader.next()->ids == Ids{3, 4});
  ::close(ends[1]);
  CHECK(!reader.next());
  ::close(ends[0]);
}

TEST_CASE("files that cannot be read") {
  for (const std::string path : {"/nonexistent/prompts.txt", "/tmp"}) {
    try {
      TokenReader reader(path, TokenFormat::text, kLimits);
      FAIL("must throw");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK(std::string(error.what()).starts_with(path + ": "));
    }
  }
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ByteSource source("/dev/fd/" +
                    std::to_string(ends[1]));  // opens the pipe's other end, so reading works
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(source.peek().empty());
  const std::string memory = "/proc/self/mem";  // opens, and the first read fails
  ByteSource failing(memory);
  try {
    failing.peek();
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::io);
    CHECK(std::string(error.what()).starts_with(memory + ": "));
  }
}

TEST_CASE("objects: every key") {
  const TokenLine all = parse_json_line(
      " { \"seed\" : 18446744073709551615, \"id\": \"a\\u00e9\\\"\\n\", \"tokens\":[ 1,2 , 63 "
      "],\"max_tokens\":0 } \r",
      "f", 4, kLimits);
  CHECK(all.error == "");
  CHECK(all.number == 4);
  CHECK(all.ids == Ids{1, 2, 63});
  CHECK(all.id_json == "\"a\\u00e9\\\"\\n\"");
  CHECK(all.max_tokens == 0);
  CHECK(all.seed == UINT64_MAX);

  const TokenLine few = parse_json_line("{\"tokens\":[]}", "f", 1, kLimits);
  CHECK(few.error == "");
  CHECK(few.ids.empty());
  CHECK(few.id_json == "");
  CHECK(!few.max_tokens);
  CHECK(!few.seed);

  for (const std::string id : {"null", "true", "false", "0", "-5", "12345678901234567890", "1.50",
                               "-1e-3", "\"\"", "\"x y\""}) {
    CHECK(parse_json_line("{\"id\":" + id + ",\"tokens\":[1]}", "f", 1, kLimits).id_json == id);
  }
  CHECK(parse_json_line("{\"id\":\"\xc3\xa9\",\"tokens\":[1]}", "f", 1, kLimits).id_json ==
        "\"\\u00e9\"");
}

TEST_CASE("objects: what is wrong") {
  CHECK(json_error("{\"tokens\":[1,2,64]}") == "f:3: tokens[2]: id 64 is not below 64");
  CHECK(json_error("{\"tokens\":[-1]}") == "f:3: tokens[0]: -1 is negative");
  CHECK(json_error("{\"tokens\":[1,1.0]}") == "f:3: tokens[1]: 1.0 is not an integer");
  CHECK(json_error("{\"tokens\":[1e3]}") == "f:3: tokens[0]: 1e3 is not an integer");
  CHECK(json_error("{\"tokens\":[99999999999999999999]}") ==
        "f:3: tokens[0]: number has too many digits");
  CHECK(json_error("{\"tokens\":[\"1\"]}") == "f:3: tokens[0]: not an integer");
  CHECK(json_error("{\"tokens\":[null]}") == "f:3: tokens[0]: not an integer");
  CHECK(json_error("{\"tokens\":[true]}") == "f:3: tokens[0]: not an integer");
  CHECK(json_error("{\"tokens\":[[1]]}") == "f:3: tokens[0]: an array is not allowed here");
  CHECK(json_error("{\"tokens\":[{}]}") == "f:3: tokens[0]: an object is not allowed here");
  CHECK(json_error("{\"tokens\":5}") == "f:3: tokens: not an array");
  CHECK(json_error("{\"tokens\":\"1 2\"}") == "f:3: tokens: not an array");
  CHECK(json_error("{\"tokens\":{}}") == "f:3: tokens: an object is not allowed here");
  CHECK(json_error("{\"tokens\":[1,2,3,4,5,6,7,8,9]}") ==
        "f:3: prompt too long: more than 8 ids (the context)");
  CHECK(json_error("{\"tokens\":[1],\"id\":[1]}") == "f:3: id: an array is not allowed here");
  CHECK(json_error("{\"tokens\":[1],\"id\":{}}") == "f:3: id: an object is not allowed here");
  CHECK(json_error("{\"tokens\":[1],\"max_tokens\":-1}") == "f:3: max_tokens: -1 is negative");
  CHECK(json_error("{\"tokens\":[1],\"max_tokens\":1.0}") ==
        "f:3: max_tokens: 1.0 is not an integer");
  CHECK(json_error("{\"tokens\":[1],\"max_tokens\":\"5\"}") == "f:3: max_tokens: not an integer");
  CHECK(json_error("{\"tokens\":[1],\"max_tokens\":9223372036854775808}") ==
        "f:3: max_tokens: number has too many digits");
  CHECK(json_error("{\"tokens\":[1],\"max_tokens\":[5]}") ==
        "f:3: max_tokens: an array is not allowed here");
  CHECK(json_error("{\"tokens\":[1],\"seed\":-1}") == "f:3: seed: -1 is negative");
  CHECK(json_error("{\"tokens\":[1],\"seed\":18446744073709551616}") ==
        "f:3: seed: number has too many digits");
  CHECK(json_error("{\"tokens\":[1],\"seed\":null}") == "f:3: seed: not an integer");
  CHECK(json_error("{\"tokens\":[1],\"prompt\":1}") == "f:3: unknown key 'prompt'");
  CHECK(json_error("{\"tokens\":[1],\"a\\nb\":1}") == "f:3: unknown key 'a\\u000ab'");
  CHECK(json_error("{\"tokens\":[1],\"tokens\":[2]}") == "f:3: duplicate key 'tokens'");
  CHECK(json_error("{\"id\":1,\"id\":1,\"tokens\":[2]}") == "f:3: duplicate key 'id'");
  CHECK(json_error("{}") == "f:3: key 'tokens' is missing");
  CHECK(json_error("{\"id\":1}") == "f:3: key 'tokens' is missing");
  for (const std::string_view value : {"5", "1 2 3", "-5", "1.5", "\"x\"", "null", "true", "[1]"}) {
    CHECK(json_error(value) == "f:3: not a JSON object");
  }
  CHECK(json_error("") == "f:3:1: empty line");
  CHECK(json_error(" \r") == "f:3:1: empty line");
  CHECK(json_error(std::string_view("{\"tokens\":[1]}\0{}", 17)) == "f:3:15: NUL byte");
  CHECK(json_error("\xef\xbb\xbf{\"tokens\":[1]}") == "f:3:1: byte-order mark");
  // Where the text is no JSON: at least place and kind.
  for (const auto& [text, column] :
       std::vector<std::pair<std::string, int>>{{"{\"tokens\":[1,x]}", 14},
                                                {"{\"tokens\":[1,]}", 14},
                                                {"{\"tokens\":[01]}", 13},
                                                {"{\"tokens\":[1]} x", 16},
                                                {"{\"tokens\":[1]}{}", 15},
                                                {"{tokens:[1]}", 2},
                                                {"{\"id\":\"\xff\",\"tokens\":[1]}", 8},
                                                {"// {}", 1}}) {
    const std::string error = json_error(text);
    const std::string place = "f:3:" + std::to_string(column) + ": not valid JSON: ";
    // The library may point at the character behind the first wrong one.
    const std::string next = "f:3:" + std::to_string(column + 1) + ": not valid JSON: ";
    CHECK_MESSAGE((error.starts_with(place) || error.starts_with(next)), text, " gives ", error);
  }
  CHECK(json_error("{\"tokens\":[1").find("not valid JSON") != std::string::npos);
}

TEST_CASE("objects: messages stay short and printable") {
  const std::string digits(100000, '9'), name(100000, 'k');
  for (const std::string& text : std::vector<std::string>{
           "{\"tokens\":[" + digits + "]}", "{\"tokens\":[" + digits + ".5]}",
           "{\"tokens\":[1." + digits + "]}", "{\"" + name + "\":1}", "{\"tokens\":[\x01]}",
           "{\"id\":\"" + name, "{\"tokens\":[\"\x1b[2J\xff"}) {
    const std::string error = json_error(text);
    CHECK(!error.empty());
    CHECK(error.size() < 200);
    for (const char c : error) CHECK_UNARY(c >= 0x20 && c < 0x7f);
  }
  const std::string nested(100000, '[');
  CHECK(json_error("{\"tokens\":" + nested) == "f:3: tokens[0]: an array is not allowed here");
  CHECK(json_error(nested) == "f:3: not a JSON object");
}

TEST_CASE("objects: one bad line spoils no other, long lines are skipped") {
  CHECK(read(TokenFormat::jsonl, "{\"tokens\":[1,2]}\n\n{\"tokens\":[64]}\r\n{\"tokens\":[3]}") ==
        Lines{"1 2", "! 2:1: empty line", "! 3: tokens[0]: id 64 is not below 64", "3"});
  std::string ids = "1";
  while (ids.size() < 1000000) ids += ",12";
  CHECK(read(TokenFormat::jsonl, "{\"tokens\":[" + ids + "]}\n{\"tokens\":[3]}\n") ==
        Lines{"! 1: prompt too long: more than 8 ids (the context)", "3"});
  const std::string blanks(3 << 20, ' ');
  CHECK(read(TokenFormat::jsonl, "{\"tokens\":[1" + blanks + "]}\n{\"tokens\":[3]}\n") ==
        Lines{"! 1:1048705: the object is longer than 1048704 bytes", "3"});
}

TEST_CASE("a wrong object still tells its id, so that the answer can carry it") {
  CHECK(parse_json_line("{\"id\":7,\"tokens\":[64]}", "f", 1, kLimits).id_json == "7");
  for (const std::string rest :
       {"\"tokens\":[64,[{\"id\":1}]]", "\"tokens\":{\"id\":1}", "\"other\":[[],{\"id\":1},2]",
        "\"tokens\":1,\"tokens\":2", "\"seed\":-1,\"tokens\":[1]"}) {
    const TokenLine line = parse_json_line("{" + rest + ",\"id\":7}", "f", 1, kLimits);
    CHECK(!line.error.empty());
    CHECK_MESSAGE(line.id_json == "7", rest);
  }
}

TEST_CASE("raw arrays") {
  CHECK(read(TokenFormat::u16, "") == Lines{});
  CHECK(read(TokenFormat::u16, raw<std::uint16_t>({1, 63, 0})) == Lines{"1 63 0"});
  CHECK(read(TokenFormat::i32, raw<std::int32_t>({1, 63, 0})) == Lines{"1 63 0"});
  CHECK(read(TokenFormat::u16, raw<std::uint16_t>({1, 64})) ==
        Lines{"! 1:2: id 64 is not below 64"});
  CHECK(read(TokenFormat::u16, raw<std::uint16_t>({65535})) ==
        Lines{"! 1:1: id 65535 is not below 64"});
  CHECK(read(TokenFormat::i32, raw<std::int32_t>({1, -1})) == Lines{"! 1:2: id -1 is negative"});
  CHECK(read(TokenFormat::i32, raw<std::int32_t>({65536})) ==
        Lines{"! 1:1: id 65536 is not below 64"});
  CHECK(read(TokenFormat::u16, "abc", {.vocab = 65536}) ==
        Lines{"! 1:2: the size is not a multiple of 2 bytes"});
  CHECK(read(TokenFormat::i32, raw<std::int32_t>({1}) + "ab") ==
        Lines{"! 1:2: the size is not a multiple of 4 bytes"});
  CHECK(read(TokenFormat::u16, raw(std::vector<std::uint16_t>(8, 5))) == Lines{"5 5 5 5 5 5 5 5"});
  CHECK(read(TokenFormat::u16, raw(std::vector<std::uint16_t>(9, 5))) ==
        Lines{"! 1:9: prompt too long: more than 8 ids (the context)"});
  std::vector<std::int32_t> many;
  for (std::int32_t i = 0; i < 100000; ++i) many.push_back(i);
  CHECK(read(TokenFormat::i32, raw(many), {.vocab = 100000}) == Lines{format_ids(many)});
}

TEST_CASE("NumPy arrays: each row is a line") {
  CHECK(read(TokenFormat::npy, npy("<i4", "(3,)", raw<std::int32_t>({1, 2, 63}))) ==
        Lines{"1 2 63"});
  CHECK(read(TokenFormat::npy, npy("<i8", "(2, 2)", raw<std::int64_t>({1, 2, 3, 4}))) ==
        Lines{"1 2", "3 4"});
  CHECK(read(TokenFormat::npy, npy("<u2", "(2, 1)", raw<std::uint16_t>({9, 8}))) ==
        Lines{"9", "8"});
  CHECK(read(TokenFormat::npy, npy("|u1", "(1, 3)", "\x01\x02\x03")) == Lines{"1 2 3"});
  CHECK(read(TokenFormat::npy, npy("<u4", "(2, 2)", raw<std::uint32_t>({1, 63, 1u << 31, 4}))) ==
        Lines{"1 63", "! 2:1: id 2147483648 is not below 64"});
  CHECK(read(TokenFormat::npy, npy("<i4", "(2, 3)", raw<std::int32_t>({1, 4, 2, 5, 3, 6}),
                                   "True")) == Lines{"1 2 3", "4 5 6"});
  CHECK(read(TokenFormat::npy, npy("<i4", "(3, 2)", raw<std::int32_t>({1, 2, 3, -4, 5, 6}))) ==
        Lines{"1 2", "! 2:2: id -4 is negative", "5 6"});
  CHECK(
      read(TokenFormat::npy, npy("<i8", "(1, 2)", raw<std::int64_t>({1, std::int64_t{1} << 32}))) ==
      Lines{"! 1:2: id 4294967296 is not below 64"});
  CHECK(read(TokenFormat::npy, npy("<u2", "(2, 9)", raw(std::vector<std::uint16_t>(18, 5)))) ==
        Lines{"! 1:9: prompt too long: more than 8 ids (the context)",
              "! 2:9: prompt too long: more than 8 ids (the context)"});
  CHECK(read(TokenFormat::npy, "") == Lines{"!  is not a .npy file"});
  CHECK(read(TokenFormat::npy, npy("<i4", "(0, 5)", "")) == Lines{});
  CHECK(read(TokenFormat::npy, npy("<i4", "(0,)", "")) == Lines{""});
}

TEST_CASE("NumPy arrays that are none of ids are one wrong line") {
  const std::string data = raw<std::int32_t>({1, 2, 3, 4});
  for (const std::string& file :
       {npy("<f4", "(4,)", data), npy(">i4", "(4,)", data), npy("<i4", "(1, 2, 2)", data),
        npy("<i4", "()", data.substr(0, 4)), npy(">u4", "(4,)", data), npy("<i4", "(5,)", data),
        npy("<i4", "(3,)", data), npy("<i4", "(1000000000000000000, 0)", ""),
        npy("<i4", "(4611686018427387905, 4)", data), std::string("\x93NUMPY", 6),
        std::string("1 2 3\n"), npy("<i4", "(4,)", data).substr(0, 60)}) {
    const Lines lines = read(TokenFormat::npy, file);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].starts_with("! "));
  }
}

TEST_CASE("ids as an option's value") {
  CHECK(parse_ids("12 7 9", "--stop", 64) == Ids{12, 7, 9});
  CHECK(parse_ids("  0\t63 ", "--stop", 64) == Ids{0, 63});
  CHECK(parse_ids("", "--stop", 64).empty());
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"1 64", "--stop: id 64 is not below 64"},
           {"-1", "--stop: '-' is not a digit"},
           {"1,2", "--stop: ',' is not a digit; separate ids with blanks"}}) {
    try {
      parse_ids(text, "--stop", 64);
      FAIL("must throw");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK(error.what() == message);
    }
  }
}

TEST_CASE("format_ids") {
  CHECK(format_ids({}) == "");
  CHECK(format_ids(Ids{5}) == "5");
  CHECK(format_ids(Ids{1, 20, 300000}) == "1 20 300000");
}
