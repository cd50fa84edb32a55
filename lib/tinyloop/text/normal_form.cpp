// SPDX-License-Identifier: Apache-2.0
// Normalisation forms over utf8proc, which stays in this file. Its own reordering of marks takes
// quadratic time, so that is done here.
#include "tinyloop/text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

// Every character below is the same in both composed (U+0300 is the first mark) or all forms.
constexpr unsigned char kLeadOfMarks = 0xcc, kFirstNonAscii = 0x80;

int marks_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return marks_class(code) != 0; };
  for (auto at = codes.begin(); at != codes.end();) {
    at = std::find_if(at, codes.end(), is_mark);
    const auto end = std::find_if_not(at, codes.end(), is_mark);
    if (end - at > 1) {
      std::stable_sort(at, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
        return marks_class(a) < marks_class(b);
      });
    }
    at = end;
  }
}

}  // namespace

std::string normalise(std::string_view text, NormalForm form) {
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const unsigned char same_below = form == NormalForm::nfc ? kLeadOfMarks : kFirstNonAscii;
  if (std::all_of(text.begin(), text.end(),
                  [&](char c) { return static_cast<unsigned char>(c) < same_below; })) {
    return std::string(text);
  }
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = first_utf8_char(text);
    text.remove_prefix(next.bytes);
    std::array<utf8proc_int32_t, 32> parts{};
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.value), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
      throw Error(ErrorKind::data, "normalisation of U+{:04X}: {}",
                  static_cast<std::uint32_t>(next.value), utf8proc_errmsg(count));
    }
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  order_marks(codes);
  if (composed) {
    codes.resize(static_cast<std::size_t>(utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options)));
  }
  std::string out;
  out.reserve(codes.size());
  for (const utf8proc_int32_t code : codes) append_utf8(out, static_cast<char32_t>(code));
  return out;
}

}  // namespace tinyloop
