// SPDX-License-Identifier: Apache-2.0
// The records of a long run, kept on disk as they finish, so that another run can finish a killed
// one. Knows numbers, hashes and lines of text, not what a record means.
//
// A text file. First line: "tinyloop-journal 1", a checksum, and the run's settings as NAME="VALUE"
// separated by tabs. Then a line for each record in the order they finished: number, hash of the
// job, "ok" or "error", checksum of all that and the record, the record. A line that does not match
// its checksum ends the journal: a killed run, a full disk or a crash of the machine leaves such a
// line only at the end, and its record is computed again.
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
  std::uint64_t job = 0;  // a hash of all that the record depends on, except the settings
  bool error = false;
  std::string record;  // without line end
};

class RecordJournal {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;

  // Opens or creates the file, locks it for this process and drops what does not match its
  // checksum. Throws Error(io) if another process uses it, or it is unreadable or not a regular
  // file, Error(data) if it is not a journal; the file is then unchanged.
  explicit RecordJournal(std::string path);
  ~RecordJournal();
  RecordJournal(const RecordJournal&) = delete;
  RecordJournal& operator=(const RecordJournal&) = delete;

  const std::string& path() const { return path_; }

  // What was found. Values are as json_string() writes them, without the quotes.
  bool found() const { return !settings_.empty(); }
  const Settings& settings() const { return settings_; }
  std::int64_t found_last() const { return found_last_; }  // the highest number; 0: none
  std::int64_t dropped_bytes() const { return dropped_bytes_; }
  std::int64_t records() const { return records_; }  // there now

  // Begins a new journal, or throws Error(usage) naming the first setting that differs from those
  // found. There is at least one setting.
  void begin(const Settings& settings);

  // Hash, kind and place of record `number`, if it was found. The numbers asked for must
  // ascend, until rewind().
  struct Known {
    std::uint64_t job = 0;
    bool error = false;
    std::int64_t offset = 0, bytes = 0;
  };
  std::optional<Known> find(std::int64_t number);
  void rewind();
  std::string record(const Known& known) const;  // without line end

  // Writes at once and fsyncs every few seconds. If the disk is full, undoes the line and throws
  // Error(io).
  void append(const JournalEntry& entry);
  void sync();

  // Pass on the records numbered first, first + step, ... with their line ends, each once: in the
  // order they were appended, or in this order. Memory does not depend on their number, only on
  // how far they are out of order. The second throws Error(data) if one is missing between
  // others.
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

  std::ifstream find_file_;  // what was found, read again for find()
  std::int64_t find_offset_ = 0, find_end_ = 0;
  std::map<std::int64_t, Known> ahead_;  // read already, not yet asked for
  std::chrono::steady_clock::time_point synced_;
};

}  // namespace tinyloop
