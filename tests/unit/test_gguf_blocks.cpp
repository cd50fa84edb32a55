// SPDX-License-Identifier: Apache-2.0
// Blocks of GGUF whose values can be told by hand; all types at random are compared with another
// reader by the shell case tl-convert-gguf.
#include <doctest/doctest.h>

#include "tinyloop/model/gguf_blocks.h"
#include "tinyloop/model/packed_matrix.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

const std::string kOne = std::string("\x00\x3c", 2);   // 1.0 as f16
const std::string kHalf = std::string("\x00\x38", 2);  // 0.5

std::vector<float> values(BlockType type, const std::string& bytes) {
  std::vector<float> out(bytes.size() / static_cast<std::size_t>(block_bytes(type)) *
                         static_cast<std::size_t>(block_values(type)));
  read_blocks(type, as_byte_span(bytes), out);
  return out;
}

TEST_CASE("plain types") {
  CHECK(values(BlockType::f32, bytes_of_values<float>({1.5f, -2.0f})) ==
        std::vector<float>{1.5f, -2.0f});
  CHECK(values(BlockType::f16, kOne + kHalf) == std::vector<float>{1.0f, 0.5f});
  CHECK(values(BlockType::bf16, std::string("\x80\x3f\x00\x40", 4)) ==
        std::vector<float>{1.0f, 2.0f});
  for (const BlockType type : {BlockType::f32, BlockType::f16, BlockType::bf16}) {
    CHECK_FALSE(is_blocked(type));
  }
}

TEST_CASE("blocks of 32: low halves first, then high halves") {
  std::string halves(16, '\0');
  halves[0] = '\x4f';  // value 0 is 15, value 16 is 4
  const auto q4_0 = values(BlockType::q4_0, kHalf + halves);
  CHECK(q4_0[0] == 3.5f);
  CHECK(q4_0[1] == -4.0f);
  CHECK(q4_0[16] == -2.0f);
  const auto q4_1 = values(BlockType::q4_1, kHalf + kOne + halves);
  CHECK(q4_1[0] == 8.5f);
  CHECK(q4_1[1] == 1.0f);
  CHECK(q4_1[16] == 3.0f);
  const std::string high("\x01\x00\x02\x00", 4);  // of values 0 and 17
  const auto q5_0 = values(BlockType::q5_0, kHalf + high + halves);
  CHECK(q5_0[0] == 7.5f);    // (15 + 16 - 16) / 2
  CHECK(q5_0[16] == -6.0f);  // (4 - 16) / 2
  CHECK(q5_0[17] == 0.0f);   // (0 + 16 - 16) / 2
  const auto q5_1 = values(BlockType::q5_1, kHalf + kOne + high + halves);
  CHECK(q5_1[0] == 16.5f);
  CHECK(q5_1[17] == 9.0f);
  const auto q8_0 =
      values(BlockType::q8_0, kHalf + std::string("\x80\x7f") + std::string(30, '\1'));
  CHECK(q8_0[0] == -64.0f);
  CHECK(q8_0[1] == 63.5f);
  CHECK(q8_0[31] == 0.5f);
}

TEST_CASE("blocks of 256: scales of groups, and where each bit of a value lies") {
  std::string q2 = std::string(16, '\x32') + std::string(64, '\0') + kOne + kHalf;
  q2[16 + 32 + 5] = '\x0c';  // chunk 1, pair 1: value 128 + 32 + 5 is 3
  const auto two = values(BlockType::q2_k, q2);
  CHECK(two[0] == -1.5f);   // -0.5 * 3
  CHECK(two[165] == 4.5f);  // 1 * 2 * 3 - 0.5 * 3
  std::string q3 = std::string(32, '\xff') + std::string(64, '\0') + std::string(12, '\0') + kOne;
  q3[96] = '\x01';      // group 0: 1 - 32
  q3[96 + 8] = '\x03';  // and its upper bits: 49 - 32
  q3[32] = '\x02';
  q3[1] = '\0';  // value 1 and its like are 4 lower
  const auto three = values(BlockType::q3_k, q3);
  CHECK(three[0] == 34.0f);    // (49 - 32) * 2
  CHECK(three[1] == -68.0f);   // 17 * -4
  CHECK(three[33] == 128.0f);  // group 2: -32 * -4
  // Group 0: scale 1, minimum 2; group 4: scale 0x13, minimum 0x25.
  std::string groups(12, '\0');
  groups[0] = '\x41';
  groups[4] = '\x82';
  groups[8] = '\x53';
  std::string q4 = kOne + kHalf + groups + std::string(128, '\0');
  q4[16 + 64 + 3] = '\x09';  // value 128 + 3, of group 4
  q4[16 + 3] = '\x70';       // value 32 + 3, of group 1, whose scale is 0
  const auto four = values(BlockType::q4_k, q4);
  CHECK(four[0] == -1.0f);
  CHECK(four[35] == 0.0f);
  CHECK(four[131] == 19.0f * 9.0f - 0.5f * 37.0f);
  std::string q5 = kOne + kHalf + groups + std::string(32, '\0') + std::string(128, '\0');
  q5[16 + 3] = '\x10';  // upper bit of value 131
  q5[48 + 64 + 3] = '\x09';
  CHECK(values(BlockType::q5_k, q5)[131] == 19.0f * 25.0f - 0.5f * 37.0f);
  std::string q6 = std::string(128, '\0') + std::string(64, '\0') + std::string(16, '\x02') + kHalf;
  q6[64 + 40] = '\x90';       // value 128 + 64 + 40
  q6[128 + 32 + 8] = '\xc0';  // its upper bits: pair 3
  q6[192 + 14] = '\xff';      // group 14 is -1
  const auto six = values(BlockType::q6_k, q6);
  CHECK(six[0] == -32.0f);
  CHECK(six[232] == -0.5f * (9 + 48 - 32));
}

TEST_CASE("a row of Q8_0 is a lane of q8, byte by byte") {
  std::string row;
  for (int group = 0; group < 2; ++group) {
    row += group == 0 ? kHalf : kOne;
    for (int i = 0; i < 32; ++i) row += static_cast<char>(i - 16 - group);
  }
  std::vector<std::byte> data(packed_data_bytes(WeightType::q8, kPanel, 64));
  std::vector<std::byte> scales(packed_scale_bytes(WeightType::q8, kPanel, 64));
  REQUIRE(place_q8_0(as_byte_span(row), 64, 5, data, scales));
  const std::vector<float> wanted = values(BlockType::q8_0, row);
  for (std::int64_t i = 0; i < 64; ++i) {
    CHECK(unpack_value(WeightType::q8, 64, data, scales, 5, i) ==
          wanted[static_cast<std::size_t>(i)]);
    CHECK(unpack_value(WeightType::q8, 64, data, scales, 4, i) == 0.0f);
  }
  row[40] = '\x80';
  CHECK_FALSE(place_q8_0(as_byte_span(row), 64, 5, data, scales));
}

}  // namespace
}  // namespace tinyloop
