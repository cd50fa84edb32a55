// SPDX-License-Identifier: Apache-2.0
// Normalisation forms over utf8proc, which stays in this file. Its own reordering of marks takes
// quadratic time, so that is done here.
#include "tinyloop/text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

// Every character below is the same in both composed (U+0300 is the first mark) or all forms.
constexpr unsigned char kLeadOfMarks = 0xcc, kFirstNonAscii = 0x80;

struct CodeRange {
  utf8proc_int32_t first = 0, last = 0;
};
// What came after Unicode 9 and is decomposed or moved since: Hugging Face's tokenizers go by the
// tables of that version, in which these are characters of which nothing is known.
constexpr CodeRange kUnknown[] = {
    {0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},
    {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x105c9, 0x105c9}, {0x105e4, 0x105e4},
    {0x10781, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11383, 0x11383},
    {0x11385, 0x11385}, {0x1138e, 0x1138e}, {0x11391, 0x11391}, {0x113c5, 0x113c5},
    {0x113c7, 0x113c8}, {0x113ce, 0x113d0}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
    {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
    {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16121, 0x16128},
    {0x1612f, 0x1612f}, {0x16d68, 0x16d6a}, {0x16ff0, 0x16ff1}, {0x1ccd6, 0x1ccf9},
    {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}, {0x1f16c, 0x1f16c},
    {0x1fbf0, 0x1fbf9},
};

bool is_unknown(utf8proc_int32_t code) {
  const auto* const behind =
      std::upper_bound(std::begin(kUnknown), std::end(kUnknown), code,
                       [](utf8proc_int32_t c, const CodeRange& range) { return c < range.first; });
  return behind != std::begin(kUnknown) && code <= std::prev(behind)->last;
}

int marks_class(utf8proc_int32_t code) {
  const int known = utf8proc_get_property(code)->combining_class;
  return known == 0 || is_unknown(code) ? 0 : known;
}

using Codes = std::vector<utf8proc_int32_t>;

void append_decomposed(Codes& codes, utf8proc_int32_t code, utf8proc_option_t options) {
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      code, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    throw Error(ErrorKind::data, "normalisation of U+{:04X}: {}", code, utf8proc_errmsg(count));
  }
  codes.insert(codes.end(), parts.begin(), parts.begin() + count);
}

// Between unknown characters, which nothing is composed with; what is composed to one of them is
// taken apart again.
Codes composed_of(Codes codes, utf8proc_option_t options) {
  Codes out;
  for (auto at = codes.begin(); at != codes.end();) {
    if (is_unknown(*at)) {
      out.push_back(*at++);
      continue;
    }
    const auto end = std::find_if(at, codes.end(), is_unknown);
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(&*at, end - at, options);
    for (auto code = at; code != at + count; ++code) {
      if (is_unknown(*code)) {
        append_decomposed(out, *code,
                          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
      } else {
        out.push_back(*code);
      }
    }
    at = end;
  }
  return out;
}

void order_marks(Codes& codes) {
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
  Codes codes;
  codes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = first_utf8_char(text);
    text.remove_prefix(next.bytes);
    const auto code = static_cast<utf8proc_int32_t>(next.value);
    if (is_unknown(code)) {
      codes.push_back(code);
    } else {
      append_decomposed(codes, code, options);
    }
  }
  order_marks(codes);
  if (composed) codes = composed_of(std::move(codes), options);
  std::string out;
  out.reserve(codes.size());
  for (const utf8proc_int32_t code : codes) append_utf8(out, static_cast<char32_t>(code));
  return out;
}

}  // namespace tinyloop
