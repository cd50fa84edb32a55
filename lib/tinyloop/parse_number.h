// SPDX-License-Identifier: Apache-2.0
// The one way from text to a number: all of the text, nothing before or after it, and it must fit.
// Not for numbers inside of JSON, which a library reads.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace tinyloop {

// Decimal digits in `base` with an optional '-' where T is signed, or a decimal floating-point
// number; no value for anything else. Neither blanks nor '+' nor "0x".
template <std::integral T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The same into a variable, which is left alone if there is no value.
template <std::integral T>
bool parse_number(std::string_view text, T& value, int base = 10) {
  const std::optional<T> number = parse_number<T>(text, base);
  if (number) value = *number;
  return number.has_value();
}

template <std::floating_point T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tinyloop
