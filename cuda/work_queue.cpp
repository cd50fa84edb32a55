// SPDX-License-Identifier: Apache-2.0
// Tables in a ring of pinned buffers, steps in a list, graphs by signature.
#include "work_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tinyloop/error.h"

namespace tinyloop::cuda {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kTablesOfStep = 8;    // at most
constexpr std::size_t kMostSteps = 4096;    // enough for any pass; bounds what a graph holds
constexpr std::size_t kFewestForGraph = 4;  // below, launching one by one is as quick
constexpr std::size_t kMostGraphs = 64;
constexpr std::size_t kTablesCompared = 16;  // the latest ones of a submission

}  // namespace

WorkQueue::~WorkQueue() {
  for (const Known& known : known_) {
    if (known.graph != nullptr) runtime_.release(known.graph);
  }
  release_slots();
}

void WorkQueue::release_slots() {
  for (Slot& slot : slots_) {
    if (slot.sent != nullptr) runtime_.release(slot.sent);
    if (slot.pinned != nullptr) runtime_.release_pinned(slot.pinned);
    slot = {};
  }
}

void WorkQueue::make_room(std::size_t bytes) {
  const std::size_t needed = bytes + kTablesOfStep * kAlign;
  if (used_ + needed > room_ || steps_.size() >= kMostSteps) submit();
  if (needed > room_) grow(needed);
}

// A prompt in very large chunks; graphs that were captured before are not found again.
void WorkQueue::grow(std::size_t bytes) {
  runtime_.wait();
  release_slots();
  if (device_tables_ != nullptr) memory_.release(device_tables_);
  device_tables_ = nullptr;
  room_ = std::bit_ceil(bytes);
}

// The slot's last tables must have left it before new ones are written.
void WorkQueue::open_slot() {
  if (device_tables_ == nullptr) device_tables_ = memory_.allocate(room_);
  Slot& slot = slots_[slot_];
  if (slot.pinned == nullptr) {
    slot.pinned = runtime_.allocate_pinned(room_);
    if (slot.pinned == nullptr) {
      throw Error(ErrorKind::device, "cuda: {} bytes of pinned host memory refused", room_);
    }
  }
  if (slot.sent == nullptr) slot.sent = runtime_.make_event();
  if (slot.busy) runtime_.wait(slot.sent);
  slot.busy = false;
}

const std::byte* WorkQueue::table(std::span<const std::byte> bytes) {
  if (used_ == 0) open_slot();
  std::byte* pinned = slots_[slot_].pinned;
  // Every layer of a pass asks with the same segments.
  std::size_t compared = 0;
  for (auto table = tables_.rbegin(); table != tables_.rend() && compared < kTablesCompared;
       ++table, ++compared) {
    if (table->bytes == bytes.size() &&
        std::memcmp(pinned + table->at, bytes.data(), bytes.size()) == 0) {
      return device_tables_ + table->at;
    }
  }
  const Table table{used_, bytes.size()};
  if (!bytes.empty()) std::memcpy(pinned + table.at, bytes.data(), bytes.size());
  used_ += std::max<std::size_t>(1, (bytes.size() + kAlign - 1) / kAlign) * kAlign;
  tables_.push_back(table);
  return device_tables_ + table.at;
}

void WorkQueue::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (steps_.size() >= kMostSteps) submit();
  signature_.add_all('c', to, from, bytes);
  steps_.push_back({nullptr, [this, to, from, bytes](Stream) { runtime_.copy(to, from, bytes); }});
}

void WorkQueue::gemm(const Gemm& gemm) {
  capturable_ = false;
  steps_.push_back({nullptr, [this, gemm](Stream) { runtime_.gemm(gemm); }});
}

void WorkQueue::submit() {
  if (steps_.empty()) return;
  // Whatever happens below, the steps are gone.
  struct Cleared {
    WorkQueue& queue;
    ~Cleared() { queue.forget(); }
  } const cleared{*this};
  send_tables();
  ++submissions_;
  if (!capturable_ || steps_.size() < kFewestForGraph) {
    run_steps();
    return;
  }
  Known* known = find();
  if (known == nullptr) {
    run_steps();
    remember();
    return;
  }
  known->last_use = submissions_;
  if (known->graph == nullptr) capture(*known);
  if (known->graph == nullptr) {  // no memory for it: graphs are for speed only
    run_steps();
    return;
  }
  runtime_.launch(known->graph);
  ++graph_launches_;
}

void WorkQueue::forget() {
  steps_.clear();
  signature_.clear();
  tables_.clear();
  capturable_ = true;
  used_ = 0;
}

// On the device the tables of the steps before are overwritten: their work comes first on the
// stream.
void WorkQueue::send_tables() {
  if (used_ == 0) return;
  Slot& slot = slots_[slot_];
  runtime_.copy_in(device_tables_, slot.pinned, used_);
  runtime_.record(slot.sent);
  slot.busy = true;
  slot_ = (slot_ + 1) % slots_.size();
}

void WorkQueue::run_steps() {
  for (const Step& step : steps_) {
    if (step.kernel != nullptr) {
      runtime_.kernel(step.kernel, step.start);
    } else {
      step.start(nullptr);
    }
  }
}

void WorkQueue::capture(Known& known) {
  runtime_.begin_capture();
  try {
    run_steps();
  } catch (...) {
    try {
      if (Graph* partial = runtime_.end_capture()) runtime_.release(partial);
    } catch (const Error&) {  // says only that something failed before it
    }
    throw;
  }
  known.graph = runtime_.end_capture();
}

WorkQueue::Known* WorkQueue::find() {
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
    return known.signature == signature_;
  });
  return found == known_.end() ? nullptr : &*found;
}

// The signature's first time; the one unused for longest makes room.
void WorkQueue::remember() {
  if (known_.size() == kMostGraphs) {
    const auto oldest =
        std::min_element(known_.begin(), known_.end(),
                         [](const Known& a, const Known& b) { return a.last_use < b.last_use; });
    if (oldest->graph != nullptr) {
      runtime_.wait();  // it may be under way
      runtime_.release(oldest->graph);
    }
    known_.erase(oldest);
  }
  known_.push_back({signature_, nullptr, submissions_});
}

}  // namespace tinyloop::cuda
