// SPDX-License-Identifier: Apache-2.0
// States and planes out of a run, and into a deeper one.
#include "tinyloop/schedule/resume.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <map>

#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"
#include "tinyloop/files/tensor_file.h"
#include "tinyloop/schedule/prefill.h"

namespace tinyloop {
namespace {

constexpr std::string_view kFormat = "tinyloop state 1";

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
std::vector<T> copied(const TensorView& tensor) {
  const std::span<const T> values = tensor.as<T>();
  return {values.begin(), values.end()};
}

}  // namespace

void check_resumable(Forward& forward) {
  const ModelConfig& config = forward.model().config();
  if (config.injection == Injection::relaxed) {
    throw Error(ErrorKind::usage,
                "a {} model with looped layers cannot resume with more loops: each loop's step is "
                "alpha / loops, so all steps would differ",
                config.family);
  }
  if (stores_inputs(forward.plan().storage)) {
    throw Error(ErrorKind::usage, "a state holds keys and values; {} stores layer inputs",
                name_of(forward.plan().storage));
  }
}

PrefillHooks keeping_states(Forward& forward, std::vector<float>& states,
                            std::vector<float>& injected) {
  PrefillHooks hooks;
  hooks.after_loop = [&](std::span<const Row> rows) {
    if (rows.front().loop < forward.plan().loops) return;
    const std::span<const float> now = forward.states(rows);
    states.insert(states.end(), now.begin(), now.end());
    const std::span<const float> again = forward.injected(rows);
    injected.insert(injected.end(), again.begin(), again.end());
  };
  return hooks;
}

ResumeHandle ResumeHandle::build(Forward& forward, KvCache& cache, std::span<const TokenId> ids,
                                 std::int64_t chunk, std::span<const float>* logits) {
  check_resumable(forward);
  assert(cache.length() == 0);
  ResumeHandle handle;
  handle.identity_ = cache_identity(forward);
  handle.ids_.assign(ids.begin(), ids.end());
  const PrefillHooks hooks = keeping_states(forward, handle.states_, handle.injected_);
  const std::span<const float> last = prefill(forward, cache, ids, chunk, hooks);
  if (logits != nullptr) *logits = last;
  // The coda's planes are written anew after the last loop.
  handle.shape_ = cache.snapshot_shape();
  handle.shape_.planes -= forward.model().config().coda_layers;
  const auto plane_bytes = static_cast<std::size_t>(handle.shape_.plane_bytes());
  handle.kv_.resize(static_cast<std::size_t>(handle.shape_.planes) * plane_bytes);
  for (std::int32_t plane = 0; plane < handle.shape_.planes; ++plane) {
    cache.read_plane(
        plane,
        std::span(handle.kv_).subspan(static_cast<std::size_t>(plane) * plane_bytes, plane_bytes));
  }
  return handle;
}

void ResumeHandle::check(Forward& forward, const KvCache& cache) const {
  const CacheIdentity own = cache_identity(forward);
  const auto same = [](std::string_view what, const auto& saved, const auto& wanted) {
    if (saved == wanted) return;
    throw Error(ErrorKind::usage, "the saved state has the {} {}, but this run has {}", what, saved,
                wanted);
  };
  same("model", identity_.model, own.model);
  same("arithmetic", identity_.arithmetic, own.arithmetic);
  same("storage mode", identity_.kv, own.kv);
  same("cache window", identity_.window, own.window);
  same("initial state", identity_.initial_state, own.initial_state);
  if (own.loops < identity_.loops) {
    throw Error(ErrorKind::usage, "the saved state has run {} loops, more than the {} of this run",
                identity_.loops, own.loops);
  }
  const ModelConfig& config = forward.model().config();
  const std::size_t values = ids_.size() * static_cast<std::size_t>(config.hidden);
  const LoopPlan& plan = cache.plan();
  const bool fits =
      states_.size() == values &&
      injected_.size() == (config.injection == Injection::none ? 0 : values) &&
      shape_.planes == plan.prelude_layers + identity_.loops * plan.core_layers &&
      shape_.first_tile + shape_.tiles == (static_cast<std::int64_t>(ids_.size()) + 15) / kTile &&
      static_cast<std::int64_t>(ids_.size()) <= config.context &&
      std::all_of(ids_.begin(), ids_.end(),
                  [&](TokenId id) { return id >= 0 && id < config.vocab; });
  if (!fits) throw Error(ErrorKind::data, "the saved state does not have the model's shape");
}

std::span<const float> ResumeHandle::resume(Forward& forward, KvCache& cache) const {
  check(forward, cache);
  assert(cache.length() == 0);
  const auto length = static_cast<std::int64_t>(ids_.size());
  cache.reserve(length);
  const auto plane_bytes = static_cast<std::size_t>(shape_.plane_bytes());
  for (std::int32_t plane = 0; plane < shape_.planes; ++plane) {
    cache.write_plane(
        plane, shape_,
        std::span(kv_).subspan(static_cast<std::size_t>(plane) * plane_bytes, plane_bytes));
  }
  return run_missing_loops(forward, cache, ids_, identity_.loops, states_, injected_);
}

std::span<const float> run_missing_loops(Forward& forward, KvCache& cache,
                                         std::span<const TokenId> ids, std::int32_t loops,
                                         std::span<const float> states,
                                         std::span<const float> injected) {
  const auto length = static_cast<std::int64_t>(ids.size());
  const auto hidden = static_cast<std::size_t>(forward.model().config().hidden);
  const std::int64_t chunk = std::min(forward.max_rows(), forward.slots());
  std::span<const float> logits;
  std::vector<Row> rows;
  for (std::int64_t begin = 0; begin < length; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, length);
    rows.clear();
    for (std::int64_t position = begin; position < end; ++position) {
      rows.push_back({&cache, position, ids[static_cast<std::size_t>(position)],
                      static_cast<std::int32_t>(position - begin), loops});
    }
    const auto first = static_cast<std::size_t>(begin) * hidden, count = rows.size() * hidden;
    forward.restore(rows, states.subspan(first, count),
                    injected.empty() ? injected : injected.subspan(first, count));
    while (rows.front().loop < forward.plan().loops) forward.pass(rows);
    const auto last = static_cast<std::int32_t>(rows.size()) - 1;
    const bool final_chunk = end == length;
    logits = forward.leave(rows, {&last, final_chunk ? std::size_t{1} : std::size_t{0}});
  }
  // Nothing is committed before the end, so that a window drops nothing on the way.
  cache.commit(length);
  return logits;
}

void ResumeHandle::save(const std::string& path) const {
  const auto length = static_cast<std::int64_t>(ids_.size());
  const std::int64_t hidden = static_cast<std::int64_t>(states_.size()) / length;
  std::vector<TensorPlan> plans = {
      {"ids", TensorType::i32, {length}},
      {"states", TensorType::f32, {length, hidden}},
  };
  std::vector<std::span<const std::byte>> parts = {bytes_of(ids_), bytes_of(states_)};
  if (!injected_.empty()) {
    plans.push_back({"kept", TensorType::f32, {length, hidden}});
    parts.push_back(bytes_of(injected_));
  }
  plans.push_back(
      {"kv", TensorType::u8, {shape_.planes, shape_.kv_heads, shape_.tiles, shape_.tile_bytes}});
  parts.push_back(kv_);
  std::map<std::string, std::string> metadata = {
      {"format", std::string(kFormat)},
      {"model", identity_.model},
      {"arithmetic", identity_.arithmetic},
      {"kv", identity_.kv},
      {"initial_state", identity_.initial_state},
      {"loops", fmt::format("{}", identity_.loops)},
      {"window", fmt::format("{}", identity_.window)},
      {"first_tile", fmt::format("{}", shape_.first_tile)},
  };
  XXH64_hash_t hash = XXH3_64bits(identity_.text().data(), identity_.text().size());
  for (const std::span<const std::byte> part : parts) {
    hash = XXH3_64bits_withSeed(part.data(), part.size(), hash);
  }
  metadata["checksum"] = fmt::format("{:016x}", hash);
  TensorFileWriter writer(path, plans, metadata);
  for (const std::span<const std::byte> part : parts) writer.append(part);
  writer.finish();
}

ResumeHandle ResumeHandle::open(const std::string& path) {
  const TensorFile file = TensorFile::open(path);
  const auto text = [&](const std::string& key) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end()) {
      throw Error(ErrorKind::data, "{}: not a saved state: no {}", path, key);
    }
    return found->second;
  };
  const auto number = [&](const std::string& key) {
    const std::string digits = text(key);
    char* end = nullptr;
    const long long value = std::strtoll(digits.c_str(), &end, 10);
    if (digits.empty() || *end != '\0' || value < 0 || value > (1LL << 40)) {
      throw Error(ErrorKind::data, "{}: {} is '{}'", path, key, digits);
    }
    return static_cast<std::int64_t>(value);
  };
  if (text("format") != kFormat) {
    throw Error(ErrorKind::data, "{}: not a saved state of a prompt", path);
  }
  ResumeHandle handle;
  CacheIdentity& identity = handle.identity_;
  identity.model = text("model");
  identity.arithmetic = text("arithmetic");
  identity.kv = text("kv");
  identity.initial_state = text("initial_state");
  identity.loops = static_cast<std::int32_t>(number("loops"));
  identity.window = number("window");
  handle.ids_ = copied<TokenId>(file.at("ids"));
  handle.states_ = copied<float>(file.at("states"));
  XXH64_hash_t hash = XXH3_64bits(identity.text().data(), identity.text().size());
  const auto add = [&](const TensorView& tensor) {
    hash = XXH3_64bits_withSeed(tensor.bytes.data(), tensor.bytes.size(), hash);
  };
  add(file.at("ids"));
  add(file.at("states"));
  if (const TensorView* injected = file.find("kept")) {
    handle.injected_ = copied<float>(*injected);
    add(*injected);
  }
  const TensorView& kv = file.at("kv");
  add(kv);
  if (text("checksum") != fmt::format("{:016x}", hash)) {
    throw Error(ErrorKind::data, "{}: damaged: the checksum differs", path);
  }
  if (kv.shape.size() != 4 || handle.ids_.empty()) {
    throw Error(ErrorKind::data, "{}: not a saved state: its shapes are wrong", path);
  }
  handle.shape_ = {static_cast<std::int32_t>(kv.shape[0]), static_cast<std::int32_t>(kv.shape[1]),
                   number("first_tile"), kv.shape[2], kv.shape[3]};
  handle.kv_.assign(kv.bytes.begin(), kv.bytes.end());
  return handle;
}

std::function<std::span<const float>(Forward&, KvCache&, DecodeStats&)> resuming(
    const ResumeHandle& handle) {
  return [&handle](Forward& forward, KvCache& cache, DecodeStats& stats) {
    stats.prompt_loops = stats.prefilled * (forward.plan().loops - handle.loops());
    return handle.resume(forward, cache);
  };
}

}  // namespace tinyloop
