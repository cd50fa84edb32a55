// SPDX-License-Identifier: Apache-2.0
// The generic configuration as JSON, and what a configuration must satisfy so that the engine can
// run it. Not the import of foreign configurations: that is import_hf.
#include "tinyloop/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"

namespace tinyloop {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 24;
constexpr std::int64_t kMaxProduct = std::int64_t{1} << 40;
constexpr std::int64_t kMaxContext = std::int64_t{1} << 30;
constexpr std::int32_t kMaxLayers = 1 << 16, kMaxLoops = 1 << 12;
constexpr std::size_t kLongestJson = 256 * 1024;

template <typename E>
struct Name {
  E value;
  std::string_view name;
};
constexpr Name<BlockKind> kBlocks[] = {{BlockKind::pre, "pre"},
                                       {BlockKind::sandwich_out, "sandwich_out"},
                                       {BlockKind::sandwich_post, "sandwich_post"}};
constexpr Name<RopeLayout> kRopeLayouts[] = {{RopeLayout::half, "half"},
                                             {RopeLayout::interleaved, "interleaved"}};
constexpr Name<Injection> kInjections[] = {
    {Injection::none, "none"}, {Injection::concat, "concat"}, {Injection::relaxed, "relaxed"}};
constexpr Name<InitialState> kInitialStates[] = {{InitialState::embedding, "embedding"},
                                                 {InitialState::free, "free"}};

std::span<const Name<BlockKind>> names_of(BlockKind) { return kBlocks; }
std::span<const Name<RopeLayout>> names_of(RopeLayout) { return kRopeLayouts; }
std::span<const Name<Injection>> names_of(Injection) { return kInjections; }
std::span<const Name<InitialState>> names_of(InitialState) { return kInitialStates; }

// The one list of fields: `visit(key, field)` in the order of the JSON text. Writing and reading
// both use it.
template <typename Config, typename Visit>
void each_field(Config& config, Visit&& visit) {
  visit("family", config.family);
  visit("vocab", config.vocab);
  visit("hidden", config.hidden);
  visit("ffn", config.ffn);
  visit("heads", config.heads);
  visit("kv_heads", config.kv_heads);
  visit("head_dim", config.head_dim);
  visit("context", config.context);
  visit("norm_eps", config.norm_eps);
  visit("prelude_layers", config.prelude_layers);
  visit("core_layers", config.core_layers);
  visit("coda_layers", config.coda_layers);
  visit("default_loops", config.default_loops);
  visit("trained_loops", config.trained_loops);
  visit("greatest_loops", config.max_loops);
  visit("block", config.block);
  visit("rope_layout", config.rope_layout);
  visit("rope_theta", config.rope_theta);
  visit("rope_factor", config.rope_scaling.factor);
  visit("rope_low_frequency_factor", config.rope_scaling.low_frequency_factor);
  visit("rope_high_frequency_factor", config.rope_scaling.high_frequency_factor);
  visit("rope_original_context", config.rope_scaling.original_context);
  visit("qk_bias", config.qk_bias);
  visit("qk_norm", config.qk_norm);
  visit("embedding_scale", config.embedding_scale);
  visit("tied_head", config.tied_head);
  visit("injection", config.injection);
  visit("initial_state", config.initial_state);
  visit("initial_std", config.initial_std);
  visit("relaxed_alpha", config.relaxed_alpha);
  visit("relaxed_beta", config.relaxed_beta);
  visit("loop_norm", config.loop_norm);
  visit("post_loop_norm", config.post_loop_norm);
  visit("final_norm", config.final_norm);
  visit("exit_gate", config.exit_gate);
  visit("end_ids", config.end_ids);
  visit("begin_id", config.begin_id);
}

template <typename T>
Json json_of(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    for (const auto& row : names_of(field)) {
      if (row.value == field) return row.name;
    }
    return nullptr;
  } else {
    return field;
  }
}

class FieldReader {
 public:
  FieldReader(const Json& json, std::string_view where) : json_(json), where_(where) {}

  template <typename T>
  void read(const char* key, T& field) {
    ++count_;
    const auto found = json_.find(key);
    if (found == json_.end()) {
      throw Error(ErrorKind::data, "{}: configuration: key '{}' is missing", where_, key);
    }
    if (!assign(*found, field)) {
      throw Error(ErrorKind::data, "{}: configuration: the value of '{}' is invalid", where_, key);
    }
  }

  void refuse_unknown() const {
    if (json_.size() == count_) return;
    ModelConfig known;
    for (const auto& item : json_.items()) {
      bool found = false;
      each_field(known, [&](const char* key, const auto&) { found = found || item.key() == key; });
      if (!found) {
        throw Error(ErrorKind::data, "{}: configuration: unknown key {}", where_,
                    json_string(item.key().substr(0, 40)));
      }
    }
  }

 private:
  static bool assign(const Json& value, std::string& field) {
    if (value.is_string()) field = value.get<std::string>();
    return value.is_string();
  }
  static bool assign(const Json& value, bool& field) {
    if (value.is_boolean()) field = value.get<bool>();
    return value.is_boolean();
  }
  static bool assign(const Json& value, double& field) {
    if (value.is_number()) field = value.get<double>();
    return value.is_number();
  }
  static bool assign(const Json& value, std::vector<TokenId>& field) {
    if (!value.is_array()) return false;
    field.resize(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!assign(value[i], field[i])) return false;
    }
    return true;
  }
  template <typename T>
  static bool assign(const Json& value, T& field) {
    if constexpr (std::is_enum_v<T>) {
      if (!value.is_string()) return false;
      for (const auto& row : names_of(field)) {
        if (row.name == value.get_ref<const std::string&>()) {
          field = row.value;
          return true;
        }
      }
      return false;
    } else {
      static_assert(std::is_integral_v<T> && std::is_signed_v<T>);
      if (!value.is_number_integer()) return false;
      if (value.is_number_unsigned() &&
          value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) {
        return false;
      }
      const auto wide = value.get<std::int64_t>();
      field = static_cast<T>(wide);
      return field == wide;
    }
  }

  const Json& json_;
  std::string_view where_;
  std::size_t count_ = 0;
};

class Checker {
 public:
  Checker(const ModelConfig& config, std::string_view where) : config_(config), where_(where) {}

  void check() const {
    dimensions();
    layers_and_loops();
    numbers();
    combinations();
    for (const TokenId id : config_.end_ids) range("end_ids", id, 0, config_.vocab - 1);
    range("begin_id", config_.begin_id, -1, config_.vocab - 1);
  }

 private:
  template <typename T>
  [[noreturn]] void fail(const char* field, const T& value, std::string_view why) const {
    throw Error(ErrorKind::data, "{}: configuration: {} is {}: {}", where_, field, value, why);
  }
  void range(const char* field, std::int64_t value, std::int64_t low, std::int64_t high) const {
    if (value < low || value > high) {
      fail(field, value, fmt::format("it must be {} to {}", low, high));
    }
  }
  void product(const char* fields, std::int64_t a, std::int64_t b) const {
    if (a * b >= kMaxProduct) fail(fields, a * b, "a matrix must be smaller than 2^40");
  }
  void positive(const char* field, double value) const {
    // 1e-30 .. 1e30 is also normal as a float.
    if (!(value >= 1e-30 && value <= 1e30)) fail(field, value, "it must be positive");
  }
  void require(bool holds, const char* field, std::string_view why) const {
    if (!holds) throw Error(ErrorKind::data, "{}: configuration: {}: {}", where_, field, why);
  }

  void dimensions() const {
    const ModelConfig& c = config_;
    const auto name_character = [](char x) {
      return (x >= 'a' && x <= 'z') || (x >= '0' && x <= '9') || x == '_';
    };
    require(!c.family.empty() && c.family.size() <= 64 &&
                std::all_of(c.family.begin(), c.family.end(), name_character),
            "family", "it must be 1 to 64 of the characters a-z, 0-9 and _");
    range("vocab", c.vocab, 1, kMaxDimension);
    range("hidden", c.hidden, 1, kMaxDimension);
    range("ffn", c.ffn, 1, kMaxDimension);
    range("heads", c.heads, 1, kMaxDimension);
    range("kv_heads", c.kv_heads, 1, c.heads);
    range("head_dim", c.head_dim, 1, kMaxDimension);
    if (c.heads % c.kv_heads != 0) fail("heads", c.heads, "it must be a multiple of kv_heads");
    if (c.head_dim % 2 != 0) fail("head_dim", c.head_dim, "it must be even");
    const std::int64_t q_width = std::int64_t{c.heads} * c.head_dim;
    const std::int64_t kv_width = std::int64_t{c.kv_heads} * c.head_dim;
    range("heads * head_dim", q_width, 1, kMaxDimension);
    product("vocab * hidden", c.vocab, c.hidden);
    product("(q + k + v) * hidden", q_width + 2 * kv_width, c.hidden);
    product("2 * ffn * hidden", 2 * std::int64_t{c.ffn}, c.hidden);
    product("2 * hidden * hidden", 2 * std::int64_t{c.hidden}, c.hidden);
    range("context", c.context, 1, kMaxContext);
  }

  void layers_and_loops() const {
    const ModelConfig& c = config_;
    range("prelude_layers", c.prelude_layers, 0, kMaxLayers);
    range("core_layers", c.core_layers, 1, kMaxLayers);
    range("coda_layers", c.coda_layers, 0, kMaxLayers);
    range("greatest_loops", c.max_loops, 1, kMaxLoops);
    range("default_loops", c.default_loops, 1, c.max_loops);
    range("trained_loops", c.trained_loops, 1, c.max_loops);
  }

  void numbers() const {
    const ModelConfig& c = config_;
    positive("norm_eps", c.norm_eps);
    positive("rope_theta", c.rope_theta);
    positive("embedding_scale", c.embedding_scale);
    const RopeScaling& s = c.rope_scaling;
    if (!(s.factor >= 1.0 && s.factor <= 1e6)) fail("rope_factor", s.factor, "it must be 1 to 1e6");
    if (s.factor != 1.0) {
      positive("rope_low_frequency_factor", s.low_frequency_factor);
      positive("rope_high_frequency_factor", s.high_frequency_factor);
      if (s.high_frequency_factor <= s.low_frequency_factor) {
        fail("rope_high_frequency_factor", s.high_frequency_factor,
             "it must be above rope_low_frequency_factor");
      }
      range("rope_original_context", s.original_context, 1, kMaxContext);
    }
    positive("relaxed_alpha", c.relaxed_alpha);
    if (!(std::fabs(c.relaxed_beta) <= 1e30))
      fail("relaxed_beta", c.relaxed_beta, "it must be finite");
  }

  void combinations() const {
    const ModelConfig& c = config_;
    const bool free = c.initial_state == InitialState::free;
    require(free == (c.injection == Injection::concat), "initial_state",
            "a free initial state and injection concat require each other");
    if (free) positive("initial_std", c.initial_std);
    if (!free && c.initial_std != 0.0) fail("initial_std", c.initial_std, "the state is not free");
    if (c.injection != Injection::relaxed) {
      if (c.relaxed_alpha != 1.0)
        fail("relaxed_alpha", c.relaxed_alpha, "injection is not relaxed");
      if (c.relaxed_beta != 0.0) fail("relaxed_beta", c.relaxed_beta, "injection is not relaxed");
    } else {
      require(!c.loop_norm && !c.exit_gate, "injection",
              "relaxed looping excludes loop_norm and exit_gate");
    }
    require(c.loop_norm != c.final_norm, "final_norm",
            "the final norm is either inside the loop or before the head");
    require(!c.loop_norm || (c.coda_layers == 0 && !c.post_loop_norm), "loop_norm",
            "it excludes coda layers and post_loop_norm");
  }

  const ModelConfig& config_;
  std::string_view where_;
};

}  // namespace

void validate(const ModelConfig& config, std::string_view where) { Checker(config, where).check(); }

std::string to_json(const ModelConfig& config) {
  Json json = Json::object();
  each_field(config, [&json](const char* key, const auto& field) { json[key] = json_of(field); });
  return json.dump();
}

ModelConfig config_from_json(std::string_view json, std::string_view where) {
  // The JSON reader takes a NUL for the end and leaves the rest unread.
  if (json.size() > kLongestJson || json.find('\0') != std::string_view::npos) {
    throw Error(ErrorKind::data, "{}: configuration: is not valid JSON", where);
  }
  const Json parsed = Json::parse(json, nullptr, false);
  if (!parsed.is_object()) {
    throw Error(ErrorKind::data, "{}: configuration: is not a JSON object", where);
  }
  ModelConfig config;
  FieldReader reader(parsed, where);
  each_field(config, [&reader](const char* key, auto& field) { reader.read(key, field); });
  reader.refuse_unknown();
  validate(config, where);
  return config;
}

}  // namespace tinyloop
