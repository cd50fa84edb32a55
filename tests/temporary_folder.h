// SPDX-License-Identifier: Apache-2.0
// A folder of its own for a test, removed at its end.
// Not for names that other processes must know beforehand.
#pragma once

#include <stdlib.h>  // mkdtemp is POSIX

#include <filesystem>
#include <stdexcept>
#include <string>

namespace tinyloop {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / "tinyloop-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tinyloop
