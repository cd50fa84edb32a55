// SPDX-License-Identifier: Apache-2.0
// Reads blocks with read(2), whose answer is what has arrived; stdio would wait until its buffer is
// full. Not a parser.
#include "tinyloop/files/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tinyloop/error.h"

namespace tinyloop {
namespace {

constexpr std::size_t kBlockBytes = 65536;

}  // namespace

ByteSource::ByteSource(std::string path) : name_(std::move(path)), block_(kBlockBytes) {
  if (name_ == "-") {
    name_ = "standard input";
    descriptor_ = STDIN_FILENO;
  } else {
    descriptor_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw Error(ErrorKind::usage, "{}: {}", name_, std::strerror(errno));
    owned_ = true;
  }
  struct stat status;
  if (::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
    if (owned_) ::close(descriptor_);
    throw Error(ErrorKind::usage, "{}: {}", name_, std::strerror(EISDIR));
  }
}

ByteSource::~ByteSource() {
  if (owned_) ::close(descriptor_);
}

std::string_view ByteSource::peek() {
  while (begin_ == end_ && !ended_) {
    const ssize_t count = ::read(descriptor_, block_.data(), block_.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      throw Error(ErrorKind::io, "{}: {}", name_, std::strerror(errno));
    }
    ended_ = count == 0;  // remembered: a terminal would deliver more after its end
    begin_ = 0;
    end_ = static_cast<std::size_t>(count);
  }
  return {block_.data() + begin_, end_ - begin_};
}

std::size_t ByteSource::read(void* to, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const std::string_view bytes = peek();
    if (bytes.empty()) break;
    const std::size_t step = std::min(bytes.size(), count - done);
    std::memcpy(static_cast<char*>(to) + done, bytes.data(), step);
    consume(step);
    done += step;
  }
  return done;
}

}  // namespace tinyloop
