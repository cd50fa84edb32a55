// SPDX-License-Identifier: Apache-2.0
// Parses the text; the configuration's own validation checks the combination.
#include "tinyloop/model/model_shape.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tinyloop/error.h"
#include "tinyloop/parse_number.h"

namespace tinyloop {
namespace {

constexpr std::int64_t kMax = 1 << 24, kMaxLayers = 1 << 16;
constexpr std::int32_t kMaxLoops = 4096, kContext = 1 << 25;

struct Key {
  std::string_view name;
  std::int64_t low, high;
  std::int64_t value;  // -1: must be given
};

std::int64_t value_of(const Key& key, std::string_view text) {
  const auto value = parse_number<std::int64_t>(text);
  if (!value || *value < key.low || *value > key.high) {
    throw Error(ErrorKind::usage, "{}: '{}' is not an integer from {} to {}", key.name, text,
                key.low, key.high);
  }
  return *value;
}

}  // namespace

ModelConfig parse_model_shape(std::string_view text) {
  Key keys[] = {{"dim", 1, kMax, -1},          {"ffn", 1, kMax, -1},
                {"heads", 1, kMax, -1},        {"layers", 1, kMaxLayers, -1},
                {"vocab", 1, kMax, -1},        {"kv-heads", 1, kMax, 0},
                {"head-dim", 1, kMax, 0},      {"loops", 1, kMaxLoops, 1},
                {"prelude", 0, kMaxLayers, 0}, {"coda", 0, kMaxLayers, 0}};
  std::set<std::string_view> given;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view pair = text.substr(at, end - at);
    at = end + 1;
    const std::string_view name = pair.substr(0, pair.find('='));
    const auto key = std::ranges::find(keys, name, &Key::name);
    if (key == std::end(keys)) {
      throw Error(ErrorKind::usage, "unknown key '{}'; keys are {}", name, kShapeKeys);
    }
    if (name.size() == pair.size()) throw Error(ErrorKind::usage, "{} has no value", name);
    if (!given.insert(name).second) throw Error(ErrorKind::usage, "duplicate key {}", name);
    key->value = value_of(*key, pair.substr(name.size() + 1));
  }
  const auto value = [&](std::string_view name) {
    const std::int64_t found = std::ranges::find(keys, name, &Key::name)->value;
    if (found < 0) throw Error(ErrorKind::usage, "{} is missing", name);
    return static_cast<std::int32_t>(found);
  };
  ModelConfig config;
  config.family = "random";
  config.hidden = value("dim");
  config.ffn = value("ffn");
  config.heads = value("heads");
  config.core_layers = value("layers");
  config.vocab = value("vocab");
  config.kv_heads = value("kv-heads") > 0 ? value("kv-heads") : config.heads;
  config.head_dim = value("head-dim");
  if (config.head_dim == 0) {
    if (config.hidden % config.heads != 0) {
      throw Error(ErrorKind::usage, "dim {} is not a multiple of heads {}: give head-dim",
                  config.hidden, config.heads);
    }
    config.head_dim = config.hidden / config.heads;
  }
  config.prelude_layers = value("prelude");
  config.coda_layers = value("coda");
  config.default_loops = config.trained_loops = value("loops");
  config.max_loops = kMaxLoops;
  config.context = kContext;
  try {
    validate(config, "shape");
  } catch (const Error& error) {  // there is no file that could be damaged
    throw Error(ErrorKind::usage, "{}", error.what());
  }
  return config;
}

}  // namespace tinyloop
