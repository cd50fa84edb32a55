// SPDX-License-Identifier: Apache-2.0
// AtomicFile: no name or a temporary one, write, fsync, rename, fsync of the folder.
// Not a general stream: it appends, and patches what it appended.
#include "tinyloop/files/temporary_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tinyloop/error.h"

namespace tinyloop {

namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string follow_links(const std::string& path) {
  constexpr int kMax = 40;  // as Linux
  std::error_code none;
  std::filesystem::path end = path;
  for (int i = 0; i < kMax; ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(end, none);
    if (none) return end.string();
    end = end.parent_path() / target;
  }
  return path;
}

AtomicFile::AtomicFile(std::string path, bool shared)
    : path_(std::move(path)), final_(shared ? path_ : follow_links(path_)) {
  if (path_.empty()) throw Error(ErrorKind::io, "the name of the output file is empty");
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail(EISDIR);
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorKind::io, "{}: is not a regular file, so it cannot be replaced", path_);
    }
    // The folder's permission would do, but a file that is read only is so for a reason.
    if (!shared && ::faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) != 0) fail(errno);
  }
  if (!create_nameless()) create_temporary();
  buffer_.reserve(kBuffer);
}

// A file without a name leaves nothing behind when its writer is killed.
bool AtomicFile::create_nameless() {
  // The way to give it a name later.
  if (::access("/proc/self/fd", X_OK) != 0) return false;
  descriptor_ = ::open(folder_of(final_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  return descriptor_ >= 0;
}

int AtomicFile::link_to(const std::string& name) const {
  const std::string own = fmt::format("/proc/self/fd/{}", descriptor_);
  const int result = temporary_.empty() ? ::linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name.c_str(),
                                                   AT_SYMLINK_FOLLOW)
                                        : ::link(temporary_.c_str(), name.c_str());
  return result == 0 ? 0 : errno;
}

std::string AtomicFile::next_temporary_name() const {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}/.tmp.{}.{}", folder_of(final_), ::getpid(), counter++);
}

void AtomicFile::take_temporary_name() {
  ::flock(descriptor_, LOCK_EX);
  for (int attempt = 0; temporary_.empty(); ++attempt) {
    const std::string name = next_temporary_name();
    const int error = link_to(name);
    if (error == 0) {
      temporary_ = name;
    } else if (error != EEXIST || attempt == 1000) {
      fail(error);
    }
  }
}

void AtomicFile::create_temporary() {
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = next_temporary_name();
    descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    // The name may be left from a killed process that had our number, or belong to one on another
    // machine.
    if (descriptor_ < 0 && (errno != EEXIST || attempt == 1000)) {
      const int error = errno;
      temporary_.clear();
      fail(error);
    }
    // Where locks are not supported the file is as good, only a sweeper has to go by its age.
    struct stat status {};
    if (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX) == 0 &&
        ::fstat(descriptor_, &status) == 0 && status.st_nlink == 0) {
      ::close(std::exchange(descriptor_, -1));  // swept before the lock was ours
    }
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBuffer) flush();
  if (bytes.size() >= kBuffer) {
    write_all(bytes.data(), bytes.size(), size_);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  size_ += static_cast<std::int64_t>(bytes.size());
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::write_at(std::int64_t offset, std::string_view text) {
  assert(offset >= 0 && offset + static_cast<std::int64_t>(text.size()) <= size_);
  flush();
  write_all(std::as_bytes(std::span(text.data(), text.size())).data(), text.size(), offset);
}

void AtomicFile::sync() {
  flush();
  if (!synced_ && ::fsync(descriptor_) != 0) fail(errno);
  synced_ = true;
}

// Some file systems report a failed write only at close; a duplicate keeps the lock meanwhile.
int AtomicFile::close_but_keep_lock() {
  const int lock = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    const int error = errno;
    ::close(lock);
    fail(error);
  }
  return lock;
}

void AtomicFile::sync_folder() const {
  const int folder = ::open(folder_of(final_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // the file is complete and visible, that will do
  ::fsync(folder);
  ::close(folder);
}

void AtomicFile::take_mode_of_replaced() const {
  struct stat status {};
  if (::lstat(final_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  // Only root may give a file away; a member of the group may keep that. What the mode grants to
  // an owner or a group is not for others.
  if (::fchown(descriptor_, status.st_uid, status.st_gid) != 0) {
    struct stat own {};
    if (::fstat(descriptor_, &own) != 0) fail(errno);
    if (own.st_uid != status.st_uid) status.st_mode &= static_cast<mode_t>(~S_ISUID);
    if (own.st_gid != status.st_gid &&
        ::fchown(descriptor_, static_cast<uid_t>(-1), status.st_gid) != 0) {
      status.st_mode &= static_cast<mode_t>(~(S_ISGID | S_IRWXG));
    }
  }
  if (::fchmod(descriptor_, status.st_mode & 07777) != 0) fail(errno);
}

void AtomicFile::commit() {
  take_mode_of_replaced();
  sync();
  if (temporary_.empty()) take_temporary_name();
  const int lock = close_but_keep_lock();
  const int error = ::rename(temporary_.c_str(), final_.c_str()) == 0 ? 0 : errno;
  ::close(lock);
  if (error != 0) fail(error);
  temporary_.clear();
  sync_folder();
}

bool AtomicFile::commit_new() {
  sync();
  int error = link_to(final_);
  bool ours = error == 0;
  const bool no_links = error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK;
  if (no_links && temporary_.empty()) take_temporary_name();
  const int lock = close_but_keep_lock();
  if (no_links) {
    ours = ::rename(temporary_.c_str(), final_.c_str()) == 0;
    error = ours ? 0 : errno;
    if (ours) temporary_.clear();
  }
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(lock);
  temporary_.clear();
  if (error != 0 && error != EEXIST) fail(error);
  sync_folder();
  return ours;
}

void AtomicFile::flush() {
  const std::size_t count = buffer_.size();
  if (count == 0) return;
  write_all(buffer_.data(), count, size_ - static_cast<std::int64_t>(count));
  buffer_.clear();
}

void AtomicFile::write_all(const std::byte* bytes, std::size_t count, std::int64_t offset) {
  synced_ = false;
  while (count > 0) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes, std::min(count, std::size_t{1} << 30), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    bytes += written;
    count -= static_cast<std::size_t>(written);
    offset += written;
  }
}

void AtomicFile::fail(int error) const {
  throw Error(ErrorKind::io, "{}: {}", path_, std::generic_category().message(error))
      .because_of(error);
}

}  // namespace tinyloop
