// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors files: 8-byte little-endian header length, JSON header, raw
// little-endian data. Format: https://github.com/huggingface/safetensors. Knows bytes, names and
// shapes, not what a tensor means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/mapped_file.h"

namespace tinyloop {

enum class TensorType { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

std::size_t bytes_of(TensorType type);               // of one element
std::string_view safetensors_name(TensorType type);  // "F32", "BF16", ...

// Bytes of a tensor; no value if the product does not fit.
std::optional<std::uint64_t> bytes_of_shape(TensorType type, std::span<const std::int64_t> shape);

struct TensorView {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // inside the mapping; size = product of shape x bytes_of(type)

  std::int64_t elements() const;
  // The data as T; throws Error(data) if T does not fit the type or the address is not aligned for
  // T.
  template <typename T>
  std::span<const T> as() const;
};

// What the header of a safetensors file says, checked against the file's size.
struct SafetensorsHeader {
  std::vector<TensorView> tensors;  // in file order
  std::map<std::string, std::string> metadata;
};

// Parses and checks a whole safetensors file held in memory, as TensorFile::open does for a mapped
// one; the views point into `file`. `where` is its name in messages.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view where);

// A mapped, read-only safetensors file. Everything is checked at open: the header's length against
// the file, JSON, known types, shapes without overflow, offsets inside the file, ordered without
// overlap or holes, sizes equal to shape x type, no tensor twice. Throws Error(io) or Error(data)
// naming the file and the tensor.
class TensorFile {
 public:
  static TensorFile open(const std::string& path);
  TensorFile(TensorFile&&) noexcept;
  TensorFile& operator=(TensorFile&&) noexcept;
  ~TensorFile();

  const MappedFile& file() const;
  const std::string& path() const;
  const std::vector<TensorView>& tensors() const;       // in file order
  const TensorView* find(std::string_view name) const;  // nullptr if absent
  const TensorView& at(std::string_view name) const;    // throws Error(data) if absent
  const std::map<std::string, std::string>& metadata() const;
  std::span<const std::byte> mapping() const;           // the whole file
  void forget(std::span<const std::byte> bytes) const;  // as MappedFile's

 private:
  struct State;
  explicit TensorFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct TensorPlan {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
};

// Writes a safetensors file in one forward sweep under a temporary name in the same folder and
// gives it its final name at the end; a writer that is destroyed before finish() removes what it
// wrote. Every tensor starts at a multiple of 64 bytes in the file: gaps are filled with U8 tensors
// named ".pad<n>" because the format allows no holes. Throws Error(io) naming the path and the
// cause (a full disk is reported by the call that meets it).
class TensorFileWriter {
 public:
  // Metadata values that are known only at the end must be given here at their final length (see
  // set_metadata). `shared`: as AtomicFile's.
  TensorFileWriter(std::string path, std::vector<TensorPlan> tensors,
                   std::map<std::string, std::string> metadata, bool shared = false);
  ~TensorFileWriter();
  TensorFileWriter(const TensorFileWriter&) = delete;
  TensorFileWriter& operator=(const TensorFileWriter&) = delete;

  // Appends to the data of the tensors in the order of the plan; a call may not cross a tensor's
  // end.
  void append(std::span<const std::byte> bytes);
  // Replaces a value by another one whose JSON text has the same length.
  void set_metadata(const std::string& key, const std::string& value);
  // The first bytes of the file, length and header, as they are to be.
  std::string header() const;
  // Checks that all tensors are complete, flushes and fsyncs; finish() and finish_new() do it if
  // nobody has.
  void sync();
  // Renames and fsyncs the folder.
  void finish();
  // The same, but a file that has the name already stays; returns whether this one got the name.
  bool finish_new();
  std::int64_t file_bytes() const;  // of the whole file, known from the start
  // The same without a file; takes what the constructor takes.
  static std::int64_t file_bytes(std::vector<TensorPlan> tensors,
                                 std::map<std::string, std::string> metadata);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tinyloop
