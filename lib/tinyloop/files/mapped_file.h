// SPDX-License-Identifier: Apache-2.0
// A file mapped for reading. Knows bytes, not what they mean.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tinyloop {

class MappedFile {
 public:
  // Throws Error(io) or Error(data) naming the path: cannot be opened, is no regular file, is
  // empty.
  static MappedFile open(const std::string& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Tells the kernel that these pages will not be needed again soon (keeps a converter's memory
  // small).
  void forget(std::span<const std::byte> bytes) const;

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes);

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace tinyloop
