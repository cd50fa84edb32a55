// SPDX-License-Identifier: Apache-2.0
// A file of lines that is of use while it grows and after its writer was killed. Not a journal:
// nothing is checked, and only the operating system's crash can lose what was written.
#pragma once

#include <string>
#include <string_view>

namespace tinyloop {

// Appends to a file that was opened for that, all or nothing: if the disk is full the part that was
// written is taken back. Returns 0 or the error number.
int append_line(int descriptor, std::string_view line);

class LineLog {
 public:
  // Makes the file or empties it or, with `go_on`, drops no more than a last line without an end.
  // All throw Error(io) naming path and cause.
  LineLog(std::string path, bool go_on);
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  // Appends a line, which is in the file when this returns and not at all if it throws.
  void write(std::string_view line);
  void close();  // the last call

 private:
  void drop_last_part();
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tinyloop
