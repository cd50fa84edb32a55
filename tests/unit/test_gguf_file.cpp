// SPDX-License-Identifier: Apache-2.0
// GGUF files: reading against bytes put together by hand, and every way a header can lie.
#include <doctest/doctest.h>

#include <limits>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/gguf_file.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

template <typename T>
std::string raw(T value) {
  return bytes_of_values(std::vector<T>{value});
}
std::string u32(std::uint64_t value) { return raw(static_cast<std::uint32_t>(value)); }
std::string u64(std::uint64_t value) { return raw(value); }
std::string text(std::string_view value) { return u64(value.size()) + std::string(value); }

// Key, number of the type, value.
std::string key(std::string_view name, std::uint32_t type, const std::string& value) {
  return text(name) + u32(type) + value;
}
std::string tensor(std::string_view name, const std::vector<std::uint64_t>& shape,
                   std::uint32_t type, std::uint64_t offset) {
  std::string made = text(name) + u32(shape.size());
  for (const std::uint64_t size : shape) made += u64(size);
  return made + u32(type) + u64(offset);
}

struct Parts {
  std::vector<std::string> keys, tensors;
  std::string data;
  std::uint32_t version = 3;
  std::size_t alignment = 32;

  std::string file() const {
    std::string made = "GGUF" + u32(version) + u64(tensors.size()) + u64(keys.size());
    for (const std::string& part : keys) made += part;
    for (const std::string& part : tensors) made += part;
    made.resize((made.size() + alignment - 1) / alignment * alignment);
    return made + data;
  }
};

GgufHeader parse(const std::string& file) { return parse_gguf(as_byte_span(file), "it"); }

Parts two_tensors() {
  return {{key("general.architecture", 8, text("llama")), key("n", 4, u32(7))},
          {tensor("a", {3, 2}, 0, 0), tensor("b", {64}, 8, 32)},
          bytes_of_values<float>({1, 2, 3, 4, 5, 6}) + std::string(8, '\0') + std::string(68, 'q')};
}

TEST_CASE("tensors have their rows first, and their bytes") {
  for (const std::uint32_t version : {2u, 3u}) {
    Parts parts = two_tensors();
    parts.version = version;
    const TemporaryFolder folder;
    write_file(folder.file("m.gguf"), parts.file());
    CHECK(is_gguf_file(folder.file("m.gguf")));
    const GgufFile file = GgufFile::open(folder.file("m.gguf"));
    REQUIRE(file.tensors().size() == 2);
    const GgufTensor &a = file.tensors()[0], &b = file.tensors()[1];
    CHECK(a.name == "a");
    CHECK(a.type == BlockType::f32);
    CHECK(a.shape == std::vector<std::int64_t>{2, 3});
    CHECK(a.bytes.size() == 24);
    CHECK(b.type == BlockType::q8_0);
    CHECK(b.bytes.size() == 68);
    CHECK(b.bytes[67] == std::byte{'q'});
    CHECK(file.metadata().integer("n") == 7);
  }
  const TemporaryFolder folder;
  CHECK_FALSE(is_gguf_file(folder.file("none")));
  write_file(folder.file("short"), "GGU");
  CHECK_FALSE(is_gguf_file(folder.file("short")));
}

TEST_CASE("values of every type") {
  const std::string file =
      Parts{{key("u8", 0, raw<std::uint8_t>(200)), key("i8", 1, raw<std::int8_t>(-5)),
             key("u16", 2, raw<std::uint16_t>(60000)), key("i16", 3, raw<std::int16_t>(-6)),
             key("u32", 4, u32(4000000000)), key("i32", 5, raw<std::int32_t>(-7)),
             key("f32", 6, raw(1e-5f)), key("yes", 7, raw<std::uint8_t>(1)),
             key("no", 7, raw<std::uint8_t>(0)), key("text", 8, text("x\ny")),
             key("u64", 10, u64(std::uint64_t{1} << 40)), key("i64", 11, u64(~std::uint64_t{0})),
             key("f64", 12, raw(0.1)), key("texts", 9, u32(8) + u64(2) + text("a") + text("")),
             key("bytes", 9, u32(0) + u64(3) + "\1\2\xff"),
             key("floats", 9, u32(6) + u64(2) + raw(0.5f) + raw(-2.0f)),
             key("nothing", 9, u32(8) + u64(0)), key("huge", 10, u64(~std::uint64_t{0})),
             key("empty", 8, text(""))},
            {},
            ""}
          .file();
  const GgufMetadata values = parse(file).metadata;  // a view of the file
  CHECK(values.integer("u8") == 200);
  CHECK(values.integer("i8") == -5);
  CHECK(values.integer("u16") == 60000);
  CHECK(values.integer("i16") == -6);
  CHECK(values.integer("u32") == 4000000000);
  CHECK(values.integer("i32") == -7);
  CHECK(values.integer("u64") == std::int64_t{1} << 40);
  CHECK(values.integer("i64") == -1);
  CHECK(values.integer_or("none", 9) == 9);
  CHECK(values.number("f32") == 1e-5);  // and not the 32-bit float's 9.99999975e-06
  CHECK(values.number("f64") == 0.1);
  CHECK(values.number("u8") == 200.0);
  CHECK(values.flag("yes"));
  CHECK_FALSE(values.flag("no"));
  CHECK(values.flag_or("none", true));
  CHECK(values.text("text") == "x\ny");
  CHECK(values.texts("texts") == std::vector<std::string_view>{"a", ""});
  CHECK(values.integers("bytes") == std::vector<std::int64_t>{1, 2, 255});
  CHECK(values.integers("u8") == std::vector<std::int64_t>{200});
  CHECK(values.numbers("floats") == std::vector<double>{0.5, -2.0});
  CHECK(values.texts("nothing").empty());
  CHECK(values.list_length("texts") == 2);
  CHECK(values.list_length("none") == 0);
  for (const char* set : {"u8", "f32", "yes", "text", "texts", "huge", "i64"}) {
    CHECK_MESSAGE(values.is_set(set), set);
  }
  for (const char* not_set : {"no", "nothing", "none", "empty"}) {
    CHECK_MESSAGE(!values.is_set(not_set), not_set);
  }
  CHECK_ERROR(values.integer("none"), data, "it: none is missing");
  CHECK_ERROR(values.integer("f32"), data, "it: f32 is 1e-05, an integer is needed");
  CHECK_ERROR(values.integer("huge"), data, "18446744073709551615, an integer is needed");
  CHECK_ERROR(values.integer("yes"), data, "it: yes is true, an integer is needed");
  CHECK_ERROR(values.number("text"), data, R"(it: text is "x\u000ay", a number is needed)");
  CHECK_ERROR(values.flag("u8"), data, "it: u8 is 200, true or false is needed");
  CHECK_ERROR(values.text("texts"), data, "it: texts is a list of 2, a text is needed");
  CHECK_ERROR(values.texts("bytes"), data, "a list of texts is needed");
  CHECK_ERROR(values.integers("floats"), data, "a list of integers is needed");
  CHECK_ERROR(values.numbers("bytes"), data, "a list of 32-bit floats is needed");
  CHECK_ERROR(values.list_length("u8"), data, "a list is needed");
}

TEST_CASE("a file cut anywhere is refused") {
  const std::string file = two_tensors().file();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::string cut = file.substr(0, size);
    CHECK_ERROR(parse(cut), data, "it: ");
  }
  CHECK(parse(file).tensors.size() == 2);
}

TEST_CASE("other versions and other files are refused") {
  Parts parts = two_tensors();
  parts.version = 1;
  CHECK_ERROR(parse(parts.file()), data, "version 1; 2 and 3 are supported");
  parts.version = 4;
  CHECK_ERROR(parse(parts.file()), data, "version 4; 2 and 3 are supported");
  parts.version = 0x03000000;
  CHECK_ERROR(parse(parts.file()), data, "is a big-endian GGUF file");
  CHECK_ERROR(parse("version https://git-lfs.github.com/spec/v1\n"), data, "Git LFS pointer");
  CHECK_ERROR(parse("{}"), data, "is not a GGUF file");
}

TEST_CASE("counts and lengths beyond the file never reach memory") {
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  const std::string start = "GGUF" + u32(3);
  for (const std::uint64_t count : {kHuge, kHuge / 24 + 2, std::uint64_t{1} << 40}) {
    CHECK_ERROR(parse(start + u64(count) + u64(0)), data, "says that it has");
    CHECK_ERROR(parse(start + u64(0) + u64(count)), data, "says that it has");
    CHECK_ERROR(parse(start + u64(0) + u64(1) + u64(count) + "key and more"), data, "is truncated");
    CHECK_ERROR(parse(Parts{{key("k", 8, u64(count))}, {}, ""}.file()), data,
                "is truncated inside key k");
    CHECK_ERROR(parse(Parts{{key("k", 9, u32(4) + u64(count))}, {}, ""}.file()), data,
                "key k says that it has");
    CHECK_ERROR(parse(Parts{{key("k", 9, u32(8) + u64(count))}, {}, ""}.file()), data,
                "key k says that it has");
    CHECK_ERROR(parse(Parts{{}, {tensor("a", {count, count}, 0, 0)}, ""}.file()), data,
                "tensor a: ");
    CHECK_ERROR(parse(Parts{{}, {tensor("a", {32}, 0, count / 32 * 32)}, ""}.file()), data,
                "tensor a: ");
  }
}

TEST_CASE("metadata that is not as described is refused") {
  const auto of_keys = [](std::vector<std::string> keys) {
    return Parts{std::move(keys), {}, ""}.file();
  };
  CHECK_ERROR(parse(of_keys({key("k", 13, "")})), data, "key k: unknown value type 13");
  CHECK_ERROR(parse(of_keys({key("k", 9, u32(9) + u64(0))})), data,
              "a list of lists is not supported");
  CHECK_ERROR(parse(of_keys({key("k", 4, u32(1)), key("k", 4, u32(1))})), data, "duplicate key k");
  CHECK_ERROR(parse(of_keys({key("", 4, u32(1))})), data, "a key is empty");
  CHECK_ERROR(parse(of_keys({key("a\nb", 4, u32(1))})), data, "a key is empty, longer");
  CHECK_ERROR(parse(of_keys({key(std::string(1001, 'k'), 4, u32(1))})), data, "longer than 1000");
  for (const std::uint64_t alignment : {0, 3, 48, 1 << 21}) {
    CHECK_ERROR(parse(of_keys({key("general.alignment", 4, u32(alignment))})), data,
                "a power of two up to 1048576 is needed");
  }
}

TEST_CASE("tensors that are not as described are refused") {
  const auto of = [](std::vector<std::string> tensors, std::size_t bytes) {
    return Parts{{}, std::move(tensors), std::string(bytes, '\0')}.file();
  };
  CHECK_ERROR(parse(of({tensor("a", {8}, 0, 0), tensor("a", {8}, 0, 32)}, 64)), data,
              "duplicate tensor a");
  CHECK_ERROR(parse(of({tensor("a", {}, 0, 0)}, 32)), data, "has 0 dimensions; 1 to 4");
  CHECK_ERROR(parse(of({tensor("a", {1, 1, 1, 1, 1}, 0, 0)}, 32)), data, "has 5 dimensions");
  CHECK_ERROR(parse(of({tensor("a", {32}, 20, 0)}, 32)), data, "type IQ4_NL is not supported");
  CHECK_ERROR(parse(of({tensor("a", {32}, 26, 0)}, 128)), data, "type I32 is not supported");
  CHECK_ERROR(parse(of({tensor("a", {32}, 4, 0)}, 32)), data, "type 4 is not supported");
  CHECK_ERROR(parse(of({tensor("a", {48}, 2, 0)}, 64)), data, "do not divide");
  CHECK_ERROR(parse(of({tensor("a", {8}, 0, 16)}, 64)), data, "its offset is not aligned");
  CHECK_ERROR(parse(of({tensor("a", {8}, 0, 32)}, 64)), data, "leaves a hole before it");
  CHECK_ERROR(parse(of({tensor("a", {9}, 0, 0), tensor("b", {8}, 0, 32)}, 96)), data,
              "tensor b: overlaps");
  CHECK_ERROR(parse(of({tensor("a", {9}, 0, 0)}, 32)), data, "the file ends before its end");
  CHECK_ERROR(parse(of({tensor("a", {8}, 0, 0)}, 64)), data, "32 bytes follow the last tensor");
  // The bytes up to the next aligned place may be there or not.
  CHECK(parse(of({tensor("a", {9}, 0, 0)}, 36)).tensors.size() == 1);
  CHECK(parse(of({tensor("a", {9}, 0, 0)}, 64)).tensors.size() == 1);
}

}  // namespace
}  // namespace tinyloop
