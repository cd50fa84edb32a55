// SPDX-License-Identifier: Apache-2.0
// The one exception type of tinyloop: what went wrong, where, and what kind of error it is.
// Not a logging facility: the library never prints.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tinyloop {

enum class ErrorKind {
  usage,   // wrong option, value or input text; tools exit with 2
  data,    // a file's content is damaged or does not match; tools exit with 1
  io,      // the operating system refused: open, read, write, map; tools exit with 1
  device,  // the device or the computation failed: memory, NaN logits; tools exit with 1
};

// In messages a setting is named by its field, in backticks: `top_p`. The tools write the option
// that sets it, --top-p.
class Error : public std::runtime_error {
 public:
  // Error(ErrorKind::usage, "{}:{}: id {} is not below {}", file, line, id, vocab)
  template <typename... Args>
  Error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)), kind_(kind) {}

  ErrorKind kind() const { return kind_; }

  // The errno of an io error, for callers that act on it; 0: none.
  int system_error() const { return system_error_; }
  Error&& because_of(int system_error) && {
    system_error_ = system_error;
    return std::move(*this);
  }

 private:
  ErrorKind kind_;
  int system_error_ = 0;
};

}  // namespace tinyloop
