// SPDX-License-Identifier: Apache-2.0
// Sequences of token ids from binary files: raw u16 and i32, and NumPy arrays of integers.
// A part of token_lines, which is what other code should use.
#pragma once

#include <cstdint>
#include <optional>

#include "tinyloop/files/byte_source.h"
#include "tinyloop/files/npy_file.h"
#include "tinyloop/files/token_line.h"

namespace tinyloop {

class TokenArrayReader {
 public:
  TokenArrayReader(TokenFormat format, TokenLimits limits) : format_(format), limits_(limits) {}

  // The next row; no value at the end. A wrong id spoils only its own row; a file that is not
  // such an array is one wrong row. In messages the row is the line and the place in it the column.
  std::optional<TokenLine> next(ByteSource& source);

 private:
  TokenLine raw_row(ByteSource& source);
  void load(ByteSource& source);
  TokenLine array_row(std::string_view where);

  TokenFormat format_;
  TokenLimits limits_;
  bool started_ = false;
  NpyArray array_;
  std::int64_t rows_ = 0, columns_ = 0, row_ = 0;
};

}  // namespace tinyloop
