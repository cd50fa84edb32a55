// SPDX-License-Identifier: Apache-2.0
// Writes, opens and checks snapshots. The checksum in the header covers every byte of the file
// before the planes, its own sixteen digits read as zeros; each plane has one of its own there.
#include "tinyloop/kv/snapshot.h"

#include <xxhash.h>

#include <map>
#include <string_view>

#include "tinyloop/device/kv_tile.h"
#include "tinyloop/files/hash_state.h"
#include "tinyloop/parse_number.h"

namespace tinyloop {

namespace {

constexpr std::string_view kFormat = "tinyloop snapshot ";
constexpr std::string_view kChecksumKey = "\"checksum\":\"";
constexpr std::size_t kDigits = 16;
const std::string kBlank(kDigits, '0');

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// Fields of the header, each of them checked.
class Fields {
 public:
  explicit Fields(const TensorFile& file) : file_(file) {}

  const std::string& text(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) fail("has no " + key);
    return found->second;
  }
  template <typename T>
  T number(const std::string& key, T least) const {
    const auto value = parse_number<T>(text(key));
    if (!value || *value < least) fail(key + " is wrong");
    return *value;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::data, "{}: invalid snapshot: {}", file_.path(), what);
  }

 private:
  const TensorFile& file_;
};

// Over all bytes before the planes, the checksum's own digits read as zeros; no value if there is
// none.
bool head_is_sound(std::string_view head, std::uint64_t expected) {
  const std::size_t key = head.find(kChecksumKey);
  if (key == std::string_view::npos) return false;
  const std::size_t digits = key + kChecksumKey.size();
  if (digits + kDigits > head.size()) return false;
  const HashState state = make_hash_state();
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), head.data(), digits);
  XXH3_64bits_update(state.get(), kBlank.data(), kDigits);
  const std::string_view rest = head.substr(digits + kDigits);
  XXH3_64bits_update(state.get(), rest.data(), rest.size());
  return XXH3_64bits_digest(state.get()) == expected;
}

void check_version(const Fields& fields, const std::string& path) {
  const std::string& format = fields.text("format");
  int version = 0;
  if (!format.starts_with(kFormat) ||
      !parse_number(std::string_view(format).substr(kFormat.size()), version)) {
    fields.fail("format is wrong");
  }
  if (version != kSnapshotVersion) {
    throw Error(ErrorKind::data, "{}: snapshot of format {}, but this program reads {}", path,
                version, kSnapshotVersion);
  }
}

std::uint64_t states_hash(std::span<const float> states, std::span<const float> injected) {
  return XXH3_64bits_withSeed(injected.data(), injected.size_bytes(),
                              XXH3_64bits(states.data(), states.size_bytes()));
}

// Numbers that differ from one computation to the next have their zeros in front, so that the size
// of an entry is known before it is computed.
std::string created_text(std::int64_t seconds) { return fmt::format("{:010}", seconds); }
std::string time_text(double ms) {
  return fmt::format("{:016}", static_cast<std::int64_t>(ms * 1000.0));
}

std::vector<TensorPlan> plans_of(const SnapshotShape& shape, std::int64_t length,
                                 std::int64_t hidden, bool injected) {
  std::vector<TensorPlan> plans = {
      {"ids", TensorType::i32, {length}},
      {"kv", TensorType::u8, {shape.planes, shape.kv_heads, shape.tiles, shape.tile_bytes}}};
  if (hidden == 0) return plans;
  plans.push_back({"states", TensorType::f32, {length, hidden}});
  if (injected) plans.push_back({"injected", TensorType::f32, {length, hidden}});
  return plans;
}

// Times and checksums are zeros.
std::map<std::string, std::string> metadata_of(const CacheIdentity& identity,
                                               const SnapshotShape& shape, bool states) {
  std::map<std::string, std::string> metadata = {
      {"format", fmt::format("{}{}", kFormat, kSnapshotVersion)},
      {"model", identity.model},
      {"arithmetic", identity.arithmetic},
      {"kv", identity.kv},
      {"kv_slots", "0"},
      {"loops", std::to_string(identity.loops)},
      {"exit", ""},
      {"cache_window", std::to_string(identity.window)},
      {"initial_state", identity.initial_state},
      {"first_tile", std::to_string(shape.first_tile)},
      {"created", created_text(0)},
      {"prefill_us", time_text(0.0)},
      {"checksum", kBlank},
      {"plane_checksums", std::string(kDigits * static_cast<std::size_t>(shape.planes), '0')},
  };
  if (states) metadata["states_checksum"] = kBlank;
  return metadata;
}

}  // namespace

std::shared_ptr<const Snapshot> Snapshot::open(const std::string& path) {
  const std::shared_ptr<Snapshot> snapshot(new Snapshot(TensorFile::open(path)));
  Snapshot& s = *snapshot;
  const Fields fields(s.file_);
  check_version(fields, path);
  if (fields.text("kv_slots") != "0") fields.fail("kv_slots is wrong");
  if (!fields.text("exit").empty()) fields.fail("exit is wrong");
  s.identity_ = {.model = fields.text("model"),
                 .arithmetic = fields.text("arithmetic"),
                 .kv = fields.text("kv"),
                 .initial_state = fields.text("initial_state"),
                 .loops = fields.number<std::int32_t>("loops", 1),
                 .window = fields.number<std::int64_t>("cache_window", 0)};
  s.created_ = fields.number<std::int64_t>("created", 0);
  s.prefill_ms_ = static_cast<double>(fields.number<std::int64_t>("prefill_us", 0)) / 1000.0;
  s.ids_ = s.file_.at("ids").as<std::int32_t>();
  const TensorView& kv = s.file_.at("kv");
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // planes and heads
  if (kv.type != TensorType::u8 || kv.shape.size() != 4 || kv.shape[0] > kMost ||
      kv.shape[1] > kMost || s.ids_.empty()) {
    fields.fail("a tensor has the wrong shape");
  }
  s.kv_ = kv.bytes;
  s.shape_ = {static_cast<std::int32_t>(kv.shape[0]), static_cast<std::int32_t>(kv.shape[1]),
              fields.number<std::int64_t>("first_tile", 0), kv.shape[2], kv.shape[3]};
  const std::span<const std::byte> whole = s.file_.mapping();
  const std::byte* end = s.kv_.data() + s.kv_.size();
  if (const TensorView* states = s.file_.find("states")) {
    s.states_ = states->as<float>();
    const TensorView* injected = s.file_.find("injected");
    if (injected != nullptr) s.injected_ = injected->as<float>();
    const std::size_t values = s.states_.size();
    if (values == 0 || values % s.ids_.size() != 0 ||
        (injected != nullptr && s.injected_.size() != values) || states->bytes.data() < end ||
        !parse_number(fields.text("states_checksum"), s.states_checksum_, 16)) {
      fields.fail("the states have the wrong shape");
    }
    const TensorView& final_tensor = injected != nullptr ? *injected : *states;
    end = final_tensor.bytes.data() + final_tensor.bytes.size();
  }
  const std::int64_t tiles = (s.length() + kTile - 1) / kTile - s.shape_.first_tile;
  if (s.kv_.empty() || s.shape_.tiles != tiles || end != whole.data() + whole.size() ||
      reinterpret_cast<std::uintptr_t>(s.kv_.data()) % 64 != 0) {
    fields.fail("the planes are misplaced");
  }
  const std::string_view head(reinterpret_cast<const char*>(whole.data()),
                              static_cast<std::size_t>(s.kv_.data() - whole.data()));
  std::uint64_t checksum = 0;
  const std::string& digits = fields.text("checksum");
  if (!parse_number(digits, checksum, 16) || hex(checksum) != digits ||
      !head_is_sound(head, checksum)) {
    fields.fail("the checksum of header and ids differs");
  }
  const std::string& planes = fields.text("plane_checksums");
  const auto count = static_cast<std::size_t>(s.shape_.planes);
  if (planes.size() != count * kDigits) fields.fail("plane_checksums is wrong");
  for (std::size_t plane = 0; plane < count; ++plane) {
    std::uint64_t value = 0;
    if (!parse_number(std::string_view(planes).substr(plane * kDigits, kDigits), value, 16)) {
      fields.fail("plane_checksums is wrong");
    }
    s.checksums_.push_back(value);
  }
  s.verified_.resize(count);
  return snapshot;
}

bool Snapshot::serves(std::int64_t length) const {
  if (length < 1 || length > this->length()) return false;
  const std::int64_t first_seen =
      identity_.window > 0 ? std::max<std::int64_t>(0, length - identity_.window + 1) : 0;
  return shape_.first_tile * kTile <= first_seen;
}

void Snapshot::verify(std::int32_t plane) const {
  const auto index = static_cast<std::size_t>(plane);
  if (verified_[index]) return;
  const auto bytes = static_cast<std::size_t>(shape_.plane_bytes());
  if (XXH3_64bits(kv_.data() + index * bytes, bytes) != checksums_[index]) {
    throw DamagedSnapshot(
        fmt::format("{}: damaged: the checksum of plane {} differs", path(), plane));
  }
  verified_[index] = true;
}

void Snapshot::verify_states() const {
  if (resumable() && states_hash(states_, injected_) != states_checksum_) {
    throw DamagedSnapshot(fmt::format("{}: damaged: the checksum of the states differs", path()));
  }
}

void Snapshot::verify_all() const {
  for (std::int32_t plane = 0; plane < shape_.planes; ++plane) verify(plane);
  verify_states();
}

std::int64_t snapshot_bytes(const CacheIdentity& identity, const SnapshotShape& shape,
                            std::int64_t length, std::int64_t hidden, bool injected) {
  return TensorFileWriter::file_bytes(plans_of(shape, length, hidden, injected),
                                      metadata_of(identity, shape, hidden > 0));
}

std::unique_ptr<TensorFileWriter> write_snapshot(const std::string& path,
                                                 const SnapshotContent& content, bool shared) {
  const SnapshotShape& shape = content.shape;
  const bool states = !content.states.empty();
  std::map<std::string, std::string> metadata = metadata_of(content.identity, shape, states);
  metadata["created"] = created_text(content.created);
  metadata["prefill_us"] = time_text(content.prefill_ms);
  if (states) metadata["states_checksum"] = hex(states_hash(content.states, content.injected));
  std::vector<TensorPlan> plans =
      plans_of(shape, std::ssize(content.ids), content.hidden(), !content.injected.empty());
  auto writer =
      std::make_unique<TensorFileWriter>(path, std::move(plans), std::move(metadata), shared);
  writer->append(std::as_bytes(content.ids));
  std::vector<std::byte> plane(static_cast<std::size_t>(shape.plane_bytes()));
  std::string checksums;
  for (std::int32_t i = 0; i < shape.planes; ++i) {
    content.read_plane(i, plane);
    checksums += hex(XXH3_64bits(plane.data(), plane.size()));
    writer->append(plane);
  }
  writer->append(std::as_bytes(content.states));
  writer->append(std::as_bytes(content.injected));
  writer->set_metadata("plane_checksums", checksums);
  std::string head = writer->header();
  const auto add = [&head](std::span<const std::byte> bytes) {
    head.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    head.resize((head.size() + 63) / 64 * 64);  // as the writer aligns
  };
  add(std::as_bytes(content.ids));
  writer->set_metadata("checksum", hex(XXH3_64bits(head.data(), head.size())));
  writer->sync();
  return writer;
}

}  // namespace tinyloop
