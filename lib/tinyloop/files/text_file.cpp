// SPDX-License-Identifier: Apache-2.0
// open, fstat, read to the end.
#include "tinyloop/files/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tinyloop/error.h"

namespace tinyloop {
namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

std::string read_text_file(const std::string& path, std::int64_t max_bytes) {
  const auto fail = [&path](int error) {
    throw Error(ErrorKind::io, "{}: {}", path, std::generic_category().message(error));
  };
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) fail(errno);
  if (S_ISDIR(status.st_mode)) fail(EISDIR);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, "{}: is not a regular file", path);
  std::string text;
  char block[16384];
  for (;;) {
    const ssize_t count = ::read(file.number, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    if (count == 0) return text;
    text.append(block, static_cast<std::size_t>(count));
    if (static_cast<std::int64_t>(text.size()) > max_bytes) {
      throw Error(ErrorKind::data, "{}: is longer than {} bytes", path, max_bytes);
    }
  }
}

}  // namespace tinyloop
