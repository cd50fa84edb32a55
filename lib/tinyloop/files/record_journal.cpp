// SPDX-License-Identifier: Apache-2.0
// Appends with write(2), so that a record survives its process; fsync guards against crashes.
#include "tinyloop/files/record_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <system_error>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/line_log.h"
#include "tinyloop/parse_number.h"

namespace tinyloop {
namespace {

constexpr std::string_view kMagic = "tinyloop-journal 1 ";
constexpr std::size_t kHashDigits = 16;
constexpr std::chrono::seconds kSyncEvery{5};

std::string checksum(std::string_view text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// The next word of `text` and the blank behind it are taken off.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = text.find(' ');
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

std::string_view name_of_kind(bool error) { return error ? "error" : "ok"; }

// Of the fields in front of the checksum and the record behind it.
std::string checksum_of(const JournalEntry& entry) {
  return checksum(fmt::format("{} {:016x} {} {}", entry.number, entry.job,
                              name_of_kind(entry.error), entry.record));
}

std::string line_of(const JournalEntry& entry) {
  return fmt::format("{} {:016x} {} {} {}\n", entry.number, entry.job, name_of_kind(entry.error),
                     checksum_of(entry), entry.record);
}

bool parse_line(std::string_view line, JournalEntry& entry) {
  if (!parse_number(take_word(line), entry.number)) return false;
  const std::string_view job = take_word(line), kind = take_word(line), sum = take_word(line);
  if (job.size() != kHashDigits || !parse_number(job, entry.job, 16)) return false;
  entry.error = kind == name_of_kind(true);
  if (!entry.error && kind != name_of_kind(false)) return false;
  entry.record = line;
  return sum == checksum_of(entry);
}

std::string header_of(const RecordJournal::Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "\t", name, json_string(value));
  }
  return fmt::format("{}{} {}\n", kMagic, checksum(text), text);
}

bool parse_header(std::string_view line, RecordJournal::Settings& settings) {
  if (!line.starts_with(kMagic)) return false;
  line.remove_prefix(kMagic.size());
  const std::string_view sum = take_word(line);
  if (sum != checksum(line)) return false;
  while (!line.empty()) {
    const std::string_view setting = line.substr(0, line.find('\t'));
    const std::size_t equals = setting.find('=');
    line.remove_prefix(std::min(setting.size() + 1, line.size()));
    if (equals == std::string_view::npos || setting.size() < equals + 3) return false;
    settings.emplace_back(setting.substr(0, equals),
                          setting.substr(equals + 2, setting.size() - equals - 3));
  }
  return true;
}

void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // the file is there, that will do
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

RecordJournal::RecordJournal(std::string path)
    : path_(std::move(path)), synced_(std::chrono::steady_clock::now()) {
  try {
    open_locked();
    take_stock();
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

RecordJournal::~RecordJournal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RecordJournal::open_locked() {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor_ < 0) fail(errno);
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail(errno);
    if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, "{}: is not a regular file", path_);
    // Where locks are not supported two processes are the user's to keep apart.
    const bool held = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    const bool removed = ::fstat(descriptor_, &status) == 0 && status.st_nlink == 0;
    if (!held && !removed) return;
    ::close(std::exchange(descriptor_, -1));
    if (held) throw Error(ErrorKind::io, "{}: in use by another process", path_);
  }
}

void RecordJournal::take_stock() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(errno);
  std::ifstream file = reader();
  // Whatever else it is must not be read to its end in search of a line, nor be cut.
  std::string line(std::min(kMagic.size(), static_cast<std::size_t>(status.st_size)), '\0');
  if (!file.read(line.data(), static_cast<std::streamsize>(line.size()))) fail_unread();
  if (!kMagic.starts_with(line)) throw Error(ErrorKind::data, "{}: is not a journal", path_);
  file.seekg(0);
  const bool whole = static_cast<bool>(std::getline(file, line)) && !file.eof();
  if (file.bad()) fail_unread();
  if (whole) {
    if (!parse_header(line, settings_) || settings_.empty()) {
      throw Error(ErrorKind::data, "{}: is not a journal of this version", path_);
    }
    end_ = static_cast<std::int64_t>(line.size()) + 1;
  }
  header_bytes_ = end_;
  Scanned scanned;
  while (found() && scan(file, end_, scanned)) {
    ++records_;
    found_last_ = std::max(found_last_, scanned.entry.number);
  }
  dropped_bytes_ = status.st_size - end_;
  if (dropped_bytes_ != 0 && ::ftruncate(descriptor_, end_) != 0) fail(errno);
  find_offset_ = header_bytes_;
  find_end_ = end_;
}

std::ifstream RecordJournal::reader() const {
  std::ifstream file(path_, std::ios::binary);
  if (!file) fail(errno);
  return file;
}

// The sound line at `offset`, where `file` stands; false: there is none.
bool RecordJournal::scan(std::ifstream& file, std::int64_t& offset, Scanned& scanned) const {
  std::string line;
  if (!std::getline(file, line) || file.eof() || !parse_line(line, scanned.entry)) {
    if (file.bad()) fail_unread();
    return false;
  }
  offset += static_cast<std::int64_t>(line.size()) + 1;
  scanned.record_offset = offset - 1 - static_cast<std::int64_t>(scanned.entry.record.size());
  return true;
}

void RecordJournal::compare(const Settings& settings) const {
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const auto& [name, value] = settings[i];
    const std::string text = json_string(value), now = text.substr(1, text.size() - 2);
    const bool there = i < settings_.size() && settings_[i].first == name;
    if (there && settings_[i].second == now) continue;
    throw Error(ErrorKind::usage, "{}: {} was '{}' when the run started and is '{}' now", path_,
                name, there ? settings_[i].second : "", now);
  }
}

void RecordJournal::begin(const Settings& settings) {
  if (found()) return compare(settings);
  const std::string header = header_of(settings);
  if (const int error = append_line(descriptor_, header)) fail(error);
  header_bytes_ = end_ = find_offset_ = find_end_ = static_cast<std::int64_t>(header.size());
  sync();
  sync_folder_of(path_);
}

std::optional<RecordJournal::Known> RecordJournal::find(std::int64_t number) {
  ahead_.erase(ahead_.begin(), ahead_.lower_bound(number));
  if (find_offset_ < find_end_ && !find_file_.is_open()) {
    find_file_ = reader();
    find_file_.seekg(header_bytes_);
  }
  // Records are at most so far out of order as jobs were in sight at once, and so is `ahead_`.
  while (!ahead_.contains(number) && find_offset_ < find_end_) {
    Scanned scanned;
    if (!scan(find_file_, find_offset_, scanned)) {
      fail_changed();
    }
    if (scanned.entry.number < number) continue;
    ahead_.insert({scanned.entry.number,
                   {scanned.entry.job, scanned.entry.error, scanned.record_offset,
                    static_cast<std::int64_t>(scanned.entry.record.size())}});
  }
  const auto known = ahead_.find(number);
  if (known == ahead_.end()) return std::nullopt;
  return known->second;
}

void RecordJournal::rewind() {
  find_file_.close();
  find_file_.clear();
  find_offset_ = header_bytes_;
  ahead_.clear();
}

std::string RecordJournal::record(const Known& known) const {
  return read_at(known.offset, known.bytes);
}

void RecordJournal::append(const JournalEntry& entry) {
  const std::string line = line_of(entry);
  if (const int error = append_line(descriptor_, line)) fail(error);
  end_ += static_cast<std::int64_t>(line.size());
  ++records_;
  if (std::chrono::steady_clock::now() - synced_ >= kSyncEvery) sync();
}

void RecordJournal::sync() {
  if (::fsync(descriptor_) != 0) fail(errno);
  synced_ = std::chrono::steady_clock::now();
}

std::string RecordJournal::read_at(std::int64_t offset, std::int64_t bytes) const {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::pread(descriptor_, text.data() + done, text.size() - done,
                                  offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    if (count == 0) fail_changed();
    done += static_cast<std::size_t>(count);
  }
  return text;
}

void RecordJournal::each(const Take& take) const {
  std::ifstream file = reader();
  file.seekg(header_bytes_);
  Scanned scanned;
  for (std::int64_t offset = header_bytes_; offset < end_;) {
    if (!scan(file, offset, scanned)) fail_changed();
    take(scanned);
  }
}

void RecordJournal::copy(std::int64_t first, std::int64_t step,
                         const std::function<void(std::string_view)>& take) const {
  // A line that somebody doubled is one record.
  std::int64_t next = first;
  std::set<std::int64_t> seen;  // from `next` on
  each([&](const Scanned& scanned) {
    const std::int64_t number = scanned.entry.number;
    if (number < next || !seen.insert(number).second) return;
    for (; seen.erase(next) > 0; next += step) continue;
    take(scanned.entry.record + '\n');
  });
}

void RecordJournal::copy_in_order(std::int64_t first, std::int64_t step,
                                  const std::function<void(std::string_view)>& take) const {
  struct Place {
    std::int64_t offset = 0, bytes = 0;
  };
  std::map<std::int64_t, Place> waiting;  // for one with a smaller number
  std::int64_t next = first;
  each([&](const Scanned& scanned) {
    const auto bytes = static_cast<std::int64_t>(scanned.entry.record.size());
    const std::int64_t number = scanned.entry.number;
    const bool twice = number >= first && number < next && (number - first) % step == 0;
    if (twice) return;
    waiting.insert({number, {scanned.record_offset, bytes}});
    for (auto front = waiting.begin(); front != waiting.end() && front->first == next;
         front = waiting.erase(front), next += step) {
      take(read_at(front->second.offset, front->second.bytes) + '\n');
    }
  });
  if (!waiting.empty()) throw Error(ErrorKind::data, "{}: record {} is missing", path_, next);
}

void RecordJournal::remove() {
  if (::unlink(path_.c_str()) != 0) fail(errno);
  sync_folder_of(path_);
}

void RecordJournal::fail_unread() const { throw Error(ErrorKind::io, "{}: cannot be read", path_); }

void RecordJournal::fail_changed() const {
  throw Error(ErrorKind::io, "{}: changed while it was read", path_);
}

void RecordJournal::fail(int error) const {
  throw Error(ErrorKind::io, "{}: {}", path_, std::generic_category().message(error));
}

}  // namespace tinyloop
