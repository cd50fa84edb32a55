// SPDX-License-Identifier: Apache-2.0
// Sums of squares, taken where the matrices are multiplied: a device that looks on while another
// one computes.
#include "tinyloop/measure/input_weights.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tinyloop/engine/forward.h"
#include "tinyloop/engine/memory_need.h"
#include "tinyloop/error.h"
#include "tinyloop/kv/kv_cache.h"
#include "tinyloop/prompt/prefill.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

// Squares of the inputs of one matrix, in double and in order of the rows.
struct Squares {
  std::vector<double> sums;
  std::int64_t rows = 0;
};

class LookingOn final : public Ops {
 public:
  explicit LookingOn(Ops& ops) : ops_(ops) {}

  // By where the host has the matrix.
  const Squares* of(std::span<const std::byte> host) const {
    const auto found = squares_.find(host.data());
    return found == squares_.end() ? nullptr : &found->second;
  }

  void matmul(Rows y, Rows x, const Matrix& w, std::int64_t rows) override {
    look(x, w, rows);
    ops_.matmul(y, x, w, rows);
  }
  DevicePtr attach(std::span<const std::byte> host) override {
    const DevicePtr attached = ops_.attach(host);
    hosts_[attached.address] = host.data();
    return attached;
  }

  std::string name() const override { return ops_.name(); }
  std::string arithmetic() const override { return ops_.arithmetic(); }
  void submit() override { ops_.submit(); }
  void wait() override { ops_.wait(); }
  DevicePtr allocate(std::size_t bytes) override { return ops_.allocate(bytes); }
  void release(DevicePtr memory, std::size_t bytes) override { ops_.release(memory, bytes); }
  void upload(DevicePtr to, const void* from, std::size_t bytes) override {
    ops_.upload(to, from, bytes);
  }
  void download(void* to, DevicePtr from, std::size_t bytes) override {
    ops_.download(to, from, bytes);
  }
  void copy(DevicePtr to, DevicePtr from, std::size_t bytes) override {
    ops_.copy(to, from, bytes);
  }
  std::optional<std::size_t> memory_left() const override { return ops_.memory_left(); }
  void detach(DevicePtr attached, std::size_t bytes) override { ops_.detach(attached, bytes); }
  void gather(Rows to, Rows from, std::span<const std::int32_t> index,
              std::int64_t width) override {
    ops_.gather(to, from, index, width);
  }
  void scatter(Rows to, Rows from, std::span<const std::int32_t> index,
               std::int64_t width) override {
    ops_.scatter(to, from, index, width);
  }
  void embed(Rows to, const Matrix& table, std::span<const TokenId> ids, float scale) override {
    ops_.embed(to, table, ids, scale);
  }
  void add(Rows y, Rows x, std::int64_t rows, std::int64_t width) override {
    ops_.add(y, x, rows, width);
  }
  void blend(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width) override {
    ops_.blend(y, a, x, b, rows, width);
  }
  void rms_norm(Rows y, Rows x, DevicePtr weight, std::int64_t rows, std::int64_t width,
                float eps) override {
    ops_.rms_norm(y, x, weight, rows, width, eps);
  }
  void gated_silu(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width) override {
    ops_.gated_silu(out, gate_up, rows, width);
  }
  void rotate(Rows qkv, std::int64_t rows, const RotateShape& shape, DevicePtr angles,
              DevicePtr bias, DevicePtr q_norm, DevicePtr k_norm) override {
    ops_.rotate(qkv, rows, shape, angles, bias, q_norm, k_norm);
  }
  void append(Rows k, Rows v, std::span<const KvRow> rows, std::span<const KvSegments> sequences,
              const KvGeometry& geometry) override {
    ops_.append(k, v, rows, sequences, geometry);
  }
  void copy_positions(std::span<const KvCopy> copies, std::span<const KvSegments> sequences,
                      const KvGeometry& geometry) override {
    ops_.copy_positions(copies, sequences, geometry);
  }
  void attention(Rows out, Rows q, std::span<const KvRow> rows,
                 std::span<const KvSegments> sequences, const AttentionShape& shape) override {
    ops_.attention(out, q, rows, sequences, shape);
  }

 private:
  void look(Rows x, const Matrix& w, std::int64_t rows) {
    const auto host = hosts_.find(w.data.address);
    if (host == hosts_.end()) return;
    Squares& squares = squares_[host->second];
    squares.sums.resize(static_cast<std::size_t>(w.k));
    row_.resize(static_cast<std::size_t>(w.k));
    for (std::int64_t r = 0; r < rows; ++r) {
      ops_.download(row_.data(), x.columns(r * x.stride).data, row_.size() * sizeof(float));
      for (std::size_t i = 0; i < row_.size(); ++i) {
        squares.sums[i] += static_cast<double>(row_[i]) * static_cast<double>(row_[i]);
      }
    }
    squares.rows += rows;
  }

  Ops& ops_;
  std::unordered_map<const std::byte*, const std::byte*> hosts_;  // of what is attached
  std::unordered_map<const std::byte*, Squares> squares_;
  std::vector<float> row_;
};

// Nothing where the squares say nothing.
std::vector<float> weights_of(const Squares& squares) {
  double mean = 0.0;
  for (const double sum : squares.sums) mean += sum;
  mean /= static_cast<double>(squares.sums.size());
  if (!(mean > 0.0)) return {};
  std::vector<float> weights;
  for (const double sum : squares.sums) {
    // Only their ratios count.
    weights.push_back(static_cast<float>(sum / mean + 0.01));
    if (!std::isfinite(weights.back())) return {};
  }
  return weights;
}

}  // namespace

std::map<std::string, std::vector<float>> input_weights(
    const Model& model, Ops& ops, std::span<const std::vector<TokenId>> sequences) {
  const ModelConfig& config = model.config();
  std::int64_t longest = 1;
  for (const std::vector<TokenId>& ids : sequences) {
    const std::int64_t length = std::ssize(ids);
    if (length == 0 || length > config.context) {
      throw Error(ErrorKind::usage, "a sequence of {} ids: the model's context holds {}", length,
                  config.context);
    }
    longest = std::max(longest, length);
  }
  constexpr std::int64_t kMostRows = 256;
  const auto rows = static_cast<std::int32_t>(std::min(longest, kMostRows));
  const LoopPlan plan = make_loop_plan(config, 0, 0);
  check_memory(ops, memory_need(model, plan, rows, rows, longest));
  LookingOn looking(ops);
  {
    Forward forward(model, looking, plan, InitialStates::parse("", config), rows, rows);
    for (const std::vector<TokenId>& ids : sequences) {
      KvCache cache(looking, plan);
      prefill(forward, cache, ids, rows);
    }
  }
  std::map<std::string, std::vector<float>> all;
  const auto add = [&](const std::string& name, const WeightView& matrix) {
    const Squares* squares = matrix.present() ? looking.of(matrix.data) : nullptr;
    if (squares == nullptr) return;
    std::vector<float> weights = weights_of(*squares);
    if (!weights.empty()) all.emplace(name, std::move(weights));
  };
  add("adapter", model.adapter());
  if (!config.tied_head) add("head", model.head());
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    for (const LayerMatrix& matrix : kLayerMatrices) {
      add(fmt::format("layers.{}.{}", i, matrix.name), model.layers()[i].*matrix.weight);
    }
  }
  return all;
}

std::vector<TokenId> random_text(const ModelConfig& config, std::int64_t count) {
  std::vector<TokenId> ids;
  constexpr auto kUse = static_cast<std::uint32_t>(NoiseUse::calibration);
  for (std::int64_t i = 0; i < std::min(count, config.context); ++i) {
    const auto word = philox(0, {static_cast<std::uint32_t>(i), 0, 0, kUse}).front();
    const auto vocab = static_cast<std::uint64_t>(config.vocab);
    ids.push_back(static_cast<TokenId>((word * vocab) >> 32));
  }
  return ids;
}

}  // namespace tinyloop
