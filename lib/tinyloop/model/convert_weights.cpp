// SPDX-License-Identifier: Apache-2.0
// Streams rows through the packing, and sums up what it changes.
#include "tinyloop/model/convert_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/model/gguf_blocks.h"
#include "tinyloop/model/model_writer.h"

namespace tinyloop {

namespace {

constexpr std::size_t kForgetEvery = std::size_t{16} << 20;  // bytes of a source

// The type that holds a foreign one best: without loss where is_same() says so.
WeightType kept_type(BlockType type) {
  switch (type) {
    case BlockType::f32:
      return WeightType::f32;
    case BlockType::f16:
      return WeightType::f16;
    case BlockType::bf16:
      return WeightType::bf16;
    case BlockType::q4_0:
    case BlockType::q4_1:
      return WeightType::q4_1;
    default:
      return WeightType::q8;
  }
}

// Where a row of ours is in a tensor whose heads have the two halves' rows in pairs; 0: as it is.
std::size_t row_there(std::size_t row, std::size_t paired_head) {
  if (paired_head == 0) return row;
  const std::size_t head = row / paired_head, within = row % paired_head, half = paired_head / 2;
  return head * paired_head + within % half * 2 + within / half;
}

// The greatest magnitude that the type holds: beyond it a value would round to infinity, or a
// group's scale would.
float greatest_of(WeightType type) {
  switch (type) {
    case WeightType::f16:
      return std::nextafterf(65520.0f, 0.0f);
    case WeightType::bf16:
      return std::bit_cast<float>(0x7f7f7fffu);
    case WeightType::q8:
      return 65504.0f * 127.0f;
    case WeightType::q4:
      return 65504.0f * 55.0f;  // either end of the codebook reaches that far
    case WeightType::q4_1:
      return 65504.0f;  // of the minimum
    case WeightType::f32:
      break;
  }
  return std::numeric_limits<float>::max();
}

void check_values(const ForeignTensor& source, WeightType stored, std::span<const float> values,
                  std::int64_t first) {
  const float greatest = greatest_of(stored);
  bool good = true;
  for (const float value : values) good = good && std::fabs(value) <= greatest;
  if (good) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) <= greatest) continue;
    throw Error(ErrorKind::data, "{}: tensor {}: value {} at element {} {}", source.file->path(),
                source.name, values[i], first + static_cast<std::int64_t>(i),
                std::isfinite(values[i]) ? fmt::format("is too large for {}", name_of(stored))
                                         : "is not finite");
  }
}

std::string class_of(const ModelTensor& tensor) {
  if (tensor.layer < 0) return tensor.name;
  const bool attention = tensor.name.ends_with(".qkv") || tensor.name.ends_with(".out");
  return attention ? "attention" : "mlp";
}

// Sums of one class of tensors, in double and in file order.
struct ErrorSum {
  double source = 0.0, difference = 0.0;
  float largest = 0.0f;
  std::int64_t elements = 0;
};

// A row in the foreign form.
struct StoredRow {
  BlockType type = BlockType::f32;
  std::span<const std::byte> bytes;
};

class Converter {
 public:
  Converter(ModelWriter& writer, const ImportOptions& options, std::int64_t total)
      : writer_(writer), options_(options), total_(total) {}

  void convert(const WeightJob& job) {
    job.tensor.matrix ? matrix(job) : vector(job);
    for (const auto& [source, paired_head] : job.parts) source.file->forget(source.bytes);
  }

  std::vector<ConversionError> errors() const {
    std::vector<ConversionError> errors;
    for (const auto& [key, sum] : sums_) {
      ConversionError error;
      error.tensor_class = key.first;
      error.type = name_of(key.second);
      error.elements = sum.elements;
      if (sum.source > 0.0) {
        error.relative_rms = std::sqrt(sum.difference / sum.source);
        error.largest = sum.largest / std::sqrt(sum.source / static_cast<double>(sum.elements));
      }
      errors.push_back(std::move(error));
    }
    return errors;
  }

 private:
  void vector(const WeightJob& job) {
    std::vector<float> values(static_cast<std::size_t>(job.tensor.n));
    const ForeignTensor& source = job.parts.front().tensor;
    read_blocks(source.type, source.bytes, values);
    check_values(source, WeightType::f32, values, 0);
    writer_.append_vector(values);
    done_ += static_cast<std::int64_t>(source.bytes.size());
    report_progress();
  }

  void matrix(const WeightJob& job) {
    const auto k = static_cast<std::size_t>(job.tensor.k);
    rows_.resize(static_cast<std::size_t>(kPanel) * k);
    std::size_t part = 0, row = 0;  // the next source row
    std::size_t fresh = 0;          // bytes read since the last forget
    for (std::int64_t panel = 0; panel < panels_of(job.tensor.n); ++panel) {
      std::fill(rows_.begin(), rows_.end(), 0.0f);
      std::array<StoredRow, kPanel> as_it_is;  // rows that are not to be rounded
      std::size_t lane = 0;
      for (; lane < static_cast<std::size_t>(kPanel) && part < job.parts.size(); ++lane) {
        const auto& [source, paired_head] = job.parts[part];
        const std::size_t bytes = k / static_cast<std::size_t>(block_values(source.type)) *
                                  static_cast<std::size_t>(block_bytes(source.type));
        const std::size_t there = row_there(row, static_cast<std::size_t>(paired_head));
        const std::span<const std::byte> stored = source.bytes.subspan(there * bytes, bytes);
        const std::span<float> values = std::span(rows_).subspan(lane * k, k);
        read_blocks(source.type, stored, values);
        check_values(source, job.stored, values, static_cast<std::int64_t>(there * k));
        if (is_same(source.type, job.stored) && is_quantised(job.stored)) {
          as_it_is[lane] = {source.type, stored};
        }
        ++row;
        fresh += bytes;
        done_ += static_cast<std::int64_t>(bytes);
        if (fresh >= kForgetEvery) {
          source.file->forget(source.bytes.first(row * bytes));
          fresh = 0;
        }
        if (row * bytes == source.bytes.size()) {
          ++part;
          row = 0;
        }
      }
      const ModelWriter::Panel packed = append(job, as_it_is);
      if (job.tensor.name != "exit_gate") compare(job, packed, lane);
      report_progress();
    }
  }

  // Rounds the panel's rows but for those that are there in our form already.
  ModelWriter::Panel append(const WeightJob& job, std::span<const StoredRow> as_it_is) {
    const auto given = [](const StoredRow& row) { return !row.bytes.empty(); };
    if (std::none_of(as_it_is.begin(), as_it_is.end(), given)) {
      const auto weights = options_.input_weights.find(job.tensor.name);
      if (weights == options_.input_weights.end()) return writer_.append_panel(rows_);
      return writer_.append_panel(rows_, weights->second);
    }
    const std::int64_t k = job.tensor.k;
    data_.resize(packed_data_bytes(job.stored, kPanel, k));
    scales_.resize(packed_scale_bytes(job.stored, kPanel, k));
    pack_panel(job.stored, k, rows_, data_, scales_);
    for (std::size_t lane = 0; lane < as_it_is.size(); ++lane) {
      if (!given(as_it_is[lane])) continue;
      const auto& [type, bytes] = as_it_is[lane];
      const auto place = static_cast<std::int64_t>(lane);
      const bool is_q8 = type == BlockType::q8_0;
      if (is_q8 ? place_q8_0(bytes, k, place, data_, scales_)
                : place_q4(type, bytes, k, place, data_, scales_)) {
        continue;
      }
      throw Error(
          ErrorKind::data, "{}: a tensor for {} has {}; --dtype f16 takes it",
          job.parts.front().tensor.file->path(), job.tensor.name,
          is_q8 ? "the value -128, which q8 does not" : "a scale that is too large for q4_1");
    }
    return writer_.append_packed(data_, scales_);
  }

  void compare(const WeightJob& job, const ModelWriter::Panel& packed, std::size_t lanes) {
    const auto k = static_cast<std::size_t>(job.tensor.k);
    ErrorSum& sum = sums_[{class_of(job.tensor), job.stored}];
    sum.elements += static_cast<std::int64_t>(lanes * k);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t i = 0; i < k; ++i) {
        const float value = rows_[lane * k + i];
        sum.source += static_cast<double>(value) * value;
        if (job.exact) continue;
        const float stored =
            unpack_value(job.stored, job.tensor.k, packed.data, packed.scales,
                         static_cast<std::int64_t>(lane), static_cast<std::int64_t>(i));
        const float difference = std::fabs(stored - value);
        sum.difference += static_cast<double>(difference) * difference;
        sum.largest = std::max(sum.largest, difference);
      }
    }
  }

  void report_progress() const {
    if (options_.progress) options_.progress(done_, total_);
  }

  ModelWriter& writer_;
  const ImportOptions& options_;
  std::int64_t done_ = 0, total_;
  std::vector<float> rows_;  // one panel [16][k]
  std::vector<std::byte> data_, scales_;
  std::map<std::pair<std::string, WeightType>, ErrorSum> sums_;
};

void choose_type(WeightJob& job, const std::optional<WeightType>& type) {
  const auto all = [&job](auto holds) {
    return std::all_of(job.parts.begin(), job.parts.end(),
                       [&](const WeightJob::Part& part) { return holds(part.tensor.type); });
  };
  const auto same = [&](BlockType part) { return is_same(part, job.stored); };
  if (job.tensor.matrix && job.tensor.name != "exit_gate") {
    const WeightType kept = kept_type(job.parts.front().tensor.type);
    const bool alike = all([&](BlockType part) { return kept_type(part) == kept; });
    job.stored = type.value_or(alike ? kept : WeightType::f32);
    const bool through_all = job.tensor.name == "embedding" || job.tensor.name == "head";
    if (through_all && is_four_bits(job.stored)) job.stored = WeightType::q8;
  }
  job.exact = job.stored == WeightType::f32 || all(same);
  job.twice = is_quantised(job.stored) &&
              !all([&](BlockType part) { return !is_blocked(part) || same(part); });
}

}  // namespace

bool is_same(BlockType type, WeightType stored) {
  const bool placed = type == BlockType::q8_0 || type == BlockType::q4_0 || type == BlockType::q4_1;
  return kept_type(type) == stored && (!is_blocked(type) || placed);
}

std::vector<WeightJob> plan_weights(const ModelConfig& config, const FamilyNames& names,
                                    const std::optional<WeightType>& type, std::string_view where,
                                    const FindTensor& find) {
  std::vector<WeightJob> jobs;
  for (const ModelTensor& tensor : model_tensors(config)) {
    WeightJob job;
    job.tensor = tensor;
    for (const SourceTensor& wanted : sources_of(names, config, tensor)) {
      const std::optional<ForeignTensor> found = find(wanted.name);
      if (!found) {
        throw Error(ErrorKind::data, "{}: tensor {} is missing", where, wanted.name);
      }
      if (!std::equal(found->shape.begin(), found->shape.end(), wanted.shape.begin(),
                      wanted.shape.end())) {
        throw Error(ErrorKind::data,
                    "{}: tensor {}: its shape is [{}], but the configuration needs [{}]",
                    found->file->path(), wanted.name, fmt::join(found->shape, ", "),
                    fmt::join(wanted.shape, ", "));
      }
      job.parts.push_back({*found, 0});
    }
    choose_type(job, type);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void refuse_extra(const MappedFile& file, std::string_view name, const ModelConfig& config) {
  throw Error(ErrorKind::data,
              "{}: tensor {}: a model of family {} has no such tensor (the configuration has {} "
              "layers)",
              file.path(), name, config.family, config.layers());
}

void refuse_to_replace(const std::string& out, const std::string& source) {
  std::error_code ignored;
  if (std::filesystem::equivalent(out, source, ignored)) {
    throw Error(ErrorKind::usage, "{}: the output is also an input", out);
  }
}

ImportReport convert_weights(const ModelConfig& config, const std::vector<WeightJob>& jobs,
                             const std::string& out, const ImportOptions& options) {
  ImportReport report;
  std::vector<WeightType> types;
  for (const WeightJob& job : jobs) {
    types.push_back(job.stored);
    for (const auto& [source, paired_head] : job.parts) {
      report.source_bytes += static_cast<std::int64_t>(source.bytes.size());
    }
  }
  ModelWriter writer(out, config, types, options.vocabulary);
  Converter converter(writer, options, report.source_bytes);
  for (const WeightJob& job : jobs) converter.convert(job);
  report.config = config;
  report.fingerprint = writer.finish();
  report.file_bytes = writer.file_bytes();
  report.errors = converter.errors();
  return report;
}

}  // namespace tinyloop
