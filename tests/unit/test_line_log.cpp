// SPDX-License-Identifier: Apache-2.0
// Tests lib/files/line_log: a line is in the file once it is written, whole or not at all, and what
// was there stays or goes as asked. Not about processes that are killed: the shell cases do that.
#include <doctest/doctest.h>

#include <string>

#include "file_bytes.h"
#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/line_log.h"

using namespace tinyloop;

TEST_CASE("lines are there at once; a new log begins empty, a further one behind the last line") {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  write_file(path, "old\n");
  LineLog log(path, false);
  CHECK(read_file(path) == "");
  log.write("one\n");
  CHECK(read_file(path) == "one\n");
  LineLog further(path, true);
  further.write("two\n");
  log.write("three\n");  // appended, not written over
  CHECK(read_file(path) == "one\ntwo\nthree\n");
  log.close();
  LineLog made(folder.file("new"), true);
  made.write("first\n");
  CHECK(read_file(folder.file("new")) == "first\n");
}

TEST_CASE("what a killed process left of a line is dropped, however long it is") {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  for (const std::size_t part : {0, 1, 4095, 4096, 4097, 10000}) {
    for (const std::string& lines :
         {std::string(), std::string("\n"), std::string(4095, 'x') + "\n", std::string("a\nb\n")}) {
      CAPTURE(part);
      CAPTURE(lines.size());
      write_file(path, lines + std::string(part, 'y'));
      LineLog(path, true).write("next\n");
      CHECK(read_file(path) == lines + "next\n");
    }
  }
}

TEST_CASE("a line that has no room is not there in part") {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  LineLog log(path, false);
  log.write("first\n");
  {
    const FileSizeLimit limit(100);
    CHECK_THROWS_WITH_AS(log.write(std::string(200, 'x') + "\n"),
                         (path + ": File too large").c_str(), Error);
    CHECK(read_file(path) == "first\n");
    log.write("second\n");
  }
  log.write(std::string(200, 'x') + "\n");
  CHECK(read_file(path) == "first\nsecond\n" + std::string(200, 'x') + "\n");
}

TEST_CASE("a log that cannot be written says so") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(LineLog(folder.file("nowhere/log"), false), Error);
  CHECK_THROWS_AS(LineLog(folder.file("."), true), Error);
}
