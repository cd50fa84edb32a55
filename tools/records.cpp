// SPDX-License-Identifier: Apache-2.0
// Records are one line of text or JSON each, and the same bytes in every run.
#include "records.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "answer_json.h"
#include "cli.h"
#include "tinyloop/engine/run_identity.h"
#include "tinyloop/error.h"

namespace tinyloop::cli {

std::optional<BatchJob> BatchRecords::next() {
  while (std::optional<TokenLine> line = files_.next()) {
    if (line->error.empty() && line->ids.empty()) {
      line->error = place(*line) + ":1: the sequence is empty";
    }
    Job job{std::move(*line), 0, 0};
    const std::int64_t number = files_.number();
    job.seed = job.line.seed.value_or(options_.sampling.seed_of(number));
    job.hash = hash(job);
    if (const auto known = journal_ != nullptr ? journal_->find(number) : std::nullopt) {
      if (known->job != job.hash) {
        throw Error(ErrorKind::usage, "{} has changed since the run that --continue would resume",
                    place(job.line));
      }
      ++earlier_;
      errors_ += known->error;
      continue;
    }
    BatchJob wanted;
    wanted.number = number;
    wanted.prompt = job.line.ids;  // empty if the line is wrong: the job then fails in its turn
    wanted.stop = rules_;
    if (job.line.max_tokens) wanted.stop.max_tokens = *job.line.max_tokens;
    if (job.line.stop) wanted.stop.sequences = std::move(*job.line.stop);  // it has its hash
    job.line.stop.reset();
    wanted.seed = job.seed;
    wanted.priority = job.line.priority;
    wanted.group = job.line.group_key();
    jobs_.emplace(number, std::move(job));
    return wanted;
  }
  if (journal_ != nullptr && files_.number() < journal_->found_last()) {
    throw Error(
        ErrorKind::usage,
        "the input ends before line {}, which the run that --continue would resume has answered",
        journal_->found_last());
  }
  return std::nullopt;
}

// A hash of all that the record depends on, except the options.
std::uint64_t BatchRecords::hash(const Job& job) const {
  const TokenLine& line = job.line;
  std::string text = head(line).text() + line.error;
  text +=
      fmt::format("\n{}\n{}\n{}\n", format_ids(line.ids), job.seed, line.max_tokens.value_or(-1));
  if (line.stop) {
    for (const std::vector<TokenId>& sequence : *line.stop) text += format_ids(sequence) + '\n';
    text += '.';
  }
  return XXH3_64bits(text.data(), text.size());
}

JsonObject BatchRecords::head(const TokenLine& line) const {
  return record_head(line, options_.input.files.size() > 1);
}

std::string BatchRecords::failure(const TokenLine& line, std::string error) const {
  if (options_.jsonl) return head(line).add("error", error).text();
  // A file's name may contain anything, but a record is one line.
  std::replace_if(
      error.begin(), error.end(),
      [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }, '?');
  return "error: " + error;
}

std::string BatchRecords::record(const Job& job, const BatchOutcome& outcome) const {
  const Answer& answer = outcome.answer;
  if (!options_.jsonl) {
    std::vector<TokenId> tokens;
    if (!options_.only_new) tokens = job.line.ids;
    tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    return format_ids(tokens);
  }
  JsonObject object = head(job.line);
  object.add_all(answer_members(job.line, answer, options_.only_new, job.seed));
  if (options_.timings) {
    object.add("queue_ms", outcome.queue_ms, 3)
        .add_all(time_members(answer.stats))
        .add("prefilled", answer.stats.prefilled)
        .add("reused", answer.stats.reused)
        .add("shared", outcome.shared);
  }
  return object.text();
}

std::string BatchRecords::statistics(const Job& job, const BatchOutcome& outcome) const {
  const DecodeStats& stats = outcome.answer.stats;
  JsonObject object = head(job.line);
  if (!outcome.error.empty()) return object.add("error", outcome.error).line();
  return object.add("prompt", job.line.ids.size())
      .add("prefilled", stats.prefilled)
      .add("reused", stats.reused)
      .add("shared", outcome.shared)
      .add("generated", stats.generated)
      .add("loops_run", stats.loops_run)
      .add("prompt_loops", stats.prompt_loops)
      .add("queue_ms", outcome.queue_ms, 3)
      .add_all(time_members(stats))
      .add_all(end_members(outcome.answer, job.seed))
      .line();
}

void BatchRecords::done(const BatchOutcome& outcome) {
  const auto found = jobs_.find(outcome.number);
  const Job job = std::move(found->second);
  jobs_.erase(found);
  BatchOutcome told = outcome;
  if (!job.line.error.empty()) {
    told.error = job.line.error;
  } else if (!told.error.empty()) {
    told.error = fmt::format("{}: {}", place(job.line), told.error);
  }
  told.error = with_options(told.error);
  const bool error = !told.error.empty();
  errors_ += error;
  keep(outcome.number, job, error, error ? failure(job.line, told.error) : record(job, told));
  if (!options_.stats.wanted()) return;
  options_.progress.make_room();
  options_.stats.write(statistics(job, told));
}

void BatchRecords::keep(std::int64_t number, const Job& job, bool error, std::string record) {
  if (journal_ != nullptr) {
    journal_->append({number, job.hash, error, std::move(record)});
    return;
  }
  options_.progress.make_room();  // a terminal may show both
  if (options_.unordered) {
    options_.output.write(record + '\n');
  } else {
    waiting_.emplace(number, std::move(record));
    for (auto front = waiting_.begin(); front != waiting_.end() && front->first == next_;
         front = waiting_.erase(front), next_ += share_.of) {
      options_.output.write(front->second + '\n');
    }
  }
  options_.output.flush();
}

RecordJournal::Settings settings_of(const BatchCommand& options, Forward& forward,
                                    const BatchOptions& batch, LineShare share) {
  const CacheIdentity identity = cache_identity(forward);
  const SamplingOptions& sampling = batch.sampling;
  const StopRules rules = options.stop.rules(forward.model().config());
  // All groupings give the same answers, but one refuses jobs without a group.
  const bool by_key = batch.grouping == BatchGrouping::key;
  std::string bias, stop, inputs;
  for (const auto& [id, value] : sampling.logit_bias) bias += fmt::format("{}:{},", id, value);
  for (const auto& sequence : rules.sequences) stop += format_ids(sequence) + ',';
  for (const std::string& file : options.input.files) inputs += (inputs.empty() ? "" : " ") + file;
  return {{"--model", identity.model},
          {"arithmetic", identity.arithmetic},
          {"--loops", fmt::format("{}", identity.loops)},
          {"--kv", identity.kv},
          {"--cache-window", fmt::format("{}", identity.window)},
          {"--init-state", identity.initial_state},
          {"--exit", batch.exit.identity()},
          {"--temperature", fmt::format("{}", sampling.temperature)},
          {"--top-k", fmt::format("{}", sampling.top_k)},
          {"--top-p", fmt::format("{}", sampling.top_p)},
          {"--min-p", fmt::format("{}", sampling.min_p)},
          {"--repetition-penalty", fmt::format("{}", sampling.repetition_penalty)},
          {"--presence-penalty", fmt::format("{}", sampling.presence_penalty)},
          {"--frequency-penalty", fmt::format("{}", sampling.frequency_penalty)},
          {"--logit-bias", bias},
          {"--seed", fmt::format("{}", sampling.seed)},
          {"--seed-by-line", fmt::format("{}", options.sampling.seed_by_line())},
          {"--max-tokens", fmt::format("{}", rules.max_tokens)},
          {"--eos", fmt::format("{}", fmt::join(rules.end_ids, ","))},
          {"--stop", stop},
          {"--input-format", options.input.format.empty() ? "text" : options.input.format},
          {"--jsonl", fmt::format("{}", options.jsonl)},
          {"--only-new", fmt::format("{}", options.only_new)},
          {"--timings", fmt::format("{}", options.timings)},
          {"--unordered", fmt::format("{}", options.unordered)},
          {"--group", by_key ? "key" : "prefix or none"},
          {"--shard", fmt::format("{}/{}", share.index, share.of)},
          {"the input", inputs.empty() ? "-" : inputs}};
}

}  // namespace tinyloop::cli
