// SPDX-License-Identifier: Apache-2.0
// Reads and writes NumPy .npy files: little-endian, the element types tinyloop uses; Fortran
// order is read too.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. Not .npz, not
// pickled objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinyloop/files/temporary_file.h"

namespace tinyloop {

enum class NpyType { f32, i32, i64, u32, u16, u8 };

struct NpyArray {
  NpyType type = NpyType::f32;
  std::vector<std::int64_t> shape;
  // In C order, whatever the order in the file; size = product of shape x bytes of the type.
  std::vector<std::byte> bytes;

  std::int64_t elements() const;
  float real(std::int64_t index) const;            // of an f32 array, flat index
  std::int64_t integer(std::int64_t index) const;  // of an array of integers, flat index
};

// Parses a whole .npy file held in memory; `where` is its name in messages. Throws Error(data)
// naming the cause: not a .npy file, an unsupported element type or byte order, a header with the
// wrong size.
NpyArray parse_npy(std::span<const std::byte> file, std::string_view where);

// Reads `path`, which must be a regular file. Throws Error(io) or Error(data) naming it.
NpyArray read_npy(const std::string& path);

// Writes a float32 array row by row; the number of rows is that of the rows appended. The file
// appears at finish(), complete or not at all.
class NpyWriter {
 public:
  // row_shape: the shape without its first dimension; {} for a plain vector.
  NpyWriter(std::string path, std::vector<std::int64_t> row_shape);

  // Any number of floats; rows may be handed over in pieces.
  void append(std::span<const float> values);
  // Throws Error(io) if the disk is full; the values appended must fill whole rows.
  void finish();

 private:
  std::string header(std::int64_t rows) const;

  AtomicFile file_;
  std::vector<std::int64_t> row_shape_;
  std::int64_t row_elements_ = 1;
  std::int64_t elements_ = 0;
};

}  // namespace tinyloop
