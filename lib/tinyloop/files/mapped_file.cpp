// SPDX-License-Identifier: Apache-2.0
// open, fstat and mmap, and what can go wrong with each.
#include "tinyloop/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "tinyloop/error.h"

namespace tinyloop {

namespace {

// Files are opened with O_NONBLOCK so that a pipe without a writer cannot hang us.
struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

MappedFile::MappedFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile MappedFile::open(const std::string& path) {
  const auto fail = [&path](int error) {
    throw Error(ErrorKind::io, "{}: {}", path, std::generic_category().message(error));
  };
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) fail(errno);
  if (S_ISDIR(status.st_mode)) fail(EISDIR);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, "{}: is not a regular file", path);
  if (status.st_size == 0) throw Error(ErrorKind::data, "{}: is empty", path);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
  if (address == MAP_FAILED) fail(errno);
  return MappedFile(path, {static_cast<const std::byte*>(address), size});
}

void MappedFile::forget(std::span<const std::byte> bytes) const {
  // Whole pages, outwards: a neighbour's bytes are read again when asked for.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto last = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size());
  if (!bytes.empty()) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace tinyloop
