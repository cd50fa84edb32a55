// SPDX-License-Identifier: Apache-2.0
// Opens a GGUF file and finds the tensors that its configuration needs.
#include "tinyloop/model/import_gguf.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/model/gguf_blocks.h"
#include "tinyloop/model/gguf_checkpoint.h"
#include "tinyloop/model/gguf_families.h"

namespace tinyloop {

namespace {

struct Source {
  GgufCheckpoint checkpoint;
  const GgufFamily* family = nullptr;
  ModelConfig config;
};

// The blocks of version 1 have another order.
void check_quantisation(const GgufCheckpoint& checkpoint) {
  constexpr std::string_view kVersion = "general.quantization_version";
  const auto blocked = [](const auto& entry) { return is_blocked(entry.second.tensor->type); };
  const GgufMetadata& metadata = checkpoint.metadata();
  if (metadata.integer_or(kVersion, 2) != 2 &&
      std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(), blocked)) {
    metadata.refuse(kVersion, "only 2 is supported");
  }
}

Source open_source(const std::string& path, const std::optional<LoopedRange>& looped) {
  Source source{GgufCheckpoint::open(path), nullptr, {}};
  source.family = &gguf_family_of(source.checkpoint.metadata());
  check_quantisation(source.checkpoint);
  source.config = gguf_config(*source.family, source.checkpoint.metadata(),
                              [&](std::string_view name) { return source.checkpoint.find(name); });
  if (looped) loop_layers(*looped, source.config);
  validate(source.config, path);
  return source;
}

// "blk.0.attn_q.weight" and its like.
bool is_query_or_key(std::string_view name) {
  return name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight");
}

std::vector<WeightJob> plan_jobs(const Source& source, const std::optional<WeightType>& type) {
  const GgufCheckpoint& checkpoint = source.checkpoint;
  std::set<std::string, std::less<>> used = {std::string(kRopeFactors)};
  const auto find = [&](const std::string& name) -> std::optional<ForeignTensor> {
    const auto found = checkpoint.tensors().find(name);
    if (found == checkpoint.tensors().end()) return {};
    used.insert(name);
    const auto& [file, tensor] = found->second;
    return ForeignTensor{&file->file(), tensor->name, tensor->shape, tensor->type, tensor->bytes};
  };
  std::vector<WeightJob> jobs =
      plan_weights(source.config, gguf_names(), type, checkpoint.path(), find);
  for (const auto& [name, part] : checkpoint.tensors()) {
    if (!used.contains(name)) refuse_extra(part.file->file(), name, source.config);
  }
  if (!source.family->paired) return jobs;
  for (WeightJob& job : jobs) {
    for (WeightJob::Part& part : job.parts) {
      if (is_query_or_key(part.tensor.name)) part.paired_head = source.config.head_dim;
    }
  }
  return jobs;
}

// Empty where nothing was rounded twice.
std::string rounded_twice(const std::string& path, const std::vector<WeightJob>& jobs) {
  std::set<std::string> types;
  std::int64_t count = 0, all = 0;
  WeightType stored = WeightType::q8;
  for (const WeightJob& job : jobs) {
    all += job.tensor.matrix ? 1 : 0;
    if (!job.twice) continue;
    ++count;
    stored = job.stored;
    for (const WeightJob::Part& part : job.parts) {
      const BlockType type = part.tensor.type;
      if (is_blocked(type) && !is_same(type, job.stored)) types.emplace(name_of(type));
    }
  }
  if (count == 0) return {};
  return fmt::format(
      "{}: {} of {} matrices were rounded to {} and are rounded again to {}; --dtype f16 keeps "
      "nearly all of what is there",
      path, count, all, fmt::join(types, ", "), name_of(stored));
}

}  // namespace

ModelConfig import_gguf_config(const std::string& path, const std::optional<LoopedRange>& looped) {
  return open_source(path, looped).config;
}

ImportReport import_gguf(const std::string& path, const std::string& out,
                         const ImportOptions& options) {
  const Source source = open_source(path, options.looped);
  for (const GgufFile& file : source.checkpoint.files()) refuse_to_replace(out, file.path());
  const std::vector<WeightJob> jobs = plan_jobs(source, options.type);
  ImportReport report = convert_weights(source.config, jobs, out, options);
  std::string warning = rounded_twice(path, jobs);
  if (!warning.empty()) report.warnings.push_back(std::move(warning));
  return report;
}

}  // namespace tinyloop
