// SPDX-License-Identifier: Apache-2.0
// Regex over PCRE2, which stays in this file.
#include "tinyloop/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/utf8.h"

namespace tinyloop {

namespace {

constexpr std::size_t kFirstStack = std::size_t{32} << 10, kMaxStack = std::size_t{64} << 20;

std::string message_of(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

}  // namespace

struct Regex::State {
  std::string name;  // for messages
  Code code;
  MatchData data;
  MatchContext context;
  JitStack stack;
  bool jit = false;
};

Regex::Regex(std::string_view pattern, std::string_view where) : state_(std::make_unique<State>()) {
  const std::string translated = translate_regex(pattern, where);
  state_->name = fmt::format("{}: regular expression \"{}\"", where, excerpt(pattern));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t offset = 0;
  state_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(), PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error,
                                   &offset, context.get()));
  if (!state_->code) throw Error(ErrorKind::data, "{}: {}", state_->name, message_of(error));
  // Where the processor or the system has no place for made code the interpreter does it.
  state_->jit = pcre2_jit_compile(state_->code.get(), PCRE2_JIT_COMPLETE) == 0;
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  if (!state_->data || !state_->context) throw std::bad_alloc();
  // Long runs are no attack here: a text has one of a megabyte, and it takes its time once.
  pcre2_set_match_limit(state_->context.get(), UINT32_MAX);
  pcre2_set_depth_limit(state_->context.get(), UINT32_MAX);
  if (state_->jit) {
    state_->stack.reset(pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr));
    if (!state_->stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  }
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find_all(std::string_view text, std::vector<Match>& matches) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::size_t* found = pcre2_get_ovector_pointer(state_->data.get());
  bool any = false;
  std::size_t at = 0, last_end = 0;
  while (at <= text.size()) {
    const int status =
        state_->jit ? pcre2_jit_match(state_->code.get(), subject, text.size(), at, 0,
                                      state_->data.get(), state_->context.get())
                    : pcre2_match(state_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                  state_->data.get(), state_->context.get());
    if (status == PCRE2_ERROR_NOMATCH) return;
    if (status < 0) throw Error(ErrorKind::data, "{}: {}", state_->name, message_of(status));
    const Match match = {found[0], found[1]};
    if (match.begin == match.end && any && match.end == last_end) {
      if (at == text.size()) return;
      at += first_utf8_char(text.substr(at)).bytes;
      continue;
    }
    matches.push_back(match);
    any = true;
    at = last_end = match.end;
  }
}

}  // namespace tinyloop
