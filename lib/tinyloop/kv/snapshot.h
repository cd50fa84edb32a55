// SPDX-License-Identifier: Apache-2.0
// A computed prefix as one file: the ids, the keys and values of all planes and, if it is
// resumable, the states after the last loop; see tl-pool(5). Knows bytes and their checksums, not
// devices and not which file to use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/files/tensor_file.h"
#include "tinyloop/kv/cache_identity.h"
#include "tinyloop/token.h"

namespace tinyloop {

// A snapshot whose content was altered; what was computed from it is invalid.
class DamagedSnapshot : public Error {
 public:
  explicit DamagedSnapshot(const std::string& message) : Error(ErrorKind::data, "{}", message) {}
};

// What is in a tile: device/kv_tile.h. The tiles of one (plane, head) lie one after another.
struct SnapshotShape {
  std::int32_t planes = 0, kv_heads = 0;
  std::int64_t first_tile = 0, tiles = 0;  // with a window only those that can still be seen
  std::int64_t tile_bytes = 0;

  bool operator==(const SnapshotShape&) const = default;
  std::int64_t plane_bytes() const { return kv_heads * tiles * tile_bytes; }
};

class Snapshot {
 public:
  // Maps the file and checks everything but the planes: format, header, sizes, the checksum over
  // header and ids. Throws Error(io) or Error(data) naming the file.
  static std::shared_ptr<const Snapshot> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t file_bytes() const { return static_cast<std::int64_t>(file_.mapping().size()); }
  const CacheIdentity& identity() const { return identity_; }
  std::span<const TokenId> ids() const { return ids_; }
  std::int64_t length() const { return static_cast<std::int64_t>(ids_.size()); }
  const SnapshotShape& shape() const { return shape_; }
  std::span<const std::byte> kv() const { return kv_; }  // [planes][kv_heads][tiles][tile_bytes]
  // Whether it also holds what a run with more loops needs to go on: the states of all positions
  // after their last loop, and what every loop reads again, empty where a model has no such thing.
  bool resumable() const { return !states_.empty(); }
  std::span<const float> states() const { return states_; }      // [length][hidden]
  std::span<const float> injected() const { return injected_; }  // [length][hidden], or empty
  std::int64_t created() const { return created_; }              // seconds since 1970
  double prefill_ms() const { return prefill_ms_; }              // time to compute the whole prefix

  // Whether a run can continue from its first `length` positions: the window may have dropped some.
  bool serves(std::int64_t length) const;
  // Compares the plane with its checksum, the first time it is called; throws DamagedSnapshot.
  // Call it just before reading the plane, so that its bytes come from memory once for
  // both. Not thread-safe.
  void verify(std::int32_t plane) const;
  // The same for the states and what every loop reads again.
  void verify_states() const;
  void verify_all() const;

 private:
  explicit Snapshot(TensorFile file) : file_(std::move(file)) {}

  TensorFile file_;
  CacheIdentity identity_;
  SnapshotShape shape_;
  std::span<const TokenId> ids_;
  std::span<const std::byte> kv_;
  std::span<const float> states_, injected_;
  std::int64_t created_ = 0;
  double prefill_ms_ = 0.0;
  std::vector<std::uint64_t> checksums_;  // of the planes
  std::uint64_t states_checksum_ = 0;
  mutable std::vector<bool> verified_;
};

struct SnapshotContent {
  CacheIdentity identity;
  SnapshotShape shape;
  std::span<const TokenId> ids;
  std::span<const float> states, injected;  // empty: more loops cannot resume from this
  std::int64_t created = 0;
  double prefill_ms = 0.0;
  // Fills `to` with a plane, plane_bytes() long.
  std::function<void(std::int32_t plane, std::span<std::byte> to)> read_plane;

  std::int64_t hidden() const { return std::ssize(states) / std::ssize(ids); }
};

// Bytes of the file that write_snapshot() writes for this many ids, whatever they are and whenever
// that is. hidden: the width of the states, 0 if there are none; injected: whether the injected
// inputs are stored with them.
std::int64_t snapshot_bytes(const CacheIdentity& identity, const SnapshotShape& shape,
                            std::int64_t length, std::int64_t hidden, bool injected);

// Writes the content under a temporary name beside `path` and fsyncs it; finish_new() gives it its
// name, destruction removes it. `shared`: as AtomicFile's. Throws Error(io).
std::unique_ptr<TensorFileWriter> write_snapshot(const std::string& path,
                                                 const SnapshotContent& content, bool shared);

}  // namespace tinyloop
