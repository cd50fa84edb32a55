// SPDX-License-Identifier: Apache-2.0
// enter, pass, leave: the math of every model family, one operation of device/ops.h a line.
// Not where weights and activations lie: that is forward_memory.
#include "tinyloop/engine/forward.h"

#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "tinyloop/engine/forward_memory.h"
#include "tinyloop/error.h"
#include "tinyloop/kv/hidden_codec.h"
#include "tinyloop/random.h"

namespace tinyloop {

Forward::Forward(const Model& model, Ops& ops, const LoopPlan& plan, InitialStates initial_states,
                 std::int32_t max_rows, std::int32_t slots)
    : model_(model),
      ops_(ops),
      plan_(plan),
      initial_states_(std::move(initial_states)),
      max_rows_(max_rows),
      slots_(slots),
      memory_(std::make_unique<Memory>(model, ops, max_rows, slots)) {}

Forward::~Forward() = default;

std::size_t Forward::working_bytes() const {
  std::size_t sum = memory_->logits.bytes();
  for (const DeviceBuffer& buffer : memory_->buffers) sum += buffer.bytes();
  return sum;
}

// The cache's number among the sequences of this call.
std::int32_t Forward::sequence_of(KvCache& cache) {
  Memory& m = *memory_;
  std::size_t sequence = 0;
  while (sequence < m.caches.size() && m.caches[sequence] != &cache) ++sequence;
  if (sequence == m.caches.size()) {
    m.caches.push_back(&cache);
    m.sequences.push_back(cache.segments());
    m.geometry = cache.geometry();
  }
  return static_cast<std::int32_t>(sequence);
}

// Cosines and sines of the row's rotations, [head_dim / 2][2].
std::span<const float> Forward::angles_of(const Row& row) {
  Memory& m = *memory_;
  const auto slot = static_cast<std::size_t>(row.slot);
  const std::span<float> angles =
      std::span(m.slot_angles).subspan(slot * 2 * m.frequencies.size(), 2 * m.frequencies.size());
  if (m.slot_positions[slot] == row.position) return angles;
  m.slot_positions[slot] = row.position;
  for (std::size_t i = 0; i < m.frequencies.size(); ++i) {
    const double angle = static_cast<float>(row.position) * m.frequencies[i];
    angles[2 * i] = static_cast<float>(std::cos(angle));
    angles[2 * i + 1] = static_cast<float>(std::sin(angle));
  }
  return angles;
}

// Notes where the rows of this call stand: slots, sequences, positions and their rotation angles.
void Forward::place(std::span<const Row> rows) {
  Memory& m = *memory_;
  assert(static_cast<std::int64_t>(rows.size()) <= max_rows_);
  m.slots.clear();
  m.places.clear();
  m.branches.clear();
  m.caches.clear();
  m.sequences.clear();
  m.host_angles.clear();
  for (const Row& row : rows) {
    m.slots.push_back(row.slot);
    m.places.push_back({sequence_of(*row.cache), 0, row.position});
    for (KvCache* branch : row.branch_caches) {
      m.branches.push_back({m.places.size() - 1, sequence_of(*branch)});
    }
    const std::span<const float> angles = angles_of(row);
    m.host_angles.insert(m.host_angles.end(), angles.begin(), angles.end());
  }
  ops_.upload(m.angles, m.host_angles.data(), m.host_angles.size() * sizeof(float));
}

// x = embedding[id]; prelude(x); the loop begins with x, or with a free initial state beside it.
void Forward::enter(std::span<Row> rows) {
  if (rows.empty()) return;
  const ModelConfig& config = model_.config();
  Memory& m = *memory_;
  const auto count = static_cast<std::int64_t>(rows.size());
  for (const Row& row : rows) {
    if (row.id < 0 || row.id >= config.vocab) {
      throw Error(ErrorKind::usage, "position {}: id {} is not in 0 .. {}", row.position, row.id,
                  config.vocab - 1);
    }
  }
  place(rows);
  std::vector<TokenId> ids;
  for (Row& row : rows) {
    row.loop = 0;
    ids.push_back(row.id);
  }
  ops_.embed(m.x, m.embedding, ids, static_cast<float>(config.embedding_scale));
  for (std::int32_t layer = 0; layer < config.prelude_layers; ++layer) {
    for (KvRow& place : m.places) place.plane = plan_.prelude_plane(layer);
    run_layer(m.layers[static_cast<std::size_t>(layer)], count);
  }
  if (config.initial_state == InitialState::embedding) {
    ops_.scatter(m.state, m.x, m.slots, config.hidden);
    ops_.submit();
    return;
  }
  ops_.scatter(m.injected, m.x, m.slots, config.hidden);
  const auto hidden = static_cast<std::size_t>(config.hidden);
  m.host_rows.resize(rows.size() * hidden);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    initial_states_.fill(rows[r].position, std::span(m.host_rows).subspan(r * hidden, hidden));
  }
  ops_.upload(m.x.data, m.host_rows.data(), m.host_rows.size() * sizeof(float));
  ops_.scatter(m.state, m.x, m.slots, config.hidden);
  ops_.submit();
}

// x = state; one application of the core layers; state = x. Each row reads and writes the planes of
// its own loop.
void Forward::pass(std::span<Row> rows) {
  if (rows.empty()) return;
  const ModelConfig& config = model_.config();
  Memory& m = *memory_;
  const auto count = static_cast<std::int64_t>(rows.size());
  place(rows);
  if (config.injection == Injection::concat) {
    ops_.gather(m.joined, m.state, m.slots, config.hidden);
    ops_.gather(m.joined.columns(config.hidden), m.injected, m.slots, config.hidden);
    ops_.matmul(m.x, m.joined, m.adapter, count);
  } else {
    ops_.gather(m.x, m.state, m.slots, config.hidden);
  }
  if (config.injection == Injection::relaxed) {
    ops_.gather(m.entry, m.state, m.slots, config.hidden);
  }
  for (std::int32_t layer = 0; layer < config.core_layers; ++layer) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      m.places[r].plane = rows[r].cache->plan().core_plane(rows[r].loop, layer);
    }
    run_layer(m.layers[static_cast<std::size_t>(config.prelude_layers + layer)], count);
  }
  if (config.injection == Injection::relaxed) {
    // state = state + alpha/loops (g(state) - state); the first g is kept for the blend at the end.
    std::vector<std::int32_t> first, their_slots;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].loop > 0) continue;
      first.push_back(static_cast<std::int32_t>(r));
      their_slots.push_back(rows[r].slot);
    }
    if (!first.empty()) {
      ops_.gather(m.branch, m.x, first, config.hidden);
      ops_.scatter(m.injected, m.branch, their_slots, config.hidden);
    }
    const float step = static_cast<float>(config.relaxed_alpha / plan_.loops);
    ops_.blend(m.x, step, m.entry, 1.0f - step, count, config.hidden);
  }
  if (config.loop_norm) {
    ops_.rms_norm(m.x, m.x, m.final_norm, count, config.hidden,
                  static_cast<float>(config.norm_eps));
  }
  ops_.scatter(m.state, m.x, m.slots, config.hidden);
  ops_.submit();
  for (Row& row : rows) ++row.loop;
}

// x = state; coda(x); logits = head(norm(x)).
std::span<const float> Forward::leave(std::span<const Row> rows,
                                      std::span<const std::int32_t> wanted) {
  leave_on_device(rows, wanted);
  return logits();
}

void Forward::leave_on_device(std::span<const Row> rows, std::span<const std::int32_t> wanted) {
  const ModelConfig& config = model_.config();
  Memory& m = *memory_;
  m.head_rows = 0;
  if (rows.empty() || (wanted.empty() && config.coda_layers == 0)) return;
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto eps = static_cast<float>(config.norm_eps);
  place(rows);
  ops_.gather(m.x, m.state, m.slots, config.hidden);
  if (config.injection == Injection::relaxed && config.relaxed_beta != 0.0) {
    const auto beta = static_cast<float>(config.relaxed_beta);
    ops_.gather(m.entry, m.injected, m.slots, config.hidden);
    ops_.blend(m.x, 1.0f - beta, m.entry, beta, count, config.hidden);
  }
  if (config.post_loop_norm) {
    ops_.rms_norm(m.x, m.x, m.final_norm, count, config.hidden, eps);
  }
  for (std::int32_t layer = 0; layer < config.coda_layers; ++layer) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      m.places[r].plane = rows[r].cache->plan().coda_plane(layer);
    }
    run_layer(
        m.layers[static_cast<std::size_t>(config.prelude_layers + config.core_layers + layer)],
        count);
  }
  if (wanted.empty()) return;
  const auto asked = static_cast<std::int64_t>(wanted.size());
  ops_.gather(m.normed, m.x, wanted, config.hidden);
  if (config.final_norm) {
    ops_.rms_norm(m.normed, m.normed, m.final_norm, asked, config.hidden, eps);
  }
  run_head(asked);
}

void Forward::reserve_logits(std::int64_t rows) {
  const auto bytes = static_cast<std::size_t>(rows * model_.config().vocab) * sizeof(float);
  if (memory_->logits.bytes() < bytes) memory_->logits = DeviceBuffer(ops_, bytes);
}

// logits = head(normed)
void Forward::run_head(std::int64_t rows) {
  const std::int64_t vocab = model_.config().vocab;
  Memory& m = *memory_;
  m.head_rows = rows;
  m.best_k = 0;
  reserve_logits(rows);
  ops_.matmul({m.logits.ptr(), vocab}, m.normed, m.head, rows);
  ops_.submit();
}

std::span<const float> Forward::logits() {
  Memory& m = *memory_;
  m.host_logits.resize(static_cast<std::size_t>(m.head_rows * model_.config().vocab));
  ops_.download(m.host_logits.data(), m.logits.ptr(), m.host_logits.size() * sizeof(float));
  return m.host_logits;
}

std::vector<TokenLogit> Forward::best(std::int64_t row, std::int64_t k) {
  const std::int64_t vocab = model_.config().vocab;
  Memory& m = *memory_;
  assert(row < m.head_rows && k > 0);
  if (m.best_k != k) {
    if (k > std::numeric_limits<std::int32_t>::max() ||
        !ops_.top_k({m.logits.ptr(), vocab}, m.head_rows, vocab, static_cast<std::int32_t>(k),
                    m.best)) {
      return {};
    }
    m.best_k = k;
  }
  std::vector<TokenLogit> candidates;
  if (m.best.not_finite[static_cast<std::size_t>(row)] != 0) return candidates;
  for (std::int64_t i = row * k; i < (row + 1) * k; ++i) {
    const auto at = static_cast<std::size_t>(i);
    candidates.push_back({m.best.ids[at], m.best.values[at]});
  }
  return candidates;
}

// One transformer block on m.x; m.places says which plane each row uses.
void Forward::run_layer(const Layer& layer, std::int64_t rows) {
  const ModelConfig& config = model_.config();
  Memory& m = *memory_;
  const std::int64_t hidden = config.hidden;
  const auto eps = static_cast<float>(config.norm_eps);
  const auto norm = [&](Rows y, Rows x, DevicePtr weight) {
    ops_.rms_norm(y, x, weight, rows, hidden, eps);
  };
  norm(m.normed, m.x, layer.norm1);
  run_attention(layer, rows);
  if (config.block == BlockKind::sandwich_out) norm(m.branch, m.branch, layer.norm2);
  ops_.add(m.x, m.branch, rows, hidden);
  if (config.block == BlockKind::sandwich_post) norm(m.x, m.x, layer.norm2);

  norm(m.normed, m.x, layer.norm3);
  run_mlp(layer, rows);
  if (config.block == BlockKind::sandwich_out) norm(m.branch, m.branch, layer.norm4);
  ops_.add(m.x, m.branch, rows, hidden);
  if (config.block == BlockKind::sandwich_post) norm(m.x, m.x, layer.norm4);
}

// branch = attention(normed): K and V of these rows are stored first, then read back like all
// others.
void Forward::run_attention(const Layer& layer, std::int64_t rows) {
  const ModelConfig& config = model_.config();
  Memory& m = *memory_;
  if (stores_inputs(plan_.storage)) round_inputs(rows);
  project(layer, rows);
  for (const KvRow& place : m.places) {
    m.caches[static_cast<std::size_t>(place.sequence)]->verify(place.plane);
  }
  ops_.attention(m.attended, m.qkv, m.places, m.sequences,
                 {config.heads, m.geometry, plan_.window,
                  static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))});
  ops_.matmul(m.branch, m.attended, layer.out, rows);
}

// qkv = qkv_weights(normed), rotated; K and V are stored.
void Forward::project(const Layer& layer, std::int64_t rows) {
  const ModelConfig& config = model_.config();
  Memory& m = *memory_;
  const Rows k = m.qkv.columns(config.q_width());
  const Rows v = k.columns(config.kv_width());
  ops_.matmul(m.qkv, m.normed, layer.qkv, rows);
  ops_.rotate(m.qkv, rows,
              {config.heads, config.kv_heads, config.head_dim,
               config.rope_layout == RopeLayout::interleaved, static_cast<float>(config.norm_eps)},
              m.angles, layer.qk_bias, layer.q_norm, layer.k_norm);
  ops_.append(k, v, m.places, m.sequences, m.geometry);
  for (const Memory::Branch& branch : m.branches) {
    KvRow place = m.places[branch.row];
    place.sequence = branch.sequence;
    const auto floats = static_cast<std::int64_t>(branch.row) * k.stride;
    ops_.append(k.columns(floats), v.columns(floats), {&place, 1}, m.sequences, m.geometry);
  }
}

// Store-h: normed becomes what a snapshot keeps of it, so that a run that reads one sees the same.
void Forward::round_inputs(std::int64_t rows) {
  Memory& m = *memory_;
  const auto hidden = static_cast<std::size_t>(model_.config().hidden);
  m.host_rows.resize(static_cast<std::size_t>(rows) * hidden);
  ops_.download(m.host_rows.data(), m.normed.data, m.host_rows.size() * sizeof(float));
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const KvRow& place = m.places[r];
    encode_hidden(
        plan_.storage, std::span(m.host_rows).subspan(r * hidden, hidden),
        m.caches[static_cast<std::size_t>(place.sequence)]->record(place.plane, place.position));
  }
  ops_.upload(m.normed.data, m.host_rows.data(), m.host_rows.size() * sizeof(float));
}

void Forward::restore(KvCache& cache) {
  if (!stores_inputs(plan_.storage)) return;
  Memory& m = *memory_;
  const ModelConfig& config = model_.config();
  const auto hidden = static_cast<std::size_t>(config.hidden);
  const auto restore_plane = [&](const Layer& layer, std::int32_t plane) {
    for (KvRow& row : m.places) {
      row.plane = plane;
      const auto r = static_cast<std::size_t>(&row - m.places.data());
      decode_hidden(plan_.storage, cache.record(plane, row.position),
                    std::span(m.host_rows).subspan(r * hidden, hidden));
    }
    ops_.upload(m.normed.data, m.host_rows.data(), m.host_rows.size() * sizeof(float));
    project(layer, static_cast<std::int64_t>(m.places.size()));
  };
  std::vector<Row> rows;
  for (std::int64_t begin = cache.first_record(); begin < cache.length();
       begin += static_cast<std::int64_t>(rows.size())) {
    rows.clear();
    const std::int64_t end = std::min(begin + max_rows_, cache.length());
    for (std::int64_t position = begin; position < end; ++position) {
      rows.push_back({&cache, position, 0, 0, 0});
    }
    place(rows);
    m.host_rows.resize(rows.size() * hidden);
    auto layer = m.layers.begin();
    for (std::int32_t i = 0; i < config.prelude_layers; ++i) {
      restore_plane(*layer++, plan_.prelude_plane(i));
    }
    for (std::int32_t i = 0; i < config.core_layers; ++i, ++layer) {
      for (std::int32_t loop = 0; loop < plan_.loops; ++loop) {
        restore_plane(*layer, plan_.core_plane(loop, i));
      }
    }
    for (std::int32_t i = 0; i < config.coda_layers; ++i) {
      restore_plane(*layer++, plan_.coda_plane(i));
    }
  }
}

// branch = down(silu(gate(normed)) * up(normed))
void Forward::run_mlp(const Layer& layer, std::int64_t rows) {
  Memory& m = *memory_;
  ops_.matmul(m.gate_up, m.normed, layer.gate_up, rows);
  ops_.gated_silu(m.gated, m.gate_up, rows, model_.config().ffn);
  ops_.matmul(m.branch, m.gated, layer.down, rows);
}

void Forward::end_early(std::span<const Row> rows) {
  Memory& m = *memory_;
  m.caches.clear();
  m.sequences.clear();
  std::vector<KvCopy> copies;
  for (const Row& row : rows) {
    const LoopPlan& plan = row.cache->plan();
    std::vector<KvCache*> caches(row.branch_caches.begin(), row.branch_caches.end());
    caches.push_back(row.cache);
    for (KvCache* cache : caches) {
      const std::int32_t sequence = sequence_of(*cache);
      for (std::int32_t loop = row.loop; loop < plan.loop_planes(); ++loop) {
        for (std::int32_t layer = 0; layer < plan.core_layers; ++layer) {
          copies.push_back({sequence, plan.core_plane(row.loop - 1, layer),
                            plan.core_plane(loop, layer), row.position});
        }
      }
    }
  }
  if (!copies.empty()) ops_.copy_positions(copies, m.sequences, m.geometry);
}

// `rows` rows that the slots of this call name, on the host.
std::span<const float> Forward::downloaded(Rows from, std::size_t rows) {
  Memory& m = *memory_;
  const std::int64_t hidden = model_.config().hidden;
  ops_.gather(m.x, from, m.slots, hidden);
  m.host_rows.resize(rows * static_cast<std::size_t>(hidden));
  ops_.download(m.host_rows.data(), m.x.data, m.host_rows.size() * sizeof(float));
  return m.host_rows;
}

std::span<const float> Forward::states(std::span<const Row> rows) {
  place(rows);
  return downloaded(memory_->state, rows.size());
}

std::span<const float> Forward::injected(std::span<const Row> rows) {
  if (model_.config().injection == Injection::none) return {};
  place(rows);
  return downloaded(memory_->injected, rows.size());
}

void Forward::restore(std::span<const Row> rows, std::span<const float> states,
                      std::span<const float> injected) {
  Memory& m = *memory_;
  place(rows);
  const std::int64_t hidden = model_.config().hidden;
  assert(states.size() == rows.size() * static_cast<std::size_t>(hidden));
  ops_.upload(m.x.data, states.data(), states.size_bytes());
  ops_.scatter(m.state, m.x, m.slots, hidden);
  if (model_.config().injection == Injection::none) return;
  assert(injected.size() == states.size());
  ops_.upload(m.x.data, injected.data(), injected.size_bytes());
  ops_.scatter(m.injected, m.x, m.slots, hidden);
}

void Forward::copy_slot(std::int32_t to, std::int32_t from) {
  Memory& m = *memory_;
  const std::int64_t hidden = model_.config().hidden;
  const auto copy = [&](Rows rows) {
    ops_.gather(m.x, rows, {&from, 1}, hidden);
    ops_.scatter(rows, m.x, {&to, 1}, hidden);
  };
  copy(m.state);
  if (model_.config().injection != Injection::none) copy(m.injected);
}

std::vector<float> Forward::gates(std::span<const Row> rows) {
  Memory& m = *memory_;
  const ModelConfig& config = model_.config();
  if (!config.exit_gate) {
    throw Error(ErrorKind::usage, "{}: the model has no exit gate", model_.path());
  }
  place(rows);
  ops_.gather(m.x, m.state, m.slots, config.hidden);
  ops_.matmul({m.branch.data, 1}, m.x, m.exit_gate, static_cast<std::int64_t>(rows.size()));
  std::vector<float> values(rows.size());
  ops_.download(values.data(), m.branch.data, values.size() * sizeof(float));
  for (float& value : values) {
    value = static_cast<float>(1.0 /
                               (1.0 + exact_exp(-static_cast<double>(value) - model_.exit_bias())));
  }
  return values;
}

}  // namespace tinyloop
