// SPDX-License-Identifier: Apache-2.0
// Bytes of a file, pipe or terminal as they arrive: a line can be read before the next one
// exists. Not for seeking or mapping; knows nothing about what the bytes mean.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

class ByteSource {
 public:
  // "-" is standard input. Throws Error(usage) if the file cannot be opened or is a folder: the
  // user named it.
  explicit ByteSource(std::string path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // For messages: the path, or "standard input".
  const std::string& name() const { return name_; }

  // The bytes not yet consumed; waits for more only if there are none. Empty at the end. Valid
  // until the next call. Throws Error(io) if reading fails.
  std::string_view peek();
  void consume(std::size_t count) { begin_ += count; }

  // Consumes up to `count` bytes into `to`; fewer only at the end.
  std::size_t read(void* to, std::size_t count);

 private:
  std::string name_;
  int descriptor_ = 0;
  bool owned_ = false, ended_ = false;
  std::vector<char> block_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace tinyloop
