// SPDX-License-Identifier: Apache-2.0
// AtomicFile: a file appears complete or not at all.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/temporary_file.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

TEST_CASE("a committed file holds what was written, in order and patched") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out");
  const std::string large(3'000'000, 'x');  // beyond the buffer
  AtomicFile file(path);
  file.write("head");
  file.write(large);
  file.write("tail");
  CHECK(file.size() == 3'000'008);
  file.write_at(0, "HE");
  file.write_at(3'000'006, "il");
  file.write("!");
  file.commit();
  CHECK(read_file(path) == "HEad" + large + "tail!");
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("nothing is seen before commit and nothing stays without it") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out");
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write(std::string(2'000'000, 'x'));
    CHECK(read_file(path) == "old");
  }
  CHECK(read_file(path) == "old");
  CHECK(entries_in(folder.path()) == 1);
  AtomicFile file(path);
  file.write("new");
  file.commit();
  CHECK(read_file(path) == "new");
}

TEST_CASE("a writer that is killed leaves nothing where files can be without a name") {
  const TemporaryFolder folder;
  const int probe = ::open(folder.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (probe < 0) {
    MESSAGE("no such files here: not checked");
    return;
  }
  ::close(probe);
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(folder.file("out"));
    file.write(std::string(2'000'000, 'x'));
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(entries_in(folder.path()) == 0);
}

TEST_CASE("two files of one name do not disturb each other; the last commit wins") {
  const TemporaryFolder folder;
  AtomicFile first(folder.file("out")), second(folder.file("out"));
  first.write("first");
  second.write("second");
  second.commit();
  CHECK(read_file(folder.file("out")) == "second");
  first.commit();
  CHECK(read_file(folder.file("out")) == "first");
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("a temporary name that is taken is left alone") {
  const TemporaryFolder folder;
  // Whatever number comes next, one of these has it.
  std::vector<std::string> taken;
  for (int n = 0; n < 64; ++n) {
    taken.push_back(folder.file(".tmp." + std::to_string(getpid()) + "." + std::to_string(n)));
    write_file(taken.back(), "not ours");
  }
  AtomicFile file(folder.file("out"));
  file.write("ours");
  file.commit();
  CHECK(read_file(folder.file("out")) == "ours");
  for (const std::string& path : taken) CHECK(read_file(path) == "not ours");
}

TEST_CASE("a symbolic link to what is not there keeps being one") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("far"));
  std::filesystem::create_symlink("far/target", folder.file("first"));
  std::filesystem::create_symlink(folder.file("first"), folder.file("second"));
  CHECK(follow_links(folder.file("second")) == folder.file("far/target"));
  AtomicFile file(folder.file("second"));
  file.write("new");
  file.commit();
  CHECK(std::filesystem::is_symlink(folder.file("first")));
  CHECK(std::filesystem::is_symlink(folder.file("second")));
  CHECK(read_file(folder.file("far/target")) == "new");
  std::filesystem::create_symlink("circle", folder.file("circle"));
  CHECK(follow_links(folder.file("circle")) == folder.file("circle"));
}

TEST_CASE("a symbolic link keeps being one") {
  const TemporaryFolder folder;
  write_file(folder.file("target"), "old");
  std::filesystem::create_symlink("target", folder.file("link"));
  AtomicFile file(folder.file("link"));
  file.write("new");
  file.commit();
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  CHECK(read_file(folder.file("target")) == "new");
}

TEST_CASE("what cannot be replaced is refused before anything is written") {
  const TemporaryFolder folder;
  CHECK_ERROR(AtomicFile(""), io, "empty");
  CHECK_ERROR(AtomicFile(folder.path()), io, "Is a directory");
  CHECK_ERROR(AtomicFile(folder.file("no/such/folder")), io, "no/such/folder: No such file");
  CHECK_ERROR(AtomicFile("/dev/null"), io, "/dev/null: is not a regular file");
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_ERROR(AtomicFile(folder.file("pipe")), io, "is not a regular file");
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("a full disk is reported by name and leaves nothing") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out");
  {
    const FileSizeLimit limit(100'000);
    AtomicFile file(path);
    file.write(std::string(90'000, 'x'));
    file.write(std::string(20'000, 'x'));
    CHECK_ERROR(file.commit(), io, path + ": File too large");
    AtomicFile large(path);
    CHECK_ERROR(large.write(std::string(3'000'000, 'x')), io, path + ": File too large");
  }
  CHECK(entries_in(folder.path()) == 0);
}

}  // namespace
}  // namespace tinyloop
