// SPDX-License-Identifier: Apache-2.0
// Tests lib/files/token_files: numbers through several files, shares, files without a line.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "file_bytes.h"
#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/token_files.h"

using namespace tinyloop;

namespace {

constexpr TokenLimits kLimits{.vocab = 64, .longest = 8};

// "3 one:3 7 8" for each line: number through all files, file and line in it, ids or error.
std::vector<std::string> read(TokenFiles& files, const std::string& folder) {
  std::vector<std::string> lines;
  while (const auto line = files.next()) {
    lines.push_back(std::to_string(files.number()) + " " + line->file.substr(folder.size() + 1) +
                    ":" + std::to_string(line->number) + " " +
                    (line->error.empty() ? format_ids(line->ids) : "error"));
  }
  CHECK(!files.next());
  return lines;
}

}  // namespace

TEST_CASE("lines are numbered through, and each share has its own") {
  const TemporaryFolder folder;
  write_file(folder.file("one"), "1\n2\nx\n");
  write_file(folder.file("none"), "");
  write_file(folder.file("two"), "\n5");
  const std::vector<std::string> paths = {folder.file("one"), folder.file("none"),
                                          folder.file("two"), folder.file("one")};
  const std::vector<std::string> all = {"1 one:1 1", "2 one:2 2", "3 one:3 error", "4 two:1 ",
                                        "5 two:2 5", "6 one:1 1", "7 one:2 2",     "8 one:3 error"};
  TokenFiles whole(paths, TokenFormat::text, kLimits);
  CHECK(read(whole, folder.path()) == all);
  for (std::int64_t of = 1; of <= 10; ++of) {
    for (std::int64_t index = 0; index < of; ++index) {
      const LineShare share{index, of};
      TokenFiles part(paths, TokenFormat::text, kLimits, share);
      std::vector<std::string> wanted;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (static_cast<std::int64_t>(i) % of == index) wanted.push_back(all[i]);
      }
      CHECK(read(part, folder.path()) == wanted);
      CHECK(share.of_lines(static_cast<std::int64_t>(all.size())) ==
            static_cast<std::int64_t>(wanted.size()));
    }
  }
}

TEST_CASE("objects and arrays are skipped as lines and rows") {
  const TemporaryFolder folder;
  write_file(folder.file("j"), "{\"tokens\":[1]}\nnot read\n{\"tokens\":[2]}\n\n{\"tokens\":[3]}");
  TokenFiles objects({folder.file("j")}, TokenFormat::jsonl, kLimits, {0, 2});
  CHECK(read(objects, folder.path()) == std::vector<std::string>{"1 j:1 1", "3 j:3 2", "5 j:5 3"});
  write_file(folder.file("a"), bytes_of_values<std::uint16_t>({1, 2}));
  write_file(folder.file("b"), bytes_of_values<std::uint16_t>({3}));
  TokenFiles arrays({folder.file("a"), folder.file("b")}, TokenFormat::u16, kLimits, {1, 2});
  CHECK(read(arrays, folder.path()) == std::vector<std::string>{"2 b:1 3"});
}

TEST_CASE("a file that cannot be opened is told when its turn comes") {
  const TemporaryFolder folder;
  write_file(folder.file("one"), "1\n");
  TokenFiles files({folder.file("one"), folder.file("two")}, TokenFormat::text, kLimits);
  CHECK(files.next());
  CHECK_ERROR(files.next(), usage, "two");
}
