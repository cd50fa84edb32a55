// SPDX-License-Identifier: Apache-2.0
// Tests lib/files/record_journal: a journal cut off anywhere, or with any byte wrong, is gone on
// with to the same records; it never gives a record that was not appended. Not about processes
// that are killed: the shell cases do that.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "file_bytes.h"
#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/record_journal.h"

using namespace tinyloop;

namespace {

const RecordJournal::Settings kSettings = {
    {"--seed", "7"}, {"--stop", ""}, {"FILE", "a \"b\"\t\n\xc3\xa9"}};

JournalEntry entry(std::int64_t number) {
  // Records with blanks, of several lengths, one of them empty.
  const std::string record = number == 3 ? "" : std::string(static_cast<std::size_t>(number), 'x');
  return {number, 1000u + static_cast<std::uint64_t>(number), number % 2 == 0,
          number == 4 ? "1 2 3" : record};
}

std::string in_order(const RecordJournal& journal, std::int64_t first = 1, std::int64_t step = 1) {
  std::string text;
  journal.copy_in_order(first, step, [&](std::string_view record) { text += record; });
  return text;
}

std::string as_appended(const RecordJournal& journal) {
  std::string text;
  journal.copy(1, 1, [&](std::string_view record) { text += record; });
  return text;
}

const std::vector<std::int64_t> kOrder = {2, 3, 1, 6, 4, 5, 8, 7};
constexpr std::int64_t kRecords = 8;

// A journal with all records, in this file.
void write_journal(const std::string& path) {
  RecordJournal journal(path);
  CHECK(!journal.found());
  journal.begin(kSettings);
  for (const std::int64_t number : kOrder) journal.append(entry(number));
  CHECK(journal.records() == kRecords);
}

std::string wanted() {
  std::string text;
  for (std::int64_t number = 1; number <= kRecords; ++number) text += entry(number).record + "\n";
  return text;
}

// Goes on with the journal as a run would: what is known is as it was appended, the rest is.
std::int64_t finish(RecordJournal& journal) {
  const std::int64_t found = journal.records();
  std::int64_t known_records = 0;
  for (std::int64_t number = 1; number <= kRecords; ++number) {
    if (const auto known = journal.find(number)) {
      ++known_records;
      CHECK(known->job == entry(number).job);
      CHECK(known->error == entry(number).error);
    } else {
      journal.append(entry(number));
    }
  }
  CHECK(known_records == found);
  CHECK(journal.records() == kRecords);
  CHECK(in_order(journal) == wanted());
  return known_records;
}

}  // namespace

TEST_CASE("what was appended is there, in both orders, now and for the next run") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.journal");
  write_journal(path);
  const std::string bytes = read_file(path);
  RecordJournal journal(path);
  CHECK(journal.found());
  CHECK(journal.records() == kRecords);
  CHECK(journal.dropped_bytes() == 0);
  CHECK(journal.settings()[0] == std::pair<std::string, std::string>("--seed", "7"));
  CHECK(in_order(journal) == wanted());
  std::string appended;
  for (const std::int64_t number : kOrder) appended += entry(number).record + "\n";
  CHECK(as_appended(journal) == appended);
  journal.begin(kSettings);  // it was begun with these
  CHECK(finish(journal) == kRecords);
  CHECK(!journal.find(kRecords + 1));
  CHECK(read_file(path) == bytes);

  // Of two shards each finds its own.
  CHECK_ERROR(in_order(journal, 1, 2), data, "record");
  CHECK_ERROR(in_order(journal, 2, 1), data, "record");
  journal.remove();
  CHECK(entries_in(folder.path()) == 0);
}

TEST_CASE("a line that is there twice counts once") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  write_journal(path);
  const std::string bytes = read_file(path);
  const std::size_t last = bytes.rfind('\n', bytes.size() - 2) + 1;
  const std::size_t header = bytes.find('\n') + 1, first = bytes.find('\n', header) + 1;
  for (const std::string& again : {bytes.substr(last), bytes.substr(header, first - header)}) {
    write_file(path, bytes + again);
    RecordJournal journal(path);
    CHECK(journal.found_last() == kRecords);
    journal.begin(kSettings);
    for (std::int64_t number = 1; number <= kRecords; ++number) CHECK(journal.find(number));
    CHECK(in_order(journal) == wanted());
  }
}

TEST_CASE("what is no journal is refused as it is, unread beyond its beginning") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  write_file(path, "tinyloop-journey\n1 2 3\n");
  CHECK_ERROR(RecordJournal(path), data, "is not a journal");
  CHECK(read_file(path) == "tinyloop-journey\n1 2 3\n");
  write_file(path, "");
  std::filesystem::resize_file(path, std::uintmax_t{8} << 30);  // has no line end
  CHECK_ERROR(RecordJournal(path), data, "is not a journal");
  CHECK(std::filesystem::file_size(path) == std::uintmax_t{8} << 30);
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_ERROR(RecordJournal(path), io, "is not a regular file");
  CHECK(std::filesystem::is_fifo(path));
  CHECK_ERROR(RecordJournal("/dev/full"), io, "is not a regular file");
}

TEST_CASE("numbers with a step") {
  const TemporaryFolder folder;
  RecordJournal journal(folder.file("j"));
  journal.begin(kSettings);
  for (const std::int64_t number : {8, 2, 5}) journal.append(entry(number));
  CHECK(in_order(journal, 2, 3) == "xx\nxxxxx\nxxxxxxxx\n");
  CHECK_ERROR(in_order(journal), data, "record 1 is missing");
}

TEST_CASE("cut off at any byte it is finished to the same records") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  write_journal(path);
  const std::string bytes = read_file(path);
  const std::size_t header = bytes.find('\n') + 1;
  // A journal begun anew is fsynced, which takes its time.
  for (std::size_t length = 0; length <= bytes.size(); length += length + 7 < header ? 7 : 1) {
    write_file(path, bytes.substr(0, length));
    RecordJournal journal(path);
    CHECK(journal.found() == (length >= header));
    const auto whole =
        std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length), '\n') -
        (length >= header ? 1 : 0);
    CHECK(journal.records() == whole);
    journal.begin(kSettings);
    CHECK(finish(journal) == whole);
  }
}

TEST_CASE("with any byte wrong it gives no record that was not appended") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  write_journal(path);
  const std::string bytes = read_file(path);
  const std::size_t header = bytes.find('\n') + 1;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\x2a'}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      write_file(path, damaged);
      if (i < header) {
        // Never a journal begun with other settings; the file is left alone.
        CHECK_ERROR(RecordJournal(path), data, "is not a journal");
        CHECK(read_file(path) == damaged);
        continue;
      }
      RecordJournal journal(path);
      CHECK(journal.records() < kRecords);
      CHECK(journal.dropped_bytes() > 0);
      finish(journal);
    }
  }
}

TEST_CASE("a journal of other settings is refused by name, another's file is left alone") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  write_journal(path);
  RecordJournal journal(path);
  RecordJournal::Settings other = kSettings;
  other[0].second = "8";
  CHECK_ERROR(journal.begin(other), usage, "--seed was '7' when the run started and is '8' now");
  other = kSettings;
  other.emplace_back("--new", "x");
  CHECK_ERROR(journal.begin(other), usage, "--new was '' when the run started and is 'x' now");

  for (const std::string text :
       {"notes", "notes\n", "tinyloop-journal 2 0123456789abcdef x=\"1\"\n",
        "tinyloop-journal 1 \n", "\n"}) {
    const std::string notes = folder.file("notes");
    write_file(notes, text);
    CHECK_ERROR(RecordJournal(notes), data, "is not a journal");
    CHECK(read_file(notes) == text);
  }
}

TEST_CASE("one writer at a time; a removed journal is another one") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  {
    RecordJournal first(path);
    CHECK_ERROR(RecordJournal(path), io, "another process");
    first.begin(kSettings);
    CHECK_ERROR(RecordJournal(path), io, "another process");
    first.remove();
    RecordJournal second(path);
    CHECK(!second.found());
  }
  CHECK(RecordJournal(path).records() == 0);
  CHECK_ERROR(RecordJournal(folder.file("nowhere/j")), io, "No such file");
}

TEST_CASE("without room for a record there is none, and then there is") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  RecordJournal journal(path);
  journal.begin(kSettings);
  journal.append(entry(1));
  const std::string before = read_file(path);
  JournalEntry large = entry(2);
  large.record = std::string(1000, 'y');
  {
    const FileSizeLimit limit(before.size() + 500);
    CHECK_ERROR(journal.append(large), io, "File too large");
  }
  CHECK(read_file(path) == before);
  journal.append(large);
  CHECK(in_order(journal) == "x\n" + large.record + "\n");
}

TEST_CASE("many records out of order within a window, over several runs") {
  const TemporaryFolder folder;
  const std::string path = folder.file("j");
  std::mt19937 random(6);
  std::vector<std::int64_t> order(2000);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i) + 1;
  for (std::size_t i = 0; i + 50 <= order.size(); i += 25) {
    std::shuffle(order.begin() + static_cast<std::ptrdiff_t>(i),
                 order.begin() + static_cast<std::ptrdiff_t>(i) + 50, random);
  }
  std::string text;
  for (std::int64_t number = 1; number <= 2000; ++number) {
    text += std::string(static_cast<std::size_t>(number % 7), 'x') + "\n";
  }
  const auto record = [](std::int64_t number) {
    return JournalEntry{number, static_cast<std::uint64_t>(number) * 3, false,
                        std::string(static_cast<std::size_t>(number % 7), 'x')};
  };
  std::int64_t before = 0;
  for (std::int64_t runs = 0; before < 2000; ++runs) {
    REQUIRE(runs < 100);
    RecordJournal journal(path);
    journal.begin(kSettings);
    CHECK(journal.records() == before);
    std::vector<bool> known(2001);
    for (std::int64_t number = 1; number <= 2000; ++number) {
      const auto found = journal.find(number);
      known[static_cast<std::size_t>(number)] = found.has_value();
      if (found) CHECK(found->job == static_cast<std::uint64_t>(number) * 3);
    }
    std::int64_t some = 150;
    for (const std::int64_t number : order) {
      if (known[static_cast<std::size_t>(number)]) continue;
      if (some-- == 0) break;
      journal.append(record(number));
    }
    before = journal.records();
    if (before == 2000) CHECK(in_order(journal) == text);
  }
}
