// SPDX-License-Identifier: Apache-2.0
// Fuzz target for the small files beside models, outputs and entries: any bytes are read, passed
// over or refused with a message, and what is written after them can be read again. Not for token
// lines, tensor files and snapshots, which have targets of their own.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_require.h"
#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/npy_file.h"
#include "tinyloop/files/record_journal.h"
#include "tinyloop/measure/speculation_profile.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/pool/folder.h"
#include "tinyloop/pool/order.h"
#include "tinyloop/pool/uses.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace tinyloop;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_journal(const std::string& path, const std::string& before) {
  std::vector<std::string> records;
  const auto take = [&](std::string_view record) { records.emplace_back(record); };
  std::int64_t there = 0;
  try {
    RecordJournal journal(path);
    std::int64_t known = 0;
    for (std::int64_t number = 0; number <= 40; ++number) known += journal.find(number) ? 1 : 0;
    require(known <= journal.records(), "no more records are found than there are");
    if (!journal.found()) journal.begin({{"--seed", "7"}});
    journal.copy(1, 1, take);
    there = journal.records();
    require(static_cast<std::int64_t>(records.size()) <= there, "none is handed over twice");
    journal.append({journal.found_last() + 1, 5, false, "1 2 3"});
  } catch (const Error&) {
    require(content_of(path) == before, "a file that is refused stays as it is");
    throw;
  }
  RecordJournal again(path);
  require(again.dropped_bytes() == 0 && again.records() == there + 1, "what was appended is there");
  std::vector<std::string> earlier;
  earlier.swap(records);
  again.copy(1, 1, take);
  earlier.emplace_back("1 2 3\n");
  require(records == earlier, "records are those of before and the new one");
}

void check_profile(const std::string& path) {
  const SpeculationProfile profile = SpeculationProfile::read(path);
  profile.write(path);
  require(SpeculationProfile::read(path).json() == profile.json(), "a profile survives writing");
}

void check_settings(const std::string& folder) {
  const PoolFolder pool(folder);
  const FoundSettings found = pool.settings();
  require(found.known, "a pool without entries has nothing to lose");
  require(found.settings.capacity >= 1 && found.settings.max_bytes >= 0, "settings make sense");
  pool.set_settings(found.settings);
  const FoundSettings again = pool.settings();
  require(again.warning.empty() && again.settings.capacity == found.settings.capacity &&
              again.settings.max_bytes == found.settings.max_bytes &&
              again.settings.policy == found.settings.policy,
          "settings survive writing");
}

void check_order(const std::string& path) {
  const Order order = read_order(path);
  most_similar({}, order.keys, order.keys, [](const EntryKey&) { return std::nullopt; });
  if (order.keys.empty()) return;
  const std::string before = content_of(path);
  write_order(path, order);
  require(content_of(path) == before, "only what write_order() wrote is taken");
}

void check_uses(const std::string& folder) {
  const PoolUses uses(folder);
  const PoolCounts counts = uses.read();
  PoolUses::Lock(uses).fold([](const EntryKey&) { return true; });
  const PoolCounts folded = uses.read();
  require(folded.hits == counts.hits && folded.misses == counts.misses &&
              folded.reused == counts.reused && folded.order == counts.order &&
              folded.entries.size() == counts.entries.size(),
          "folding changes no count");
}

void check_import(const std::string& folder) {
  // Without weights the keys would not be looked at.
  const std::string header =
      R"({"lm_head.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("transformer.core_block.0.norm_3.weight":)"
      R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      << static_cast<char>(header.size()) << std::string(7, '\0') << header;
  const ModelConfig config = import_config(folder, std::nullopt);
  const std::string text = to_json(config);
  require(to_json(config_from_json(text, "it")) == text, "what was imported can be read again");
}

void check_npy(const std::string& path) {
  const NpyArray array = read_npy(path);
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    if (array.type == NpyType::f32) {
      array.real(i);
    } else {
      array.integer(i);
    }
  }
}

}  // namespace

// The first byte, a digit, chooses what file the rest is.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const TemporaryFolder folder;
  const std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string names[] = {"journal",  "profile",  "pool.json",   "it.order",
                               "uses.log", "uses.sum", "config.json", "it.npy"};
  const std::function<void(const std::string&)> checks[] = {
      [&](const std::string& path) { check_journal(path, content); },
      check_profile,
      [](const std::string&) { check_settings(folder.path()); },
      check_order,
      [](const std::string&) { check_uses(folder.path()); },
      [](const std::string&) { check_uses(folder.path()); },
      [](const std::string&) { check_import(folder.path()); },
      check_npy};
  const std::size_t kind = data[0] % std::size(checks);  // '0' is 0
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    std::filesystem::remove(file);
  }
  const std::string path = folder.file(names[kind]);
  std::ofstream(path, std::ios::binary) << content;
  try {
    checks[kind](path);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::data || error.kind() == ErrorKind::io,
            "damage is an error of kind data or io");
    const std::string_view message = error.what();
    require(message.starts_with(folder.path()), "a message names the file");
    require(message.size() < 5000, "messages are bounded");
    require_plain(message);
  }
  return 0;
}
