// SPDX-License-Identifier: Apache-2.0
// Fuzz target for lib/files/token_lines: any bytes in any format give lines within the limits or
// messages, and text read in blocks gives the same as each line parsed by itself. Not about files
// that cannot be opened.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_require.h"
#include "tinyloop/files/token_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace tinyloop;

void check_line(const TokenLine& line, TokenLimits limits) {
  if (!line.error.empty()) {
    require(line.ids.empty(), "a wrong line has no ids");
    require(line.error.size() < 1000, "messages are short");
    for (const char c : line.error) require(c >= 0x20 && c < 0x7f, "messages are printable");
  }
  require(limits.longest == 0 || static_cast<std::int64_t>(line.ids.size()) <= limits.longest,
          "no more ids than allowed");
  for (const TokenId id : line.ids) {
    require(id >= 0 && id < limits.vocab, "ids are below the vocabulary");
  }
  const TokenLine again = parse_text_line(format_ids(line.ids), "again", 1, limits);
  require(again.error.empty() && again.ids == line.ids, "ids written as text are read back");
}

}  // namespace

// The first byte chooses format and limits, the rest is the file.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto format = static_cast<TokenFormat>(data[0] % 5);
  const TokenLimits limits{.vocab = (data[0] & 0x40) != 0 ? 100000 : 64,
                           .longest = (data[0] & 0x80) != 0 ? 0 : 16,
                           .job_keys = (data[0] & 0x20) != 0};
  const std::string_view content(reinterpret_cast<const char*>(data) + 1, size - 1);

  const int memory = ::memfd_create("input", MFD_CLOEXEC);
  require(memory >= 0 && ::write(memory, content.data(), content.size()) ==
                             static_cast<ssize_t>(content.size()),
          "the input fits in memory");
  const std::string path = "/proc/self/fd/" + std::to_string(memory);
  std::vector<TokenLine> lines;
  {
    TokenReader reader(path, format, limits);
    while (std::optional<TokenLine> line = reader.next()) {
      check_line(*line, limits);
      lines.push_back(std::move(*line));
    }
  }
  ::close(memory);

  if (format != TokenFormat::text && format != TokenFormat::jsonl) return 0;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < content.size(); ++count) {
    const std::size_t end = content.find('\n', begin);
    const std::string_view text =
        content.substr(begin, end == std::string_view::npos ? end : end - begin);
    const auto number = static_cast<std::int64_t>(count) + 1;
    const TokenLine alone = format == TokenFormat::text
                                ? parse_text_line(text, path, number, limits)
                                : parse_json_line(text, path, number, limits);
    require(count < lines.size(), "as many lines as line ends");
    require(alone.ids == lines[count].ids && alone.error == lines[count].error &&
                alone.number == lines[count].number && alone.id_json == lines[count].id_json &&
                alone.max_tokens == lines[count].max_tokens && alone.seed == lines[count].seed &&
                alone.stop == lines[count].stop && alone.priority == lines[count].priority &&
                alone.group == lines[count].group,
            "a line alone and in its file are the same");
    begin = end == std::string_view::npos ? content.size() : end + 1;
  }
  require(count == lines.size(), "as many lines as line ends");
  return 0;
}
