// SPDX-License-Identifier: Apache-2.0
// The records of a long run, kept on disk as they finish, so that a run that was killed can be
// finished by another one. Knows numbers, hashes and lines of text, not what a record says.
//
// A text file. First line: "tinyloop-journal 1", a checksum, and the run's settings as NAME="VALUE"
// with tabs between. Then a line for each record in the order they finished: number, hash of the
// job, "ok" or "error", checksum of all that and the record, the record. A line that does not agree
// with its checksum ends the journal: a killed run, a full disk or a crash of the machine leave
// such a line at most at the end, and what it was about is done again.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinyloop {

struct JournalEntry {
  std::int64_t number = 0;
  std::uint64_t job = 0;  // a hash of all that the record depends on but for the settings
  bool error = false;
  std::string record;  // without line end
};

class RecordJournal {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;

  // Opens the file or makes it, locks it for this process and drops what does not agree with its
  // checksum. Throws Error(io) if another process has it, it cannot be read or is no regular file,
  // Error(data) if it is no journal; it is then as it was.
  explicit RecordJournal(std::string path);
  ~RecordJournal();
  RecordJournal(const RecordJournal&) = delete;
  RecordJournal& operator=(const RecordJournal&) = delete;

  const std::string& path() const { return path_; }

  // What was there. Values are as json_string() writes them, without the quotes.
  bool found() const { return !settings_.empty(); }
  const Settings& settings() const { return settings_; }
  std::int64_t found_last() const { return found_last_; }  // the greatest number; 0: none
  std::int64_t dropped_bytes() const { return dropped_bytes_; }
  std::int64_t records() const { return records_; }  // there now

  // Begins a journal that was not there, or throws Error(usage) naming the first setting that is
  // another one than was found. There is at least one.
  void begin(const Settings& settings);

  // Of what was there: hash, kind and place of the record `number`. The numbers asked for must
  // ascend, until rewind().
  struct Known {
    std::uint64_t job = 0;
    bool error = false;
    std::int64_t offset = 0, bytes = 0;
  };
  std::optional<Known> find(std::int64_t number);
  void rewind();
  std::string record(const Known& known) const;  // without line end

  // Written at once, fsynced every few seconds. If the disk is full the line is taken back and
  // Error(io) thrown.
  void append(const JournalEntry& entry);
  void sync();

  // Hand over the records numbered first, first + step, ... with their line ends, each once: as
  // they were appended, or in this order. The memory it takes does not depend on how many there
  // are, only on how far they are out of order. Throws Error(data), in the second case, if one is
  // missing between others.
  void copy(std::int64_t first, std::int64_t step,
            const std::function<void(std::string_view)>& take) const;
  void copy_in_order(std::int64_t first, std::int64_t step,
                     const std::function<void(std::string_view)>& take) const;
  // Removes the file. The last call.
  void remove();

 private:
  struct Scanned {
    JournalEntry entry;
    std::int64_t record_offset = 0;
  };
  using Take = std::function<void(const Scanned&)>;
  void open_locked();
  void take_stock();
  void compare(const Settings& settings) const;
  bool scan(std::ifstream& file, std::int64_t& offset, Scanned& scanned) const;
  std::ifstream reader() const;
  std::string read_at(std::int64_t offset, std::int64_t bytes) const;
  void each(const Take& take) const;
  [[noreturn]] void fail_changed() const;
  [[noreturn]] void fail_unread() const;
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int descriptor_ = -1;
  Settings settings_;
  std::int64_t header_bytes_ = 0, end_ = 0;
  std::int64_t records_ = 0, found_last_ = 0, dropped_bytes_ = 0;

  std::ifstream find_file_;  // what was there, read once more for find()
  std::int64_t find_offset_ = 0, find_end_ = 0;
  std::map<std::int64_t, Known> ahead_;  // read already, not yet asked for
  std::chrono::steady_clock::time_point synced_;
};

}  // namespace tinyloop
