// SPDX-License-Identifier: Apache-2.0
// A file of lines that is usable while it grows and after its writer was killed. Not a journal:
// nothing is checked, and only a crash of the operating system can lose written lines.
#pragma once

#include <string>
#include <string_view>

namespace tinyloop {

// Appends to a file opened for appending, all or nothing: if the disk is full, the partial write
// is undone. Returns 0 or the error number.
int append_line(int descriptor, std::string_view line);

class LineLog {
 public:
  // Creates or empties the file or, with `go_on`, drops only an incomplete last line.
  // All throw Error(io) naming path and cause.
  LineLog(std::string path, bool go_on);
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  // Appends a line, which is in the file once this returns, and not at all if it throws.
  void write(std::string_view line);
  void close();  // the last call

 private:
  void drop_last_part();
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tinyloop
