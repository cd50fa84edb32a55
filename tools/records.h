// SPDX-License-Identifier: Apache-2.0
// What tl-batch reads and writes: jobs from lines, records and statistics from outcomes, and
// what a journal stores of them. Not the computation, and not the run around it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "options.h"
#include "progress.h"
#include "streams.h"
#include "tinyloop/batch/generate_batch.h"
#include "tinyloop/engine/forward.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/files/record_journal.h"
#include "tinyloop/files/token_files.h"

namespace tinyloop::cli {

// The command line.
struct BatchCommand {
  ModelOptions model;
  LoopOptions loop;
  ExitOptions exit;
  SamplingFlags sampling;
  StopFlags stop;
  InputOptions input;
  Output output;
  StatsOutput stats;
  Progress progress;
  BatchFlags batch;
  std::string pool;
  std::int64_t pool_min_share = 0;
  bool only_new = false, jsonl = false, unordered = false, timings = false, go_on = false;
  bool keep_journal = false;
  std::int64_t merge = 0;  // shards; 0: none are merged
};

// Between the input and the records: hands out jobs, accepts outcomes, and tracks the jobs
// between. Memory is bounded by the pending jobs.
class BatchRecords {
 public:
  BatchRecords(BatchCommand& options, const ModelConfig& config, LineShare share,
               RecordJournal* journal)
      : options_(options),
        share_(share),
        files_(options.input.files, options.input.token_format(),
               {.vocab = config.vocab, .longest = config.context, .job_keys = true}, share),
        rules_(options.stop.rules(config)),
        journal_(journal),
        next_(share.index + 1) {}

  std::optional<BatchJob> next();
  void done(const BatchOutcome& outcome);
  // The errors of all runs, and the jobs done by earlier ones.
  std::int64_t errors() const { return errors_; }
  std::int64_t earlier() const { return earlier_; }

 private:
  struct Job {
    TokenLine line;
    std::uint64_t seed = 0;
    std::uint64_t hash = 0;
  };
  std::string place(const TokenLine& line) const {
    return fmt::format("{}:{}", line.file, line.number);
  }
  JsonObject head(const TokenLine& line) const;
  std::string record(const Job& job, const BatchOutcome& outcome) const;
  std::string failure(const TokenLine& line, std::string error) const;
  std::string statistics(const Job& job, const BatchOutcome& outcome) const;
  std::uint64_t hash(const Job& job) const;
  void keep(std::int64_t number, const Job& job, bool error, std::string record);

  BatchCommand& options_;
  LineShare share_;
  TokenFiles files_;
  StopRules rules_;
  RecordJournal* journal_;
  std::map<std::int64_t, Job> jobs_;             // given out, not yet done
  std::map<std::int64_t, std::string> waiting_;  // records that must wait for an earlier one
  std::int64_t next_;                            // number of the next record to write
  std::int64_t errors_ = 0, earlier_ = 0;
};

// All settings that records depend on, by the names of the options; a journal stores them.
RecordJournal::Settings settings_of(const BatchCommand& options, Forward& forward,
                                    const BatchOptions& batch, LineShare share);

}  // namespace tinyloop::cli
