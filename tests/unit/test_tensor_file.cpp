// SPDX-License-Identifier: Apache-2.0
// safetensors files: reading against bytes put together by hand, every way a header can lie, and
// writing.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/tensor_file.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(as_byte_span(file), "it");
}

// One tensor "a" with the given parts of its entry.
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return "{\"a\":{\"dtype\":" + std::string(dtype) + ",\"shape\":" + std::string(shape) +
         ",\"data_offsets\":" + std::string(offsets) + "}}";
}

TEST_CASE("tensors and metadata of a well-formed file") {
  const TemporaryFolder folder;
  const std::string path = folder.file("m.safetensors");
  const std::string header =
      R"({"late":{"dtype":"I64","shape":[1],"data_offsets":[16,24]},)"
      R"("__metadata__":{"format":"pt","n\u00e4me":"x\ny"},)"
      R"("early":{"shape":[2,2],"data_offsets":[0,16],"dtype":"F32"},)"
      R"("none":{"dtype":"F16","shape":[3,0],"data_offsets":[24,24]},)"
      R"("scalar":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}}        )";
  write_file(path, safetensors(header, bytes_of_values<float>({1, 2, 3, 4.5f}) +
                                           bytes_of_values<std::int64_t>({-9}) + "ab"));
  const TensorFile file = TensorFile::open(path);
  CHECK(file.path() == path);
  CHECK(file.mapping().size() == 8 + header.size() + 26);
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.tensors()[0].name == "early");
  CHECK(file.tensors()[1].name == "late");
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.metadata().at("n\xc3\xa4me") == "x\ny");

  const TensorView& early = file.at("early");
  CHECK(early.shape == std::vector<std::int64_t>{2, 2});
  CHECK(early.elements() == 4);
  CHECK(bytes_of_values<std::byte>({early.bytes.begin(), early.bytes.end()}) ==
        bytes_of_values<float>({1, 2, 3, 4.5f}));
  CHECK(file.find("none")->elements() == 0);
  CHECK(file.find("scalar")->elements() == 1);
  CHECK(file.find("lat") == nullptr);
  CHECK_ERROR(file.at("lat"), data, "m.safetensors: tensor lat is missing");
  file.forget(early.bytes);
  CHECK(early.bytes.size() == 16);
  CHECK(static_cast<int>(early.bytes[15]) == 0x40);  // of 4.5 = 0x40900000
}

TEST_CASE("typed views need the right type and alignment") {
  // The header's length decides the address of the data: 8 + 56 is a multiple of 8.
  std::string header = one("\"F32\"", "[1]", "[0,4]");
  header.resize(56, ' ');
  const std::string data = bytes_of_values<float>({1.5f});
  alignas(8) char memory[80] = {};
  const auto parse_at = [&](const std::string& text) {
    const std::string file = safetensors(text, data);
    std::memcpy(memory, file.data(), file.size());
    return parse_safetensors(std::as_bytes(std::span(memory, file.size())), "it").tensors.front();
  };
  const TensorView aligned = parse_at(header);
  CHECK(aligned.as<float>().front() == 1.5f);
  CHECK_ERROR(aligned.as<std::int32_t>(), data, "tensor a: unexpected type F32");
  CHECK_ERROR(aligned.as<double>(), data, "tensor a: unexpected type F32");
  const TensorView shifted = parse_at(header + " ");
  CHECK_ERROR(shifted.as<float>(), data, "not aligned");
  float value = 0.0f;
  std::memcpy(&value, shifted.bytes.data(), 4);  // legal in the format, and readable
  CHECK(value == 1.5f);

  std::string half = one("\"F16\"", "[2]", "[0,4]");
  half.resize(56, ' ');
  CHECK(parse_at(half).as<std::uint16_t>().size() == 2);
  CHECK_ERROR(parse_at(half).as<std::int16_t>(), data, "unexpected type F16");
}

TEST_CASE("a file of any length short of the whole is refused") {
  const std::string good = safetensors(one("\"F32\"", "[2]", "[0,8]"), "12345678");
  CHECK_NOTHROW(parse(good));
  for (std::size_t length = 0; length < good.size(); ++length) {
    CHECK_ERROR(parse(good.substr(0, length)), data, "it: ");
  }
  CHECK_ERROR(parse(good + "x"), data, "1 bytes follow the last tensor");
}

TEST_CASE("headers that lie are refused with the reason") {
  struct Lie {
    std::string header, reason;
  };
  const auto two = [](std::string_view first, std::string_view second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(first) +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(second) + "}}";
  };
  const Lie lies[] = {
      {"", "header is not JSON"},
      {" {}", "header is not JSON"},
      {"[]", "header is not JSON"},
      {"{}", "8 bytes follow"},
      {"{} {}", "not valid JSON at byte"},
      {"{\"a\":", "not valid JSON"},
      {one("\"U8\"", "[8]", "[0,8]") + std::string("\0", 1), "header is not JSON"},
      {one("\"U8\"", "[8]", "[0,8]") + "x", "not valid JSON"},
      {"{\"a\xff\":1}", "not valid JSON"},
      {"{\"a\":1}", "the header: a number is not allowed here"},
      {"{\"a\":null}", "null"},
      {"{\"a\":true}", "a boolean"},
      {"{\"a\":\"b\"}", "a text"},
      {"{\"a\":[]}", "a list"},
      {"{\"a\":{}}", "tensor a: dtype, shape or data_offsets is missing"},
      {R"({"a":{"dtype":"U8","shape":[8]}})", "tensor a: dtype, shape"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", "tensor a: dtype, shape"},
      {R"({"a":{"shape":[8],"data_offsets":[0,8]}})", "tensor a: dtype, shape"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "a text"},
      {R"({"a":{"dtype":"U8","shape":[8],"shape":[8],"data_offsets":[0,8]}})", "a list"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"data_offsets":[0,8]}})", "a list"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":{}}})", "an object"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":"x"}})", "a text"},
      {R"({"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}})", "a list"},
      {one("\"F8_E4M3\"", "[8]", "[0,8]"), "tensor a: unknown type \"F8_E4M3\""},
      {one("8", "[8]", "[0,8]"), "a number"},
      {one("\"U8\"", "8", "[0,8]"), "a number"},
      {one("\"U8\"", "[-8]", "[0,8]"), "a negative number"},
      {one("\"U8\"", "[8.0]", "[0,8]"), "not a 64-bit integer"},
      {one("\"U8\"", "[\"8\"]", "[0,8]"), "a text"},
      {one("\"U8\"", "[9223372036854775808]", "[0,8]"), "an impossible dimension"},
      {one("\"U8\"", "[18446744073709551616]", "[0,8]"), "not a 64-bit integer"},
      {one("\"U8\"", "[4294967296,4294967296]", "[0,0]"),
       "its size does not match its type and shape"},
      {one("\"F64\"", "[2305843009213693953]", "[0,8]"),
       "its size does not match its type and shape"},
      {one("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8]",
           "[0,8]"),
       "an impossible dimension"},
      {one("\"U8\"", "[7]", "[0,8]"), "its size does not match its type and shape"},
      {one("\"U16\"", "[8]", "[0,8]"), "its size does not match its type and shape"},
      {one("\"U8\"", "[8]", "[0,8,8]"), "a number"},
      {one("\"U8\"", "[8]", "[0]"), "data_offsets is missing"},
      {one("\"U8\"", "[8]", "[8,0]"), "its offsets run backwards"},
      {one("\"U8\"", "[8]", "[0,-8]"), "a negative number"},
      {one("\"U8\"", "[9]", "[0,9]"), "reaches beyond the end of the file"},
      {one("\"U8\"", "[8]", "[18446744073709551608,18446744073709551615]"), "beyond the end"},
      {one("\"U8\"", "[7]", "[1,8]"), "leaves a hole before it"},
      {one("\"U8\"", "[7]", "[0,7]"), "1 bytes follow"},
      {two("[0,4]", "[3,7]"), "tensor b: overlaps the tensor before it"},
      {two("[0,4]", "[0,4]"), "tensor b: overlaps the tensor before it"},
      {two("[4,8]", "[3,7]"), "tensor b: leaves a hole"},
      {two("[0,4]", "[5,8]"), "tensor b: leaves a hole"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "duplicate tensor a"},
      {R"({"__metadata__":{"x":1}})", "__metadata__: a number"},
      {R"({"__metadata__":{"x":{}}})", "__metadata__: an object"},
      {R"({"__metadata__":{"x":"1","x":"2"}})", "__metadata__: a duplicate key"},
      {R"({"__metadata__":{},"__metadata__":{}})", "duplicate tensor"},
      {R"({"__metadata__":"x"})", "a text"},
      {R"({"a\u001b[2J":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "control characters"},
      {"{\"" + std::string(1001, 'n') + R"(":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "too long"},
  };
  for (const Lie& lie : lies) {
    CAPTURE(lie.header);
    CHECK_ERROR(parse(safetensors(lie.header, "12345678")), data, "it: ");
    CHECK_ERROR(parse(safetensors(lie.header, "12345678")), data, lie.reason);
  }
}

TEST_CASE("lengths and depths beyond all measure do no harm") {
  const auto with_length = [](std::uint64_t length) {
    return bytes_of_values<std::uint64_t>({length}) + "{}";
  };
  CHECK_NOTHROW(parse(with_length(2)));
  CHECK_ERROR(parse(with_length(3)), data, "truncated inside its header");
  CHECK_ERROR(parse(with_length(100'000'000)), data, "truncated inside its header");
  CHECK_ERROR(parse(with_length(100'000'001)), data, "is not a safetensors file");
  CHECK_ERROR(parse(with_length(~std::uint64_t{0})), data, "is not a safetensors file");
  CHECK_ERROR(parse(with_length(~std::uint64_t{7})), data, "is not a safetensors file");
  const std::string deep(1'000'000, '[');
  CHECK_ERROR(parse(safetensors("{\"a\":" + deep, "")), data, "a list is not allowed here");
  std::string objects = "{";
  for (int i = 0; i < 200'000; ++i) objects += "\"a\":{";
  CHECK_ERROR(parse(safetensors(objects, "")), data, "an object is not allowed here");
}

TEST_CASE("what is no regular file is refused by name") {
  const TemporaryFolder folder;
  CHECK_ERROR(TensorFile::open(folder.file("none")), io, "none: No such file");
  CHECK_ERROR(TensorFile::open(folder.path()), io, "Is a directory");
  CHECK_ERROR(TensorFile::open("/dev/null"), io, "/dev/null: is not a regular file");
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_ERROR(TensorFile::open(folder.file("pipe")), io, "pipe: is not a regular file");
  write_file(folder.file("empty"), "");
  CHECK_ERROR(TensorFile::open(folder.file("empty")), data, "empty: is empty");
  write_file(folder.file("short"), "1234567");
  CHECK_ERROR(TensorFile::open(folder.file("short")), data, "short: 7 bytes are too few");
}

TEST_CASE("a written file is aligned, without holes, and says what it was given") {
  const TemporaryFolder folder;
  const std::string path = folder.file("w");
  {
    TensorFileWriter writer(path,
                            {{"a", TensorType::u8, {3}},
                             {"none", TensorType::f32, {0, 7}},
                             {"b \"quoted\"", TensorType::i32, {2, 8}},
                             {"c", TensorType::f64, {1}}},
                            {{"key", "00"}, {"text", "\"\\\n"}});
    writer.append(as_byte_span("a"));
    writer.append(as_byte_span("bc"));
    writer.append(as_byte_span(std::string(64, 'x')));
    writer.append({});
    writer.append(as_byte_span("12345678"));
    writer.set_metadata("key", "42");
    CHECK_FALSE(std::filesystem::exists(path));
    writer.finish();
    CHECK(writer.file_bytes() == static_cast<std::int64_t>(std::filesystem::file_size(path)));
  }
  const std::string bytes = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK((8 + length) % 64 == 0);
  // 3 bytes of "a", 61 of padding, 64 of "b", 8 of "c".
  CHECK(bytes.substr(8 + length) ==
        "abc" + std::string(61, '\0') + std::string(64, 'x') + "12345678");
  std::string expected = R"({"__metadata__":{"key":"42","text":"\"\\\u000a"},)"
                         R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                         R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[3,3]},)"
                         R"(".pad0":{"dtype":"U8","shape":[61],"data_offsets":[3,64]},)"
                         R"("b \"quoted\"":{"dtype":"I32","shape":[2,8],"data_offsets":[64,128]},)"
                         R"("c":{"dtype":"F64","shape":[1],"data_offsets":[128,136]}})";
  expected.resize(length, ' ');
  CHECK(bytes.substr(8, length) == expected);
  const TensorFile file = TensorFile::open(path);
  CHECK(file.at("b \"quoted\"").as<std::int32_t>()[15] == 0x78787878);
  CHECK(file.metadata().at("text") == "\"\\\n");
}

TEST_CASE("a writer that gives up leaves no trace") {
  const TemporaryFolder folder;
  const std::string path = folder.file("w");
  write_file(path, "old");
  {
    TensorFileWriter writer(path, {{"a", TensorType::u8, {3'000'000}}}, {});
    writer.append(as_byte_span(std::string(2'000'000, 'x')));
    CHECK(read_file(path) == "old");
  }
  {
    const FileSizeLimit limit(100'000);
    TensorFileWriter writer(path, {{"a", TensorType::u8, {3'000'000}}}, {});
    CHECK_ERROR(writer.append(as_byte_span(std::string(3'000'000, 'x'))), io, "w: File too large");
  }
  CHECK(read_file(path) == "old");
  CHECK(entries_in(folder.path()) == 1);
}

}  // namespace
}  // namespace tinyloop
