// SPDX-License-Identifier: Apache-2.0
// Zero, seeded or given initial states. The noise is a pure function of (seed, position, channel),
// so that a row has the same state however and whenever it is computed.
#include "tinyloop/model/initial_state.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tinyloop/error.h"
#include "tinyloop/files/npy_file.h"
#include "tinyloop/parse_number.h"
#include "tinyloop/random.h"

namespace tinyloop {

namespace {

std::uint64_t parse_seed(std::string_view digits) {
  const auto seed = parse_number<std::uint64_t>(digits);
  if (!seed) {
    throw Error(ErrorKind::usage, "`init_state`: 'seed:{}' needs a number from 0 to 2^64-1",
                digits);
  }
  return *seed;
}

}  // namespace

InitialStates InitialStates::parse(std::string_view text, const ModelConfig& config) {
  InitialStates states;
  states.hidden_ = config.hidden;
  if (config.initial_state != InitialState::free) {
    if (!text.empty()) {
      throw Error(ErrorKind::usage,
                  "`init_state`: a model of family {} starts from its embedding, not from '{}'",
                  config.family, text);
    }
    return states;
  }
  constexpr std::string_view kSeed = "seed:";
  if (text == "zero") {
    states.identity_ = "zero";
  } else if (text.empty() || text.starts_with(kSeed)) {
    states.noise_ = true;
    states.seed_ = text.empty() ? 0 : parse_seed(text.substr(kSeed.size()));
    states.std_ = config.initial_std;
    states.identity_ = fmt::format("seed:{}", states.seed_);
  } else {
    const NpyArray array = read_npy(std::string(text));
    if (array.type != NpyType::f32 || array.shape.size() != 2 || array.shape[0] < 1 ||
        array.shape[1] != config.hidden) {
      throw Error(ErrorKind::usage, "{}: an initial state must be a float32 array [positions][{}]",
                  text, config.hidden);
    }
    states.rows_.resize(static_cast<std::size_t>(array.elements()));
    std::memcpy(states.rows_.data(), array.bytes.data(), array.bytes.size());
    for (std::size_t i = 0; i < states.rows_.size(); ++i) {
      if (!std::isfinite(states.rows_[i])) {
        const std::size_t width = static_cast<std::size_t>(config.hidden);
        throw Error(ErrorKind::usage, "{}: the value at [{}][{}] is not finite", text, i / width,
                    i % width);
      }
    }
    const XXH128_hash_t hash = XXH3_128bits(array.bytes.data(), array.bytes.size());
    states.identity_ = fmt::format("file:{:016x}{:016x}", hash.high64, hash.low64);
  }
  return states;
}

void InitialStates::check(std::int64_t position) const {
  if (rows_.empty()) return;
  const auto rows = std::ssize(rows_) / hidden_;
  if (position >= 0 && position < rows) return;
  throw Error(ErrorKind::usage, "the initial state file has {} rows, none for position {}", rows,
              position);
}

void InitialStates::fill(std::int64_t position, std::span<float> out) const {
  if (noise_) {
    for (std::size_t c = 0; c < out.size(); ++c) {
      const double noise = truncated_normal(seed_, position, static_cast<std::int32_t>(c));
      out[c] = static_cast<float>(noise * std_);
    }
  } else if (rows_.empty()) {
    std::fill(out.begin(), out.end(), 0.0f);
  } else {
    check(position);
    const std::size_t width = static_cast<std::size_t>(hidden_);
    const float* row = rows_.data() + static_cast<std::size_t>(position) * width;
    std::copy(row, row + width, out.begin());
  }
}

}  // namespace tinyloop
