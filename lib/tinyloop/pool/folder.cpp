// SPDX-License-Identifier: Apache-2.0
// Listing, settings and sweeping of a pool folder, straight on the system's calls: at 10,000
// entries a listing has to take a few milliseconds.
#include "tinyloop/pool/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>

#include "tinyloop/error.h"
#include "tinyloop/files/temporary_file.h"
#include "tinyloop/parse_number.h"

namespace tinyloop {

namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kTemporary = ".tmp.";
constexpr std::string_view kSettings = "pool.json";
constexpr std::string_view kPolicies[] = {"shortest", "lru", "cost"};
constexpr int kPoolVersion = 1;
constexpr std::size_t kIdentityDigits = 32;
constexpr std::time_t kStaleSeconds = 3600;
constexpr int kSettleTries = 50;

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(ErrorKind::io, "{}: {}", path, std::generic_category().message(error));
}

// ".tmp.PID.N", as files/temporary_file makes them: any other name is somebody else's.
bool is_temporary(std::string_view name) {
  if (!name.starts_with(kTemporary)) return false;
  name.remove_prefix(kTemporary.size());
  const std::size_t dot = std::min(name.find('.'), name.size());
  return parse_number<std::uint64_t>(name.substr(0, dot)) && dot < name.size() &&
         parse_number<std::uint64_t>(name.substr(dot + 1));
}

bool is_identity(std::string_view name) {
  return name.size() == kIdentityDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Calls `take` with each name; returns errno if the folder cannot be listed.
int for_each_name(const std::string& path, const std::function<void(std::string_view)>& take) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return errno;
  errno = 0;
  while (const dirent* entry = ::readdir(folder)) take(entry->d_name);
  const int error = errno;
  ::closedir(folder);
  return error;
}

// In nanoseconds; 0 if there is nothing.
std::int64_t changed_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail(path, error ? error.value() : errno);
  if (!S_ISDIR(status.st_mode)) fail(path, ENOTDIR);
}

// Whether the writer of a temporary file is gone: it holds a lock while it lives. Where locks are
// not supported the name's process and the file's age decide.
bool abandoned(const std::string& path, std::string_view name) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  bool gone = ::flock(file, LOCK_EX | LOCK_NB) == 0;
  struct stat status {};
  if (!gone && errno != EWOULDBLOCK && ::fstat(file, &status) == 0) {
    const std::string_view digits = name.substr(kTemporary.size());
    int process = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), process);
    gone = process > 0 && ::kill(process, 0) != 0 && errno == ESRCH &&
           std::time(nullptr) - status.st_mtime > kStaleSeconds;
  }
  if (gone) ::unlink(path.c_str());  // still locked, so that nobody can begin to use the name
  ::close(file);
  return gone;
}

std::string settings_text(const PoolSettings& settings) {
  return fmt::format(R"({{"format":{},"capacity":{},"max_bytes":{},"policy":"{}"}})"
                     "\n",
                     kPoolVersion, settings.capacity, settings.max_bytes, name_of(settings.policy));
}

// No value if there is none. Never waits, whatever has that name. Throws Error(io).
std::optional<std::string> read_settings(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    if (errno == ENOENT) return std::nullopt;
    fail(path, errno);
  }
  struct stat status {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  std::string text(std::size_t{1} << 16, '\0');
  const ssize_t size = regular ? ::read(file, text.data(), text.size()) : 0;
  const int error = errno;
  ::close(file);
  if (!regular) throw Error(ErrorKind::io, "{}: not a regular file", path);
  if (size < 0) fail(path, error);
  text.resize(static_cast<std::size_t>(size));
  return text;
}

// Whether the file says the settings of a pool, of this or a newer program's.
bool has_settings(const std::string& path) {
  try {
    const auto text = read_settings(path);
    if (!text) return false;
    const nlohmann::json json = nlohmann::json::parse(*text);
    return json.is_object() && json.contains("format") && json["format"].is_number_integer();
  } catch (const std::exception&) {
    return false;
  }
}

void sweep_folder(const std::string& path) {
  std::vector<std::string> names;
  for_each_name(path, [&](std::string_view name) {
    if (is_temporary(name)) names.emplace_back(name);
  });
  for (const std::string& name : names) abandoned(path + "/" + name, name);
}

}  // namespace

std::string_view name_of(EvictionPolicy policy) {
  return kPolicies[static_cast<std::size_t>(policy)];
}

EvictionPolicy parse_policy(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kPolicies); ++i) {
    if (kPolicies[i] == name) return static_cast<EvictionPolicy>(i);
  }
  throw Error(ErrorKind::usage, "policy '{}' is none of {}", name, fmt::join(kPolicies, ", "));
}

std::string PoolFolder::settings_path() const { return fmt::format("{}/{}", path_, kSettings); }

std::string PoolFolder::entry_path(const PoolEntry& entry) const {
  return fmt::format("{}/{}/{}{}", path_, entry.identity, entry.key.text(), kSuffix);
}

void PoolFolder::create() const { make_folder(path_); }

void PoolFolder::create(const std::string& identity) const { make_folder(identity_path(identity)); }

void PoolFolder::require_ours() const {
  // Entries or sound settings are certain. Without them names decide, which others may use too, so
  // there must be no other.
  bool ours = false, others = false;
  std::vector<std::string> names;
  const int error = for_each_name(path_, [&](std::string_view name) { names.emplace_back(name); });
  for (const std::string& name : names) {
    const bool identity =
        is_identity(name) && ::access((path_ + "/" + name + "/.").c_str(), F_OK) == 0;
    ours = ours || (identity && has_entries(name));
    others = others || !(name == "." || name == ".." || name == kSettings || name == "uses.log" ||
                         name == "uses.sum" || is_temporary(name));
  }
  if (error == 0 && !ours && others) ours = has_settings(settings_path());
  if (error == 0 && !ours && others) {
    throw Error(ErrorKind::usage,
                "{}: is not a pool: it has no {}; a new pool needs an empty folder", path_,
                kSettings);
  }
}

bool PoolFolder::has_entries(const std::string& identity) const {
  try {
    return !keys(identity).empty();
  } catch (const Error&) {
    return false;
  }
}

bool PoolFolder::hides_entries() const {
  for (const std::string& identity : identities()) {
    struct stat status {};
    const std::string path = identity_path(identity);
    if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
        ::faccessat(AT_FDCWD, path.c_str(), R_OK | X_OK, AT_EACCESS) != 0) {
      return true;
    }
  }
  return false;
}

bool PoolFolder::exists() const {
  return ::faccessat(AT_FDCWD, settings_path().c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
         !entries().empty();
}

FoundSettings PoolFolder::settings() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) fail(path_, errno);
  if (!S_ISDIR(status.st_mode)) fail(path_, ENOTDIR);
  const std::string path = settings_path();
  const auto unknown = [](std::string_view why) {
    return FoundSettings{
        {},
        fmt::format(
            "{}; nothing is evicted until tl-pool-register `capacity` sets the pool's limit again",
            why),
        false};
  };
  std::optional<std::string> text;
  try {
    text = read_settings(path);
  } catch (const Error& error) {
    return unknown(error.what());
  }
  if (!text) {
    if (!entries().empty() || hides_entries()) return unknown(path + ": is missing");
    return {};
  }
  std::int64_t format = 0;
  PoolSettings settings;
  bool sound = false;
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    format = json.at("format").get<std::int64_t>();
    if (format == kPoolVersion) {
      settings.capacity = json.at("capacity").get<std::int64_t>();
      settings.max_bytes = json.at("max_bytes").get<std::int64_t>();
      settings.policy = parse_policy(json.at("policy").get<std::string>());
      // The library would make an integer of 1.5.
      sound = json.at("format").is_number_integer() && json.at("capacity").is_number_integer() &&
              json.at("max_bytes").is_number_integer() && settings.capacity >= 0 &&
              settings.max_bytes >= 0;
    }
  } catch (const std::exception&) {
  }
  if (format > kPoolVersion) {
    throw Error(ErrorKind::data, "{}: pool of format {}, but this program reads {}", path, format,
                kPoolVersion);
  }
  if (!sound) {
    if (!entries().empty() || hides_entries()) return unknown(path + ": damaged");
    return {{}, fmt::format("{}: damaged", path), true};
  }
  settings.capacity = std::max<std::int64_t>(1, settings.capacity);
  return {settings, "", true};
}

void PoolFolder::set_settings(const PoolSettings& settings) const {
  AtomicFile file(settings_path(), true);
  file.write(settings_text(settings));
  file.commit();
}

void PoolFolder::mark() const {
  if (::access(settings_path().c_str(), F_OK) == 0) return;
  AtomicFile file(settings_path());
  file.write(settings_text({}));
  file.commit_new();
}

std::vector<std::string> PoolFolder::identities() const {
  std::vector<std::string> names;
  const int error = for_each_name(path_, [&](std::string_view name) {
    if (is_identity(name)) names.emplace_back(name);
  });
  if (error != 0) fail(path_, error);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<EntryKey> PoolFolder::keys(const std::string& identity) const {
  std::vector<EntryKey> keys;
  const std::string path = identity_path(identity);
  const int error = for_each_name(path, [&](std::string_view name) {
    if (!name.ends_with(kSuffix)) return;
    name.remove_suffix(kSuffix.size());
    if (const auto key = EntryKey::parse(name)) keys.push_back(*key);
  });
  if (error != 0 && error != ENOENT) fail(path, error);
  return keys;
}

std::vector<PoolEntry> PoolFolder::entries() const {
  std::vector<PoolEntry> all;
  for (const std::string& identity : identities()) {
    std::vector<EntryKey> keys_here;
    try {
      keys_here = keys(identity);
    } catch (const Error&) {
      continue;  // no folder of ours, whatever its name
    }
    std::sort(keys_here.begin(), keys_here.end());
    for (const EntryKey& key : keys_here) all.push_back({identity, key});
  }
  return all;
}

std::int64_t PoolFolder::listing_state(const std::string& identity) const {
  return changed_at(identity_path(identity));
}

std::int64_t PoolFolder::settled_listing_state(const std::string& identity) const {
  const std::int64_t state = listing_state(identity);
  const std::string clock = path_ + "/uses.log";  // any file: only the file system's time counts
  const timespec now[] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  for (int tries = 0; tries < kSettleTries; ++tries) {
    if (::utimensat(AT_FDCWD, clock.c_str(), now, 0) != 0) return 0;
    if (changed_at(clock) > state) return state;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 0;
}

std::int64_t PoolFolder::bytes_of(const PoolEntry& entry) const {
  struct stat status {};
  if (::lstat(entry_path(entry).c_str(), &status) != 0) return -1;
  return static_cast<std::int64_t>(status.st_size);
}

std::int64_t PoolFolder::written_at(const PoolEntry& entry) const {
  return changed_at(entry_path(entry)) / 1'000'000'000;
}

bool PoolFolder::remove(const PoolEntry& entry) const {
  const std::string path = entry_path(entry);
  if (std::remove(path.c_str()) == 0) return true;  // an empty folder of that name goes too
  if (errno != ENOENT) fail(path, errno);
  return false;
}

void PoolFolder::sweep() const {
  sweep_folder(path_);
  try {
    for (const std::string& identity : identities()) sweep_folder(identity_path(identity));
  } catch (const Error&) {
  }
}

}  // namespace tinyloop
