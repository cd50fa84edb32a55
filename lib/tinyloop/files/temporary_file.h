// SPDX-License-Identifier: Apache-2.0
// A file that appears complete or not at all: written under a temporary name in the folder of its
// final name, then renamed. Knows bytes only. Readers never see a partial file, and a writer
// that gives up leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinyloop {

// The target of a chain of symbolic links, which need not exist; the path itself if it is not a
// link or the chain is a loop.
std::string follow_links(const std::string& path);

class AtomicFile {
 public:
  // Creates a file without a name in the folder of `path` or, where the file system has no such
  // files, FOLDER/.tmp.<pid>.<n>, locked (flock) while it has that name, so that a file left by a
  // killed process can be told from one being written. An existing regular file under `path` is
  // replaced by commit() and untouched until then; a symbolic link stays, and its
  // target is replaced or created; a link to itself is replaced. The new file gets the mode of
  // the one it replaces and, where permitted, its owner. Throws Error(io) naming `path`
  // and the cause, also where `path` is a folder, device or pipe (renaming over /dev/null would
  // remove it), or a file that this user may not write. `shared`: whoever may write in the folder
  // may replace it all the same, and a link there is replaced, not followed: another user may have
  // put it there.
  explicit AtomicFile(std::string path, bool shared = false);
  ~AtomicFile();  // without commit(): closes and removes the temporary file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  // bytes appended so far

  // Appends; buffered, so that small pieces are cheap. Every call throws Error(io) naming path and
  // cause if the system refuses to take the bytes (a full disk, a file size limit).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Replaces bytes that were appended before.
  void write_at(std::int64_t offset, std::string_view text);
  // Flushes and fsyncs; commit() and commit_new() do it if it has not been done.
  void sync();
  // Renames to the final name and fsyncs the folder. The last call on this object.
  void commit();
  // The same, but an existing file with the final name is left unchanged (link(2); rename where
  // links are not supported). Returns whether this one got the name.
  bool commit_new();

 private:
  bool create_nameless();
  void create_temporary();
  void take_temporary_name();
  std::string next_temporary_name() const;
  int link_to(const std::string& name) const;  // errno, or 0
  void flush();
  void write_all(const std::byte* bytes, std::size_t count, std::int64_t offset);
  void take_mode_of_replaced() const;
  int close_but_keep_lock();
  void sync_folder() const;
  [[noreturn]] void fail(int error) const;

  std::string path_;       // as given, for messages
  std::string final_;      // `path_` with a symbolic link followed
  std::string temporary_;  // empty while it has no name, and once it has its final one
  int descriptor_ = -1;
  bool synced_ = false;
  std::int64_t size_ = 0;
  std::vector<std::byte> buffer_;  // the last bytes of the file, not yet written
};

}  // namespace tinyloop
