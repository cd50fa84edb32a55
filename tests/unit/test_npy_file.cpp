// SPDX-License-Identifier: Apache-2.0
// .npy files against bytes put together by hand from NumPy's description of the format.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/npy_file.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

std::string npy(std::string dict, std::string_view data, char version = 1) {
  const std::size_t prefix = version == 1 ? 10 : 12;
  while ((prefix + dict.size() + 1) % 64 != 0) dict += ' ';
  dict += '\n';
  std::string file = "\x93NUMPY";
  file +=
      {version, '\0', static_cast<char>(dict.size() & 255), static_cast<char>(dict.size() >> 8)};
  if (version > 1) file += {'\0', '\0'};
  return file + dict + std::string(data);
}

NpyArray parse(const std::string& file) { return parse_npy(as_byte_span(file), "it"); }

TEST_CASE("arrays of every type, as NumPy writes them") {
  const std::vector<float> floats = {1.5f, -2.0f, 0.0f, 3.25f, 1e-30f, -7.0f};
  const NpyArray array = parse(
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", bytes_of_values(floats)));
  CHECK(array.type == NpyType::f32);
  CHECK(array.shape == std::vector<std::int64_t>{3, 2});
  REQUIRE(array.elements() == 6);
  for (std::int64_t i = 0; i < 6; ++i) CHECK(array.real(i) == floats[static_cast<std::size_t>(i)]);

  const auto integers = [](const std::string& descr, const std::string& data) {
    const NpyArray read =
        parse(npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2,), }", data));
    REQUIRE(read.elements() == 2);
    return std::vector<std::int64_t>{read.integer(0), read.integer(1)};
  };
  using List = std::vector<std::int64_t>;
  CHECK(integers("<i4", bytes_of_values<std::int32_t>({-1, 7})) == List{-1, 7});
  CHECK(integers("<i8", bytes_of_values<std::int64_t>({-5'000'000'000, 7})) ==
        List{-5'000'000'000, 7});
  CHECK(integers("<u4", bytes_of_values<std::uint32_t>({4'294'967'295, 7})) ==
        List{4'294'967'295, 7});
  CHECK(integers("<u2", bytes_of_values<std::uint16_t>({65535, 0})) == List{65535, 0});
  CHECK(integers("|u1", bytes_of_values<std::uint8_t>({255, 1})) == List{255, 1});
}

TEST_CASE("versions, key order, scalars, empty and one-dimensional arrays") {
  for (const char version : {'\1', '\2', '\3'}) {
    CHECK(parse(npy("{'shape': (), 'fortran_order': False, 'descr': \"<f4\"}",
                    bytes_of_values<float>({2.5f}), version))
              .real(0) == 2.5f);
  }
  CHECK(parse(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }", "")).elements() ==
        0);
  // One dimension has only one order.
  CHECK(parse(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (3,), }", "abc")).integer(2) ==
        'c');
}

TEST_CASE("an array in Fortran order holds the same elements at the same places") {
  // a[i][j][k] = 100 i + 10 j + k, its first index changing fastest in the file.
  std::vector<std::int32_t> stored;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) stored.push_back(100 * i + 10 * j + k);
    }
  }
  const NpyArray array = parse(npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4), }",
                                   bytes_of_values(stored)));
  CHECK(array.shape == std::vector<std::int64_t>{2, 3, 4});
  std::int64_t index = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) CHECK(array.integer(index++) == 100 * i + 10 * j + k);
    }
  }
  const NpyArray floats = parse(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
                                    bytes_of_values<float>({1, 3, 2, 4})));
  for (std::int64_t i = 0; i < 4; ++i) CHECK(floats.real(i) == static_cast<float>(i + 1));
  CHECK(parse(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 5), }", "")).shape ==
        std::vector<std::int64_t>{0, 5});
  CHECK_ERROR(parse(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2), }", "abc")), data,
              "does not match its shape");
}

TEST_CASE("what is not such an array is refused by name") {
  const std::string good = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "abc");
  for (std::size_t length = 0; length < good.size(); ++length) {
    CHECK_ERROR(parse(good.substr(0, length)), data, "it: ");
  }
  CHECK_ERROR(parse(good + "d"), data, "does not match its shape");
  CHECK_ERROR(parse("PK\3\4 a zip file"), data, "not a .npy file");
  CHECK_ERROR(parse(npy("{}", "", 4)), data, "version 4");
  const auto dict = [](std::string_view text) { return npy(std::string(text), "abc"); };
  for (const std::string_view text :
       {"", "{", "{}", "[]", "{'descr': '|u1', 'fortran_order': False}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3)", "{'descr': '|u1', 'shape': (3,)}",
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '|u1', 'fortran_order': 0, 'shape': (3,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 3}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)} x", "{'descr': '|u1"}) {
    CAPTURE(text);
    CHECK_ERROR(parse(dict(text)), data, "malformed .npy header");
  }
  for (const std::string type : {">f4", ">i4", ">u4", "|O", "<f2", "<f8", "<u8", "|i1"}) {
    CHECK_ERROR(parse(dict("{'descr': '" + type + "', 'fortran_order': False, 'shape': (3,)}")),
                data, "it: has type \"" + type + "\"; supported are little-endian");
  }
  // 2^32 * 2^32 elements are 0 modulo 2^64.
  CHECK_ERROR(
      parse(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "")),
      data, "does not match its shape");
}

TEST_CASE("written arrays have exactly the bytes that NumPy would read") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.npy");
  {
    NpyWriter writer(path, {2, 3});
    writer.append(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
    writer.append(std::vector<float>{9, 10, 11, 12});
    CHECK_FALSE(std::filesystem::exists(path));
    writer.finish();
  }
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 3), }";
  dict.resize(117, ' ');
  CHECK(read_file(path) == std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + '\n' +
                               bytes_of_values<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  const NpyArray array = read_npy(path);
  CHECK(array.shape == std::vector<std::int64_t>{2, 2, 3});
  CHECK(array.real(11) == 12.0f);

  NpyWriter vector(path, {});
  vector.append(std::vector<float>{4});
  vector.finish();
  CHECK(read_file(path).find("'shape': (1,), }") != std::string::npos);
  CHECK(read_npy(path).shape == std::vector<std::int64_t>{1});

  NpyWriter(path, {5}).finish();
  CHECK(read_npy(path).shape == std::vector<std::int64_t>{0, 5});
}

TEST_CASE("files that cannot be read or written are named") {
  const TemporaryFolder folder;
  CHECK_ERROR(read_npy(folder.file("none.npy")), io, "none.npy: No such file");
  CHECK_ERROR(read_npy(folder.path()), io, "is not a regular file");
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_ERROR(read_npy(folder.file("pipe")), io, "is not a regular file");
  write_file(folder.file("bad.npy"), "");
  CHECK_ERROR(read_npy(folder.file("bad.npy")), data, "bad.npy: is not a .npy file");
  {
    const FileSizeLimit limit(4096);
    NpyWriter writer(folder.file("large.npy"), {});
    writer.append(std::vector<float>(2000));
    CHECK_ERROR(writer.finish(), io, "large.npy: File too large");
  }
  CHECK(entries_in(folder.path()) == 2);
}

}  // namespace
}  // namespace tinyloop
