// SPDX-License-Identifier: Apache-2.0
// Packs a few megabytes of random panels for each number of inputs and copies them until the
// matrices are full: packing all of a model would take minutes.
#include "tinyloop/model/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "tinyloop/error.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

constexpr std::int64_t kFloatsDrawn = std::int64_t{1} << 20;  // of one number of inputs
constexpr std::size_t kAlignment = 64;

// `count` values, uniform in (low, high).
std::vector<float> draw(std::uint64_t seed, std::uint32_t stream, std::int64_t count, double low,
                        double high) {
  std::vector<float> values(static_cast<std::size_t>(count));
  constexpr auto kUse = static_cast<std::uint32_t>(NoiseUse::weights);
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const auto words = philox(seed, {static_cast<std::uint32_t>(i), stream, 0, kUse});
    for (std::size_t j = 0; j < std::min<std::size_t>(4, values.size() - i); ++j) {
      values[i + j] = static_cast<float>(low + (high - low) * (words[j] * 0x1p-32));
    }
  }
  return values;
}

struct PanelBytes {
  std::span<std::byte> data, scales;
};

// Panels of one number of inputs k, packed.
class RandomPanels {
 public:
  RandomPanels(WeightType type, std::int64_t k, std::uint64_t seed)
      : type_(type),
        k_(k),
        count_(std::max<std::int64_t>(1, kFloatsDrawn / (kPanel * k))),
        data_bytes_(packed_data_bytes(type, kPanel, k)),
        scale_bytes_(packed_scale_bytes(type, kPanel, k)) {
    // Sums of k products with inputs of size 1 then have a variance of 1.
    const double limit = std::sqrt(3.0 / static_cast<double>(k));
    rows_ = draw(seed, static_cast<std::uint32_t>(k), count_ * kPanel * k, -limit, limit);
    data_.resize(static_cast<std::size_t>(count_) * data_bytes_);
    scales_.resize(static_cast<std::size_t>(count_) * scale_bytes_);
    for (std::int64_t panel = 0; panel < count_; ++panel) {
      pack_panel(type_, k_, rows_of(panel), part(data_, panel, data_bytes_),
                 part(scales_, panel, scale_bytes_));
    }
  }

  // Fills a matrix of n outputs, beginning with another panel each time.
  void fill(std::int64_t n, PanelBytes to) {
    for (std::int64_t panel = 0; panel < panels_of(n); ++panel, next_ = (next_ + 1) % count_) {
      const std::span<std::byte> data = part(to.data, panel, data_bytes_);
      const std::span<std::byte> scales = part(to.scales, panel, scale_bytes_);
      const std::int64_t present = std::min(kPanel, n - panel * kPanel);
      if (present < kPanel) {  // absent rows are zero
        const std::span<const float> rows = rows_of(next_);
        std::vector<float> some(rows.begin(), rows.end());
        std::fill(some.begin() + static_cast<std::ptrdiff_t>(present * k_), some.end(), 0.0f);
        pack_panel(type_, k_, some, data, scales);
        continue;
      }
      std::ranges::copy(part(data_, next_, data_bytes_), data.begin());
      std::ranges::copy(part(scales_, next_, scale_bytes_), scales.begin());
    }
  }

 private:
  std::span<const float> rows_of(std::int64_t panel) const {
    const auto floats = static_cast<std::size_t>(kPanel * k_);
    return std::span(rows_).subspan(static_cast<std::size_t>(panel) * floats, floats);
  }
  static std::span<std::byte> part(std::span<std::byte> all, std::int64_t index, std::size_t size) {
    return all.subspan(static_cast<std::size_t>(index) * size, size);
  }

  WeightType type_;
  std::int64_t k_, count_;
  std::size_t data_bytes_, scale_bytes_;
  std::int64_t next_ = 0;
  std::vector<float> rows_;
  std::vector<std::byte> data_, scales_;
};

}  // namespace

Model random_model(const ModelConfig& config, WeightType type, std::uint64_t seed) {
  validate(config, "random model");
  const std::vector<ModelTensor> wanted = model_tensors(config);
  const auto type_of = [&](const ModelTensor& tensor) {
    return tensor.name == "exit_gate" ? WeightType::f32 : type;
  };

  std::vector<TensorView> tensors;
  std::size_t total = 0;
  for (const ModelTensor& tensor : wanted) {
    for (TensorPlan& plan : stored_tensors(tensor, type_of(tensor))) {
      const auto bytes = bytes_of_shape(plan.type, plan.shape);
      if (!bytes || *bytes > static_cast<std::size_t>(PTRDIFF_MAX) - kAlignment - total) {
        throw Error(ErrorKind::usage, "random model: its weights do not fit in memory");
      }
      total = (total + *bytes + kAlignment - 1) / kAlignment * kAlignment;
      tensors.push_back({std::move(plan.name), plan.type, std::move(plan.shape), {}});
    }
  }
  std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(::operator new (total, std::align_val_t{kAlignment})),
      [](std::byte* bytes) { ::operator delete (bytes, std::align_val_t{kAlignment}); });

  std::map<std::pair<WeightType, std::int64_t>, RandomPanels> panels;
  std::size_t at = 0, index = 0;
  const auto place = [&] {  // the next tensor's bytes
    TensorView& tensor = tensors[index++];
    const std::size_t bytes = *bytes_of_shape(tensor.type, tensor.shape);
    const std::span<std::byte> placed(memory.get() + at, bytes);
    tensor.bytes = placed;
    at = (at + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return placed;
  };
  std::uint32_t stream = 0;
  for (const ModelTensor& tensor : wanted) {
    const std::span<std::byte> data = place();
    if (!tensor.matrix) {
      const std::vector<float> values = draw(seed + 1, stream++, tensor.n, 0.75, 1.25);
      std::memcpy(data.data(), values.data(), data.size());
      continue;
    }
    const WeightType stored = type_of(tensor);
    const std::span<std::byte> scales = is_quantised(stored) ? place() : std::span<std::byte>();
    panels.try_emplace({stored, tensor.k}, stored, tensor.k, seed)
        .first->second.fill(tensor.n, {data, scales});
  }
  return Model::in_memory(config, tensors, memory, fmt::format("random:{}", seed));
}

}  // namespace tinyloop
