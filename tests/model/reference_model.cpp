// SPDX-License-Identifier: Apache-2.0
// The looped transformer in double precision; see the header. Formulas: RMS norm arXiv 1910.07467,
// RoPE arXiv 2104.09864, SwiGLU arXiv 2002.05202, Ouro arXiv 2510.25741, Huginn arXiv 2502.05171,
// relaxed looping arXiv 2605.23872.
#include "model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "tinyloop/model/model.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {
namespace {

using View = std::span<const double>;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

View row(View matrix, std::int64_t index, std::int64_t width) {
  return matrix.subspan(size(index * width), size(width));
}

std::span<double> row(Doubles& matrix, std::int64_t index, std::int64_t width) {
  return std::span(matrix).subspan(size(index * width), size(width));
}

double dot(View a, View b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// w [n][x.size()] times x
Doubles times(View w, View x) {
  if (x.empty() || w.size() % x.size() != 0) throw std::logic_error("reference: shape of a matrix");
  Doubles y(w.size() / x.size());
  for (std::size_t n = 0; n < y.size(); ++n) y[n] = dot(w.subspan(n * x.size(), x.size()), x);
  return y;
}

Doubles rms_norm(View x, View weight, double eps) {
  if (weight.size() != x.size()) throw std::logic_error("reference: shape of a norm");
  const double scale = 1.0 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + eps);
  Doubles y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

void add(std::span<double> y, View x) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += x[i];
}

void copy(View from, std::span<double> to) { std::copy(from.begin(), from.end(), to.begin()); }

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Angular frequency of pair j; rope_type llama3 stretches the long wavelengths and blends the
// middle ones.
double frequency(const ModelConfig& config, std::int32_t pair) {
  const double plain = std::pow(config.rope_theta, -2.0 * pair / config.head_dim);
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.factor == 1.0) return plain;
  const double wavelength = 2.0 * std::numbers::pi / plain;
  const double turns = static_cast<double>(scaling.original_context) / wavelength;
  if (turns > scaling.high_frequency_factor) return plain;
  if (turns < scaling.low_frequency_factor) return plain / scaling.factor;
  const double blend = (turns - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1.0 - blend) * plain / scaling.factor + blend * plain;
}

void rotate(const ModelConfig& config, std::int64_t position, std::span<double> head) {
  for (std::int32_t pair = 0; pair < config.head_dim / 2; ++pair) {
    const bool half = config.rope_layout == RopeLayout::half;
    double& a = head[size(half ? pair : 2 * pair)];
    double& b = head[size(half ? pair + config.head_dim / 2 : 2 * pair + 1)];
    const double angle = static_cast<double>(position) * frequency(config, pair);
    const double old_a = a;
    a = old_a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + old_a * std::sin(angle);
  }
}

// What one head's K or V is after it was stored and read back; the arithmetic of device/kv_tile.h.
void store(StorageMode mode, std::span<double> vector) {
  float greatest = 0.0f;
  for (const double x : vector) greatest = std::max(greatest, std::fabs(static_cast<float>(x)));
  const float steps = mode == StorageMode::int8 ? 127.0f : 7.0f;
  const float scale = greatest / steps;
  for (double& x : vector) {
    const float value = static_cast<float>(x);
    if (mode == StorageMode::f32) x = value;
    if (mode == StorageMode::f16) x = half_to_float(float_to_half(value));
    if (mode == StorageMode::int8 || mode == StorageMode::int4) {
      x = scale == 0.0f ? 0.0f : std::nearbyint(value * (1.0f / scale)) * scale;
    }
  }
}

struct Plane {
  Doubles k, v;  // [positions][kv_width]
};

class Run {
 public:
  Run(const ModelConfig& config, const ReferenceWeights& weights, std::span<const TokenId> ids,
      const ReferenceOptions& options)
      : config_(config), weights_(weights), ids_(ids), options_(options) {
    loops_ = options.loops == 0 ? config.default_loops : options.loops;
    slots_ = options.shared_planes == 0 ? loops_ : options.shared_planes;
    if (weights.layers.size() != size(config.layers())) throw std::logic_error("reference: layers");
    const auto length = static_cast<std::int64_t>(ids.size());
    planes_.resize(size(config.prelude_layers + slots_ * config.core_layers + config.coda_layers));
    for (Plane& plane : planes_) {
      plane.k.resize(size(length * config.kv_width()));
      plane.v.resize(size(length * config.kv_width()));
    }
    result_.loops = loops_;
    result_.hidden = config.hidden;
    result_.vocab = config.vocab;
    result_.logits.resize(size(length * config.vocab));
    result_.states.resize(size(loops_ * length * config.hidden));
    if (config.exit_gate) result_.gates.resize(size(loops_ * length));
    result_.exit_loops.assign(size(length), loops_ - 1);
  }

  ReferenceResult all() {
    std::int64_t begin = 0;
    std::vector<std::int64_t> chunks = options_.chunks;
    if (chunks.empty()) chunks.push_back(static_cast<std::int64_t>(ids_.size()));
    for (const std::int64_t length : chunks) {
      chunk(begin, begin + length);
      begin += length;
    }
    if (begin != static_cast<std::int64_t>(ids_.size()))
      throw std::logic_error("reference: chunks");
    return std::move(result_);
  }

 private:
  struct Token {  // one position of the chunk that runs
    std::int64_t position = 0;
    Doubles x;         // the state
    Doubles e;         // the prelude's output
    Doubles first;     // g(x0), relaxed looping only
    Doubles selected;  // what coda and head get
    double survival = 1.0, exit_sum = 0.0;
    bool chosen = false, running = true;
  };

  std::int32_t core_plane(std::int32_t loop, std::int32_t layer) const {
    return config_.prelude_layers + loop % slots_ * config_.core_layers + layer;
  }

  void chunk(std::int64_t begin, std::int64_t end) {
    std::vector<Token> tokens;
    for (std::int64_t p = begin; p < end; ++p) {
      Token token;
      token.position = p;
      const View embedded = row(weights_.embedding, ids_[size(p)], config_.hidden);
      for (const double x : embedded) token.x.push_back(x * config_.embedding_scale);
      tokens.push_back(std::move(token));
    }
    for (std::int32_t i = 0; i < config_.prelude_layers; ++i) layer(i, i, tokens);
    for (Token& token : tokens) {
      token.e = token.x;
      if (config_.initial_state == InitialState::free) token.x = initial_state(token.position);
    }
    for (std::int32_t loop = 0; loop < loops_; ++loop) one_loop(loop, tokens);
    for (Token& token : tokens) {
      token.running = true;
      token.x = token.selected;
      if (config_.injection == Injection::relaxed) {
        const double beta = config_.relaxed_beta;
        for (std::size_t i = 0; i < token.x.size(); ++i) {
          token.x[i] = beta * token.first[i] + (1.0 - beta) * token.x[i];
        }
      }
      if (config_.post_loop_norm) token.x = final_norm(token.x);
    }
    const std::int32_t before_coda = config_.prelude_layers + config_.core_layers;
    for (std::int32_t i = 0; i < config_.coda_layers; ++i) {
      layer(before_coda + i, core_plane(slots_ - 1, 0) + config_.core_layers + i, tokens);
    }
    for (Token& token : tokens) {
      const Doubles x = config_.final_norm ? final_norm(token.x) : token.x;
      const Doubles& head = config_.tied_head ? weights_.embedding : weights_.head;
      copy(times(head, x), row(result_.logits, token.position, config_.vocab));
    }
  }

  void one_loop(std::int32_t loop, std::vector<Token>& tokens) {
    std::vector<Doubles> before;
    for (Token& token : tokens) {
      before.push_back(token.x);
      if (config_.injection == Injection::concat && token.running) {
        Doubles both = token.x;
        both.insert(both.end(), token.e.begin(), token.e.end());
        token.x = times(weights_.adapter, both);
      }
    }
    for (std::int32_t i = 0; i < config_.core_layers; ++i) {
      layer(config_.prelude_layers + i, core_plane(loop, i), tokens);
    }
    const auto length = static_cast<std::int64_t>(ids_.size());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      Token& token = tokens[t];
      if (token.running) {
        if (config_.injection == Injection::relaxed) {
          if (loop == 0) token.first = token.x;
          const double step = config_.relaxed_alpha / loops_;
          for (std::size_t i = 0; i < token.x.size(); ++i) {
            token.x[i] = before[t][i] + step * (token.x[i] - before[t][i]);
          }
        }
        if (config_.loop_norm) token.x = final_norm(token.x);
      }
      copy(token.x, row(result_.states, loop * length + token.position, config_.hidden));
      leave(loop, token);
    }
  }

  // Decides whether this loop's state is the one that coda and head get.
  void leave(std::int32_t loop, Token& token) {
    if (config_.exit_gate && token.running) {
      const double lambda = sigmoid(dot(weights_.exit_gate, token.x) + weights_.exit_bias);
      const auto length = static_cast<std::int64_t>(ids_.size());
      result_.gates[size(loop * length + token.position)] = lambda;
      token.exit_sum += lambda * token.survival;
      token.survival *= 1.0 - lambda;
    }
    const bool exits = options_.exit_threshold && token.exit_sum >= *options_.exit_threshold;
    if (token.chosen || (!exits && loop + 1 < loops_)) return;
    token.chosen = true;
    token.selected = token.x;
    result_.exit_loops[size(token.position)] = loop;
    if (token.position < options_.stops_from) return;
    token.running = false;
    for (std::int32_t later = loop + 1; later < slots_; ++later) {
      for (std::int32_t i = 0; i < config_.core_layers; ++i) {
        const std::int64_t width = config_.kv_width(), p = token.position;
        Plane &from = planes_[size(core_plane(loop, i))], &to = planes_[size(core_plane(later, i))];
        copy(row(from.k, p, width), row(to.k, p, width));
        copy(row(from.v, p, width), row(to.v, p, width));
      }
    }
  }

  void layer(std::int32_t index, std::int32_t plane, std::vector<Token>& tokens) {
    const ReferenceLayer& w = weights_.layers[size(index)];
    const bool pre = config_.block == BlockKind::pre;
    const bool inside = config_.block == BlockKind::sandwich_out;
    // K and V of all tokens of the chunk are stored first, then each token attends.
    std::vector<Doubles> queries;
    for (const Token& token : tokens) {
      queries.push_back(token.running ? project(w, planes_[size(plane)], token) : Doubles());
    }
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      Token& token = tokens[t];
      if (!token.running) continue;
      const Doubles a = times(w.out, attention(planes_[size(plane)], queries[t], token.position));
      add(token.x, inside ? norm(a, w.norm2) : a);
      if (!pre && !inside) token.x = norm(token.x, w.norm2);
      const Doubles m = mlp(w, norm(token.x, w.norm3));
      add(token.x, inside ? norm(m, w.norm4) : m);
      if (!pre && !inside) token.x = norm(token.x, w.norm4);
    }
  }

  // Stores the token's K and V and returns its query.
  Doubles project(const ReferenceLayer& w, Plane& plane, const Token& token) const {
    const Doubles x = norm(token.x, w.norm1);
    Doubles q = times(w.q, x), k = times(w.k, x), v = times(w.v, x);
    if (config_.qk_bias) {
      add(q, row(w.qk_bias, 0, config_.q_width()));
      add(k, View(w.qk_bias).subspan(q.size()));
    }
    const std::int32_t d = config_.head_dim;
    for (std::int32_t h = 0; h < config_.heads; ++h) {
      const std::span<double> head = row(q, h, d);
      if (config_.qk_norm) copy(norm(head, w.q_norm), head);
      rotate(config_, token.position, head);
    }
    for (std::int32_t h = 0; h < config_.kv_heads; ++h) {
      const std::span<double> head = row(k, h, d);
      if (config_.qk_norm) copy(norm(head, w.k_norm), head);
      rotate(config_, token.position, head);
      if (options_.kv) {
        store(*options_.kv, head);
        store(*options_.kv, row(v, h, d));
      }
    }
    copy(k, row(plane.k, token.position, config_.kv_width()));
    copy(v, row(plane.v, token.position, config_.kv_width()));
    return q;
  }

  Doubles attention(const Plane& plane, View q, std::int64_t position) const {
    const std::int64_t d = config_.head_dim, width = config_.kv_width();
    const std::int64_t first =
        options_.window == 0 ? 0 : std::max<std::int64_t>(0, position - options_.window + 1);
    Doubles out(q.size());
    for (std::int32_t h = 0; h < config_.heads; ++h) {
      const std::int64_t column = h / (config_.heads / config_.kv_heads) * d;
      Doubles weight;
      for (std::int64_t p = first; p <= position; ++p) {
        const View key = View(plane.k).subspan(size(p * width + column), size(d));
        weight.push_back(dot(row(q, h, d), key) / std::sqrt(static_cast<double>(d)));
      }
      const double greatest = *std::max_element(weight.begin(), weight.end());
      double sum = 0.0;
      for (double& s : weight) sum += s = std::exp(s - greatest);
      for (std::int64_t p = first; p <= position; ++p) {
        const double share = weight[size(p - first)] / sum;
        for (std::int64_t c = 0; c < d; ++c) {
          out[size(h * d + c)] += share * plane.v[size(p * width + column + c)];
        }
      }
    }
    return out;
  }

  Doubles mlp(const ReferenceLayer& w, View x) const {
    Doubles gate = times(w.gate, x);
    const Doubles up = times(w.up, x);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
    return times(w.down, gate);
  }

  Doubles norm(View x, View weight) const { return rms_norm(x, weight, config_.norm_eps); }
  Doubles final_norm(View x) const { return norm(x, weights_.final_norm); }

  Doubles initial_state(std::int64_t position) const {
    if (options_.initial_states.empty()) return Doubles(size(config_.hidden), 0.0);
    const View given = row(options_.initial_states, position, config_.hidden);
    return Doubles(given.begin(), given.end());
  }

  const ModelConfig& config_;
  const ReferenceWeights& weights_;
  std::span<const TokenId> ids_;
  const ReferenceOptions& options_;
  std::int32_t loops_ = 0, slots_ = 0;
  std::vector<Plane> planes_;
  ReferenceResult result_;
};

// Rows first .. first + count - 1 of a packed matrix.
Doubles unpack(const WeightView& w, std::int64_t first, std::int64_t count) {
  Doubles values;
  for (std::int64_t n = first; n < first + count; ++n) {
    for (std::int64_t k = 0; k < w.k; ++k) {
      values.push_back(unpack_value(w.type, w.k, w.data, w.scales, n, k));
    }
  }
  return values;
}

Doubles doubles(VectorView values) { return Doubles(values.begin(), values.end()); }

}  // namespace

ReferenceWeights reference_weights(const Model& model) {
  const ModelConfig& config = model.config();
  ReferenceWeights w;
  w.embedding = unpack(model.embedding(), 0, config.vocab);
  if (!config.tied_head) w.head = unpack(model.head(), 0, config.vocab);
  if (model.adapter().present()) w.adapter = unpack(model.adapter(), 0, config.hidden);
  if (model.exit_gate().present()) w.exit_gate = unpack(model.exit_gate(), 0, 1);
  w.exit_bias = model.exit_bias();
  w.final_norm = doubles(model.final_norm());
  for (const LayerWeights& from : model.layers()) {
    ReferenceLayer to;
    const std::int64_t q = config.q_width(), kv = config.kv_width();
    to.q = unpack(from.qkv, 0, q);
    to.k = unpack(from.qkv, q, kv);
    to.v = unpack(from.qkv, q + kv, kv);
    to.out = unpack(from.out, 0, config.hidden);
    to.gate = unpack(from.gate_up, 0, config.ffn);
    to.up = unpack(from.gate_up, config.ffn, config.ffn);
    to.down = unpack(from.down, 0, config.hidden);
    to.norm1 = doubles(from.norm1);
    to.norm2 = doubles(from.norm2);
    to.norm3 = doubles(from.norm3);
    to.norm4 = doubles(from.norm4);
    to.q_norm = doubles(from.q_norm);
    to.k_norm = doubles(from.k_norm);
    to.qk_bias = doubles(from.qk_bias);
    w.layers.push_back(std::move(to));
  }
  return w;
}

std::span<const double> ReferenceResult::logits_at(std::int64_t position) const {
  return row(logits, position, vocab);
}

std::span<const double> ReferenceResult::state_at(std::int32_t loop, std::int64_t position) const {
  return row(states, loop * positions() + position, hidden);
}

double ReferenceResult::gate_at(std::int32_t loop, std::int64_t position) const {
  return gates[size(loop * positions() + position)];
}

ReferenceResult run_reference(const ModelConfig& config, const ReferenceWeights& weights,
                              std::span<const TokenId> ids, const ReferenceOptions& options) {
  return Run(config, weights, ids, options).all();
}

std::vector<TokenId> reference_greedy(const ModelConfig& config, const ReferenceWeights& weights,
                                      std::span<const TokenId> prompt, std::int64_t count,
                                      const ReferenceOptions& options) {
  std::vector<TokenId> ids(prompt.begin(), prompt.end());
  ReferenceOptions step = options;
  if (step.chunks.empty()) step.chunks.push_back(static_cast<std::int64_t>(prompt.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    const ReferenceResult result = run_reference(config, weights, ids, step);
    ids.push_back(greatest_id(result.logits_at(result.positions() - 1)));
    step.chunks.push_back(1);
  }
  return std::vector<TokenId>(ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end());
}

TokenId greatest_id(std::span<const double> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace tinyloop
