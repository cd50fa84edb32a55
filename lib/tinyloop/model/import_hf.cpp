// SPDX-License-Identifier: Apache-2.0
// Streams a Hugging Face checkpoint into a .tinyloop file, a panel of rows at a time, and measures
// what the storage type costs. Not the names and keys of families: those are rows in hf_families.
#include "tinyloop/model/import_hf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/model/hf_checkpoint.h"
#include "tinyloop/model/hf_families.h"
#include "tinyloop/model/hf_json.h"
#include "tinyloop/model/model_writer.h"
#include "tinyloop/number_formats.h"

namespace tinyloop {

namespace {

constexpr std::size_t kForgetEvery = std::size_t{16} << 20;  // bytes of a source

// Everything that is known before a weight is read.
struct Source {
  HfCheckpoint checkpoint;
  const Family* family = nullptr;
  ModelConfig config;
};

void loop_layers(const LoopedRange& range, const Family& family, ModelConfig& config) {
  if (family.looped) {
    throw Error(ErrorKind::usage, "`loop_layers` is for plain models; {} is looped already",
                family.name);
  }
  const std::int32_t layers = config.core_layers;
  if (range.first < 0 || range.last < range.first || range.last >= layers) {
    throw Error(ErrorKind::usage, "`loop_layers` {}:{}: the model has layers 0 to {}", range.first,
                range.last, layers - 1);
  }
  constexpr std::int32_t kGreatest = 64;
  if (range.substeps < 1 || range.substeps > kGreatest) {
    throw Error(ErrorKind::usage, "`substeps` {}: must be 1 to {}", range.substeps, kGreatest);
  }
  if (!(range.alpha > 0.0 && range.alpha <= 1000.0)) {
    throw Error(ErrorKind::usage, "`alpha` {}: must be above 0 and at most 1000", range.alpha);
  }
  if (!(range.beta >= -1000.0 && range.beta <= 1000.0)) {
    throw Error(ErrorKind::usage, "`beta` {}: must be -1000 to 1000", range.beta);
  }
  config.prelude_layers = range.first;
  config.core_layers = range.last - range.first + 1;
  config.coda_layers = layers - range.last - 1;
  config.default_loops = config.trained_loops = range.substeps;
  config.greatest_loops = kGreatest;
  config.injection = Injection::relaxed;
  config.relaxed_alpha = range.alpha;
  config.relaxed_beta = range.beta;
}

void add_end_ids(const HfJson& json, ModelConfig& config) {
  for (const std::int64_t id : json.integers("eos_token_id")) {
    if (id < 0 || id >= config.vocab)
      json.refuse("eos_token_id", "which the vocabulary does not hold");
    const auto token = static_cast<TokenId>(id);
    if (std::find(config.end_ids.begin(), config.end_ids.end(), token) == config.end_ids.end()) {
      config.end_ids.push_back(token);
    }
  }
}

Source open_source(const std::string& folder, const std::optional<LoopedRange>& looped) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) && std::filesystem::exists(folder, ignored)) {
    throw Error(ErrorKind::io, "{}: is not a folder with config.json and the weights", folder);
  }
  const HfJson json = HfJson::read(folder + "/config.json");
  // Before the weights, which a family that is not known may keep in another form.
  family_of(json, [](std::string_view) { return false; });
  Source source{HfCheckpoint::open(folder), nullptr, {}};
  const HasTensor has_tensor = [&source](std::string_view name) {
    return source.checkpoint.has(name);
  };
  source.family = &family_of(json, has_tensor);
  ModelConfig& config = source.config;
  config = source.family->config(json, has_tensor);
  if (looped) loop_layers(*looped, *source.family, config);
  add_end_ids(json, config);
  const std::string generation = folder + "/generation_config.json";
  if (is_listed(generation)) add_end_ids(HfJson::read(generation), config);
  if (json.has("bos_token_id")) {
    const std::int64_t id = json.integer("bos_token_id");
    if (id < 0 || id >= config.vocab)
      json.refuse("bos_token_id", "which the vocabulary does not hold");
    config.begin_id = static_cast<TokenId>(id);
  }
  validate(config, json.path());
  return source;
}

// The type that holds both without loss.
WeightType wider(WeightType a, WeightType b) { return a == b ? a : WeightType::f32; }

WeightType type_of(const HfTensor& tensor) {
  switch (tensor.view->type) {
    case TensorType::f32:
      return WeightType::f32;
    case TensorType::f16:
      return WeightType::f16;
    case TensorType::bf16:
      return WeightType::bf16;
    default:
      throw Error(ErrorKind::data,
                  "{}: tensor {}: type {} is not supported, only F32, F16 and BF16",
                  tensor.file->path(), tensor.view->name, safetensors_name(tensor.view->type));
  }
}

// One of our tensors and what it is made from.
struct Job {
  ModelTensor tensor;
  std::vector<HfTensor> parts;
  WeightType kept = WeightType::f32;  // the type that holds all parts without loss
  WeightType stored = WeightType::f32;
};

// A head of its own beside the claim that there is none would be lost.
void check_tied_head(const Source& source) {
  const auto& tensors = source.checkpoint.tensors();
  const auto head = tensors.find("lm_head.weight");
  if (!source.config.tied_head || head == tensors.end()) return;
  const std::vector<ModelTensor> ours = model_tensors(source.config);
  const auto embedding = std::find_if(ours.begin(), ours.end(),
                                      [](const ModelTensor& t) { return t.name == "embedding"; });
  const std::string name = sources_of(*source.family, source.config, *embedding).front().name;
  const HfTensor& tied = tensors.find(name)->second;
  const TensorView &a = *head->second.view, &b = *tied.view;
  bool equal = a.type == b.type && a.shape == b.shape && a.bytes.size() == b.bytes.size();
  for (std::size_t at = 0; equal && at < a.bytes.size(); at += kForgetEvery) {
    const std::size_t size = std::min(kForgetEvery, a.bytes.size() - at);
    equal = std::memcmp(a.bytes.data() + at, b.bytes.data() + at, size) == 0;
    head->second.file->forget(a.bytes.subspan(at, size));
    tied.file->forget(b.bytes.subspan(at, size));
  }
  if (equal) return;
  throw Error(ErrorKind::data,
              "{}: tensor lm_head.weight differs from {}, which {} of {}/config.json makes the "
              "head",
              head->second.file->path(), name,
              name.starts_with("model.") ? "tie_word_embeddings" : "tie_embeddings",
              source.checkpoint.folder());
}

std::vector<Job> plan_jobs(const Source& source, const std::optional<WeightType>& type) {
  const HfCheckpoint& checkpoint = source.checkpoint;
  std::vector<Job> jobs;
  std::set<std::string_view> used;
  for (const ModelTensor& tensor : model_tensors(source.config)) {
    Job job;
    job.tensor = tensor;
    for (const SourceTensor& wanted : sources_of(*source.family, source.config, tensor)) {
      const auto found = checkpoint.tensors().find(wanted.name);
      if (found == checkpoint.tensors().end()) {
        throw Error(ErrorKind::data, "{}: tensor {} is missing, which the configuration needs",
                    checkpoint.folder(), wanted.name);
      }
      const HfTensor& part = found->second;
      if (part.view->shape != wanted.shape) {
        throw Error(ErrorKind::data,
                    "{}: tensor {}: its shape is [{}], the configuration needs [{}]",
                    part.file->path(), wanted.name, fmt::join(part.view->shape, ", "),
                    fmt::join(wanted.shape, ", "));
      }
      const WeightType part_type = type_of(part);
      job.kept = job.parts.empty() ? part_type : wider(job.kept, part_type);
      job.parts.push_back(part);
      used.insert(found->first);
    }
    if (tensor.matrix && tensor.name != "exit_gate") {
      job.stored = type.value_or(job.kept);
      const bool through_all = tensor.name == "embedding" || tensor.name == "head";
      if (through_all && is_four_bits(job.stored)) job.stored = WeightType::q8;
    }
    jobs.push_back(std::move(job));
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!used.contains(name) && !is_ignored(source.config, name)) {
      throw Error(ErrorKind::data,
                  "{}: tensor {}: a model of family {} has no place for it (the configuration has "
                  "{} layers)",
                  tensor.file->path(), name, source.family->name, source.config.layers());
    }
  }
  return jobs;
}

// Bytes of foreign elements to floats; the bytes may stand at any address.
void to_floats(WeightType type, const std::byte* bytes, std::span<float> out) {
  if (type == WeightType::f32) {
    std::memcpy(out.data(), bytes, out.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, 2);
    out[i] = type == WeightType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
  }
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

void check_values(const HfTensor& part, WeightType stored, std::span<const float> values,
                  std::int64_t first) {
  const float greatest = greatest_of(stored);
  bool good = true;
  for (const float value : values) good = good && std::fabs(value) <= greatest;
  if (good) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) <= greatest) continue;
    throw Error(ErrorKind::data, "{}: tensor {}: value {} at element {} {}", part.file->path(),
                part.view->name, values[i], first + static_cast<std::int64_t>(i),
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

class Converter {
 public:
  Converter(ModelWriter& writer, const ImportOptions& options, std::int64_t total)
      : writer_(writer), options_(options), total_(total) {}

  void convert(const Job& job) {
    job.tensor.matrix ? matrix(job) : vector(job);
    for (const HfTensor& part : job.parts) part.file->forget(part.view->bytes);
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
  void vector(const Job& job) {
    std::vector<float> values(static_cast<std::size_t>(job.tensor.n));
    const HfTensor& part = job.parts.front();
    to_floats(type_of(part), part.view->bytes.data(), values);
    check_values(part, WeightType::f32, values, 0);
    writer_.append_vector(values);
    done_ += static_cast<std::int64_t>(part.view->bytes.size());
    report_progress();
  }

  void matrix(const Job& job) {
    const auto k = static_cast<std::size_t>(job.tensor.k);
    rows_.resize(static_cast<std::size_t>(kPanel) * k);
    const auto found = options_.input_weights.find(job.tensor.name);
    const std::span<const float> weights =
        found == options_.input_weights.end() ? std::span<const float>() : std::span(found->second);
    std::size_t part = 0, row = 0;  // the next source row
    std::size_t fresh = 0;          // bytes read since the last forget
    for (std::int64_t panel = 0; panel < panels_of(job.tensor.n); ++panel) {
      std::fill(rows_.begin(), rows_.end(), 0.0f);
      std::size_t lane = 0;
      for (; lane < static_cast<std::size_t>(kPanel) && part < job.parts.size(); ++lane) {
        const HfTensor& source = job.parts[part];
        const std::size_t bytes = k * bytes_of(source.view->type);
        const std::span<float> values = std::span(rows_).subspan(lane * k, k);
        to_floats(type_of(source), source.view->bytes.data() + row * bytes, values);
        check_values(source, job.stored, values, static_cast<std::int64_t>(row * k));
        ++row;
        fresh += bytes;
        done_ += static_cast<std::int64_t>(bytes);
        if (fresh >= kForgetEvery) {
          source.file->forget(source.view->bytes.first(row * bytes));
          fresh = 0;
        }
        if (row * bytes == source.view->bytes.size()) {
          ++part;
          row = 0;
        }
      }
      const ModelWriter::Panel packed = writer_.append_panel(rows_, weights);
      if (job.tensor.name != "exit_gate") compare(job, packed, lane);
      report_progress();
    }
  }

  void compare(const Job& job, const ModelWriter::Panel& packed, std::size_t lanes) {
    const auto k = static_cast<std::size_t>(job.tensor.k);
    ErrorSum& sum = sums_[{class_of(job.tensor), job.stored}];
    sum.elements += static_cast<std::int64_t>(lanes * k);
    const bool exact = job.stored == job.kept || job.stored == WeightType::f32;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t i = 0; i < k; ++i) {
        const float value = rows_[lane * k + i];
        sum.source += static_cast<double>(value) * value;
        if (exact) continue;
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
  std::map<std::pair<std::string, WeightType>, ErrorSum> sums_;
};

void refuse_to_replace_source(const std::string& out, const HfCheckpoint& checkpoint) {
  for (const TensorFile& file : checkpoint.files()) {
    std::error_code ignored;
    if (std::filesystem::equivalent(out, file.path(), ignored)) {
      throw Error(ErrorKind::usage, "{}: the output is one of the files to convert", out);
    }
  }
}

}  // namespace

ModelConfig import_config(const std::string& folder, const std::optional<LoopedRange>& looped) {
  return open_source(folder, looped).config;
}

ImportReport import_checkpoint(const std::string& folder, const std::string& out,
                               const ImportOptions& options) {
  const Source source = open_source(folder, options.looped);
  refuse_to_replace_source(out, source.checkpoint);
  const std::vector<Job> jobs = plan_jobs(source, options.type);
  check_tied_head(source);
  ImportReport report;
  if (source.checkpoint.also_indexed()) {
    report.warnings.push_back(
        fmt::format("{}: model.safetensors is read, model.safetensors.index.json is not", folder));
  }
  std::vector<WeightType> types;
  for (const Job& job : jobs) {
    types.push_back(job.stored);
    for (const HfTensor& part : job.parts) {
      report.source_bytes += static_cast<std::int64_t>(part.view->bytes.size());
    }
  }
  ModelWriter writer(out, source.config, types, options.vocabulary);
  Converter converter(writer, options, report.source_bytes);
  for (const Job& job : jobs) converter.convert(job);
  report.config = source.config;
  report.fingerprint = writer.finish();
  report.file_bytes = writer.file_bytes();
  report.errors = converter.errors();
  return report;
}

std::vector<std::string> known_families() { return known_model_types(); }

}  // namespace tinyloop
