// SPDX-License-Identifier: Apache-2.0
// Reads GGUF files: magic, version, counts, metadata (key, type, value), a table of tensors, then
// their data at aligned offsets. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
// Knows bytes, names and shapes; not what a key or a tensor means, nor how blocks hold values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/mapped_file.h"

namespace tinyloop {

// The types of tensors whose values can be read, with the format's numbers.
enum class BlockType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

std::string_view name_of(BlockType type);   // "F32", "Q4_1", ...
std::int64_t block_values(BlockType type);  // values of one block, 1 where there are no blocks
std::int64_t block_bytes(BlockType type);   // bytes of one block

enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  list,
  u64,
  i64,
  f64
};

// A value of the metadata, inside the mapping; checked against the file's end.
struct GgufValue {
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of a list
  std::uint64_t count = 1;          // of a list's elements
  std::span<const std::byte> bytes;
};

// A tensor's entry; shape has the slowest dimension first, as safetensors does, so that a matrix is
// [rows, columns].
struct GgufTensor {
  std::string name;
  BlockType type = BlockType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// What a file says of itself, asked key by key; every complaint names the file and the key.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  GgufMetadata(std::string where, std::map<std::string, GgufValue, std::less<>> values)
      : where_(std::move(where)), values_(std::move(values)) {}

  const std::string& where() const { return where_; }
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  bool has(std::string_view key) const { return values_.contains(key); }

  // A value of the wrong type, or of no value, throws Error(data). number(): a 32-bit float is the
  // decimal number that it was most likely made from (1e-05, not 9.99999975e-06).
  bool flag(std::string_view key) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::int64_t integer(std::string_view key) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback) const;
  double number(std::string_view key) const;
  std::string_view text(std::string_view key) const;
  std::uint64_t list_length(std::string_view key) const;  // 0 if absent
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;  // of a list or one number
  std::vector<double> numbers(std::string_view key) const;
  // Neither absent nor 0, false, "" or an empty list.
  bool is_set(std::string_view key) const;

  // Throws Error(data): "FILE: KEY is VALUE, REASON".
  [[noreturn]] void refuse(std::string_view key, std::string_view reason) const;

 private:
  const GgufValue& at(std::string_view key) const;

  std::string where_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in file order
};

// Whether the bytes begin as a GGUF file does.
bool is_gguf(std::span<const std::byte> file);
// The same of the file at `path`; false where it cannot be read.
bool is_gguf_file(const std::string& path);

// Parses and checks a whole file held in memory; views point into `file`. `where` is its name in
// messages. Throws Error(data): other versions than 2 and 3, big-endian files, counts, lengths and
// offsets beyond the file, tensors that overlap, leave holes or have a type that cannot be read, a
// key or a tensor twice.
GgufHeader parse_gguf(std::span<const std::byte> file, std::string_view where);

class GgufFile {
 public:
  static GgufFile open(const std::string& path);  // also Error(io)
  const MappedFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  const GgufMetadata& metadata() const { return header_.metadata; }
  const std::vector<GgufTensor>& tensors() const { return header_.tensors; }

 private:
  GgufFile(MappedFile file, GgufHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  MappedFile file_;
  GgufHeader header_;
};

}  // namespace tinyloop
