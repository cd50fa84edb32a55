// SPDX-License-Identifier: Apache-2.0
// Whole files as texts, safetensors files put together by hand, and what a folder holds.
// Not the readers and writers under test: nothing of lib is used here.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The bytes of values in memory, which on the machines of the tests is little-endian.
template <typename T>
std::string bytes_of_values(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::string safetensors(std::string_view header, std::string_view data) {
  const std::vector<std::uint64_t> length = {header.size()};
  return bytes_of_values(length) + std::string(header) + std::string(data);
}

inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::size_t entries_in(const std::string& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// While it lives no file of this process can grow beyond `bytes`: a full disk that needs no disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

}  // namespace tinyloop

// Runs an expression that must throw Error of a kind with a text in its message.
#define CHECK_ERROR(expression, error_kind, text)                                              \
  do {                                                                                         \
    std::string message_ = "nothing was thrown";                                               \
    try {                                                                                      \
      static_cast<void>(expression);                                                           \
    } catch (const tinyloop::Error& error_) {                                                  \
      message_ = error_.what();                                                                \
      CHECK_MESSAGE(error_.kind() == tinyloop::ErrorKind::error_kind, message_);               \
    }                                                                                          \
    CHECK_MESSAGE(message_.find(text) != std::string::npos, message_ << " has no " << (text)); \
  } while (false)
