// SPDX-License-Identifier: Apache-2.0
// Attaches the weights where they are mapped and lays out a few buffers of max_rows rows that every
// layer reuses.
#include "tinyloop/engine/forward_memory.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tinyloop {

namespace {

// Angular frequency of each rotated pair, in float32 as the reference implementations hold it.
std::vector<float> rope_frequencies(const ModelConfig& config) {
  std::vector<float> frequencies;
  const RopeScaling& scaling = config.rope_scaling;
  for (std::int32_t j = 0; j < config.head_dim / 2; ++j) {
    double frequency = std::pow(config.rope_theta, -2.0 * j / config.head_dim);
    if (scaling.factor != 1.0) {
      // Llama 3: long wavelengths are stretched by `factor`, short ones kept, those between
      // blended.
      const double turns =
          static_cast<double>(scaling.original_context) * frequency / (2 * std::numbers::pi);
      const double keep = (turns - scaling.low_frequency_factor) /
                          (scaling.high_frequency_factor - scaling.low_frequency_factor);
      const double share = std::clamp(keep, 0.0, 1.0);
      frequency *= share + (1.0 - share) / scaling.factor;
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace

Forward::Memory::Memory(const Model& model, Ops& ops, std::int64_t max_rows,
                        std::int64_t state_slots) {
  const ModelConfig& config = model.config();
  const auto attach = [&](std::span<const std::byte> host) {
    if (host.empty()) return DevicePtr{};
    attached.emplace_back(ops, host);
    return attached.back().ptr();
  };
  const auto matrix = [&](const WeightView& view) {
    return Matrix{view.type, view.n, view.k, attach(view.data), attach(view.scales)};
  };
  const auto vector = [&](VectorView view) { return attach(std::as_bytes(view)); };
  embedding = matrix(model.embedding());
  head = config.tied_head ? embedding : matrix(model.head());
  if (config.injection == Injection::concat) adapter = matrix(model.adapter());
  if (config.exit_gate) exit_gate = matrix(model.exit_gate());
  final_norm = vector(model.final_norm());
  for (const LayerWeights& w : model.layers()) {
    layers.push_back({matrix(w.qkv), matrix(w.out), matrix(w.gate_up), matrix(w.down),
                      vector(w.norm1), vector(w.norm2), vector(w.norm3), vector(w.norm4),
                      vector(w.q_norm), vector(w.k_norm), vector(w.qk_bias)});
  }
  frequencies = rope_frequencies(config);
  slot_positions.assign(static_cast<std::size_t>(state_slots), -1);
  slot_angles.resize(static_cast<std::size_t>(state_slots) * frequencies.size() * 2);

  const auto rows_of = [&](std::int64_t rows, std::int64_t width) {
    buffers.emplace_back(ops, static_cast<std::size_t>(rows * width) * sizeof(float));
    return Rows{buffers.back().ptr(), width};
  };
  state = rows_of(state_slots, config.hidden);
  if (config.injection != Injection::none) injected = rows_of(state_slots, config.hidden);
  x = rows_of(max_rows, config.hidden);
  normed = rows_of(max_rows, config.hidden);
  branch = rows_of(max_rows, config.hidden);
  if (config.injection == Injection::relaxed) entry = rows_of(max_rows, config.hidden);
  if (config.injection == Injection::concat) joined = rows_of(max_rows, 2 * config.hidden);
  qkv = rows_of(max_rows, config.q_width() + 2 * config.kv_width());
  attended = rows_of(max_rows, config.q_width());
  gate_up = rows_of(max_rows, 2 * config.ffn);
  gated = rows_of(max_rows, config.ffn);
  angles = rows_of(max_rows, config.head_dim).data;
}

}  // namespace tinyloop
