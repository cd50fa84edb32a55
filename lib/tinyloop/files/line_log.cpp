// SPDX-License-Identifier: Apache-2.0
// Lines are written with write(2) and appended, so that processes may share a file.
#include "tinyloop/files/line_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tinyloop/error.h"

namespace tinyloop {

int append_line(int descriptor, std::string_view line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? ENOSPC : errno;
      const off_t part = static_cast<off_t>(line.size() - rest.size());
      if (part == 0) return error;
      // If this fails, whoever reads finds a line without an end.
      [[maybe_unused]] const int ignored =
          ::ftruncate(descriptor, ::lseek(descriptor, 0, SEEK_CUR) - part);
      return error;
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

LineLog::LineLog(std::string path, bool go_on) : path_(std::move(path)) {
  const int how = go_on ? O_RDWR : O_WRONLY | O_TRUNC;
  descriptor_ = ::open(path_.c_str(), how | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
  if (!go_on) return;
  try {
    drop_last_part();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

LineLog::~LineLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// What a killed process or a full disk left of a line.
void LineLog::drop_last_part() {
  const off_t size = ::lseek(descriptor_, 0, SEEK_END);
  if (size < 0) fail(errno);
  std::array<char, 4096> block;
  off_t end = size;
  while (end > 0) {
    const auto count = static_cast<std::size_t>(std::min<off_t>(end, block.size()));
    const off_t begin = end - static_cast<off_t>(count);
    const ssize_t got = ::pread(descriptor_, block.data(), count, begin);
    if (got != static_cast<ssize_t>(count)) fail(got < 0 ? errno : EIO);
    const std::size_t last = std::string_view(block.data(), count).rfind('\n');
    if (last != std::string_view::npos) {
      end = begin + static_cast<off_t>(last) + 1;
      break;
    }
    end = begin;
  }
  if (end != size && ::ftruncate(descriptor_, end) != 0) fail(errno);
}

void LineLog::write(std::string_view line) {
  if (const int error = append_line(descriptor_, line)) fail(error);
}

void LineLog::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
}

void LineLog::fail(int error) const {
  throw Error(ErrorKind::io, "{}: {}", path_, std::generic_category().message(error));
}

}  // namespace tinyloop
