// SPDX-License-Identifier: Apache-2.0
// .tinyloop files: what ModelWriter writes Model::open hands out, and no altered file passes.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/model/model.h"
#include "tinyloop/model/model_writer.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

// Every optional tensor, in sizes that neither 16 nor 32 divide.
ModelConfig small_config() {
  ModelConfig config;
  config.family = "huginn";
  config.vocab = 21;
  config.hidden = 10;
  config.ffn = 35;
  config.heads = 3;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.context = 64;
  config.prelude_layers = config.core_layers = config.coda_layers = 1;
  config.default_loops = config.trained_loops = 2;
  config.max_loops = 8;
  config.block = BlockKind::sandwich_post;
  config.qk_bias = config.qk_norm = true;
  config.injection = Injection::concat;
  config.initial_state = InitialState::free;
  config.initial_std = 0.5;
  config.post_loop_norm = true;
  config.exit_gate = true;
  return config;
}

// Some value in [-1, 1) of 13 bits, another one for each tensor, row and column.
float value_of(const std::string& name, std::int64_t row, std::int64_t column) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  hash = (hash ^ static_cast<std::uint32_t>(row)) * 16777619u;
  hash = (hash ^ static_cast<std::uint32_t>(column)) * 16777619u;
  return static_cast<float>((hash >> 8) & 8191u) / 4096.0f - 1.0f;
}

std::string write_model(const std::string& path, const ModelConfig& config, WeightType type) {
  const std::vector<WeightType> types(model_tensors(config).size(), type);
  ModelWriter writer(path, config, types);
  while (const ModelTensor* next = writer.next()) {
    const ModelTensor tensor = *next;
    if (!tensor.matrix) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < tensor.n; ++i) values.push_back(value_of(tensor.name, i, 0));
      writer.append_vector(values);
      continue;
    }
    for (std::int64_t first = 0; first < tensor.n; first += 16) {
      std::vector<float> rows;
      for (std::int64_t row = first; row < first + 16; ++row) {
        for (std::int64_t i = 0; i < tensor.k; ++i) {
          rows.push_back(row < tensor.n ? value_of(tensor.name, row, i) : 0.0f);
        }
      }
      writer.append_panel(rows);
    }
  }
  const std::string fingerprint = writer.finish();
  CHECK(writer.file_bytes() == static_cast<std::int64_t>(std::filesystem::file_size(path)));
  return fingerprint;
}

void check_matrix(const WeightView& view, const std::string& name, WeightType type, std::int64_t n,
                  std::int64_t k) {
  CAPTURE(name);
  REQUIRE(view.present());
  CHECK(view.type == type);
  CHECK(view.n == n);
  CHECK(view.k == k);
  CHECK(reinterpret_cast<std::uintptr_t>(view.data.data()) % 64 == 0);
  CHECK(view.data.size() == packed_data_bytes(type, n, k));
  CHECK(view.scales.size() == packed_scale_bytes(type, n, k));
  // Of values below 1: f16 has 11 bits, bf16 has 8, a group of q8 has steps of at most 1/127; those
  // of four bits are as good as their sum of squares.
  const std::map<WeightType, float> bounds = {
      {WeightType::f32, 0.0f},        {WeightType::f16, 0x1p-12f}, {WeightType::bf16, 0x1p-9f},
      {WeightType::q8, 0.501f / 127}, {WeightType::q4, 0.35f},     {WeightType::q4_1, 0.35f}};
  float worst = 0.0f;
  double errors = 0.0, squares = 0.0;
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      const float stored = unpack_value(type, k, view.data, view.scales, row, i);
      const float error = std::fabs(stored - value_of(name, row, i));
      worst = std::max(worst, error);
      errors += static_cast<double>(error) * static_cast<double>(error);
      squares += std::pow(static_cast<double>(value_of(name, row, i)), 2);
    }
  }
  CHECK(errors < 0.12 * 0.12 * squares);
  CHECK(worst <= bounds.at(type));
  CHECK((type == WeightType::f32) == (worst == 0.0f));
}

void check_vector(VectorView view, const std::string& name, std::size_t n) {
  CAPTURE(name);
  REQUIRE(view.size() == n);
  CHECK(reinterpret_cast<std::uintptr_t>(view.data()) % 64 == 0);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(view[i] == value_of(name, static_cast<std::int64_t>(i), 0));
  }
}

TEST_CASE("a model of each weight type comes back as it was written") {
  const TemporaryFolder folder;
  const std::string path = folder.file("m.tinyloop");
  const ModelConfig config = small_config();
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q8,
                                WeightType::q4, WeightType::q4_1}) {
    CAPTURE(name_of(type));
    const std::string fingerprint = write_model(path, config, type);
    const Model model = Model::open(path);
    CHECK(model.path() == path);
    CHECK(model.fingerprint() == fingerprint);
    CHECK(fingerprint.size() == 32);
    CHECK(to_json(model.config()) == to_json(config));
    CHECK_NOTHROW(model.verify());
    check_matrix(model.embedding(), "embedding", type, 21, 10);
    check_matrix(model.head(), "head", type, 21, 10);
    check_matrix(model.adapter(), "adapter", type, 10, 20);
    check_matrix(model.exit_gate(), "exit_gate", WeightType::f32, 1, 10);
    CHECK(model.exit_bias() == value_of("exit_bias", 0, 0));
    check_vector(model.final_norm(), "final_norm", 10);
    REQUIRE(model.layers().size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string prefix = "layers." + std::to_string(i) + ".";
      const LayerWeights& layer = model.layers()[i];
      check_matrix(layer.qkv, prefix + "qkv", type, 12 + 2 * 4, 10);
      check_matrix(layer.out, prefix + "out", type, 10, 12);
      check_matrix(layer.gate_up, prefix + "gate_up", type, 70, 10);
      check_matrix(layer.down, prefix + "down", type, 10, 35);
      check_vector(layer.norm1, prefix + "norm1", 10);
      check_vector(layer.norm2, prefix + "norm2", 10);
      check_vector(layer.norm3, prefix + "norm3", 10);
      check_vector(layer.norm4, prefix + "norm4", 10);
      check_vector(layer.q_norm, prefix + "q_norm", 4);
      check_vector(layer.k_norm, prefix + "k_norm", 4);
      check_vector(layer.qk_bias, prefix + "qk_bias", 12 + 4);
    }
  }
}

TEST_CASE("what a configuration does not ask for is absent; a tied head is the embedding") {
  const TemporaryFolder folder;
  ModelConfig config = small_config();
  config.family = "llama";
  config.block = BlockKind::pre;
  config.injection = Injection::none;
  config.initial_state = InitialState::embedding;
  config.initial_std = 0.0;
  config.qk_bias = config.qk_norm = config.post_loop_norm = config.exit_gate = false;
  config.tied_head = true;
  write_model(folder.file("m"), config, WeightType::q8);
  Model model = Model::open(folder.file("m"));
  const Model moved = std::move(model);  // views stay valid
  CHECK(moved.head().data.data() == moved.embedding().data.data());
  CHECK(moved.head().scales.data() == moved.embedding().scales.data());
  check_matrix(moved.head(), "embedding", WeightType::q8, 21, 10);
  CHECK_FALSE(moved.adapter().present());
  CHECK_FALSE(moved.exit_gate().present());
  CHECK(moved.exit_bias() == 0.0f);
  const LayerWeights& layer = moved.layers()[0];
  for (const VectorView absent :
       {layer.norm2, layer.norm4, layer.q_norm, layer.k_norm, layer.qk_bias}) {
    CHECK(absent.empty());
  }
}

TEST_CASE("the fingerprint tells configurations, weights and types apart") {
  const TemporaryFolder folder;
  ModelConfig config = small_config();
  const std::string base = write_model(folder.file("m"), config, WeightType::f16);
  const std::string bytes = read_file(folder.file("m"));
  CHECK(write_model(folder.file("m"), config, WeightType::f16) == base);
  CHECK(read_file(folder.file("m")) == bytes);
  CHECK(write_model(folder.file("m"), config, WeightType::bf16) != base);
  config.rope_theta = 20000.0;
  CHECK(write_model(folder.file("m"), config, WeightType::f16) != base);
}

TEST_CASE("a file of the former q4 is refused by that name") {
  const TemporaryFolder folder;
  write_model(folder.file("m"), small_config(), WeightType::q4);
  const std::string now = read_file(folder.file("m"));
  std::uint64_t size = 0;
  std::memcpy(&size, now.data(), 8);
  std::string header = now.substr(8, size);
  // Matrices of the former one had a dimension more.
  const std::string shape = "4,64]", former = "4,16,4]";
  for (std::size_t at = 0; (at = header.find(shape, at)) != std::string::npos;) {
    header.replace(at, shape.size(), former);
  }
  REQUIRE(header.find(former) != std::string::npos);
  header.resize((header.size() + 63) / 64 * 64, ' ');
  const std::uint64_t other_size = header.size();
  std::string other(8, '\0');
  std::memcpy(other.data(), &other_size, 8);
  write_file(folder.file("former"), other + header + now.substr(8 + size));
  CHECK_ERROR(Model::open(folder.file("former")), data,
              "tensor embedding: is of the former type q4");
}

void check_damage(WeightType type) {
  CAPTURE(name_of(type));
  const TemporaryFolder folder;
  const std::string path = folder.file("m"), other = folder.file("other");
  ModelConfig config = small_config();
  config.vocab = 3;
  config.ffn = 2;
  config.prelude_layers = config.coda_layers = 0;
  config.end_ids = {1};
  write_model(path, config, type);
  const std::string good = read_file(path);
  const auto passes = [&](const std::string& bytes) {
    write_file(other, bytes);
    try {
      Model::open(other).verify();
      return true;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      CHECK(std::string(error.what()).starts_with(other + ": "));
      return false;
    }
  };
  CHECK(passes(good));
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  std::size_t passed = 0, open_passed = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    if (passes(bad)) ++passed;
    // A changed header must be found by open alone, without reading the weights.
    if (at < 8 + header) {
      try {
        Model::open(other);
        ++open_passed;
      } catch (const Error&) {
      }
    }
  }
  CHECK(passed == 0);
  CHECK(open_passed == 0);
  for (std::size_t length = 0; length < good.size(); length += 13) {
    CHECK_FALSE(passes(good.substr(0, length)));
  }
  CHECK_FALSE(passes(good.substr(0, good.size() - 1)));
  CHECK_FALSE(passes(good + '\0'));
}

TEST_CASE("no file that differs in one byte, or is cut short, passes") {
  check_damage(WeightType::q4);
  check_damage(WeightType::q4_1);
}

// A file of the right form whose plan or metadata was changed; the data are zeros and the
// fingerprint is wrong.
void write_changed(const std::string& path,
                   const std::function<void(std::vector<TensorPlan>&,
                                            std::map<std::string, std::string>&)>& change) {
  const ModelConfig config = small_config();
  std::vector<TensorPlan> plans;
  std::string hashes;
  for (const ModelTensor& tensor : model_tensors(config)) {
    const bool quantised = tensor.matrix && tensor.name != "exit_gate";
    for (const TensorPlan& plan :
         stored_tensors(tensor, quantised ? WeightType::q8 : WeightType::f32)) {
      plans.push_back(plan);
      hashes += (hashes.empty() ? "" : " ") + plan.name + ":" + std::string(32, '0');
    }
  }
  std::map<std::string, std::string> metadata = {{"format", "tinyloop 1"},
                                                 {"config", to_json(config)},
                                                 {"fingerprint", std::string(32, '0')},
                                                 {"hashes", hashes}};
  change(plans, metadata);
  TensorFileWriter writer(path, plans, metadata);
  for (const TensorPlan& plan : plans) {
    const std::string zeros(bytes_of_shape(plan.type, plan.shape).value(), '\0');
    writer.append(as_byte_span(zeros));
  }
  writer.finish();
}

TEST_CASE("what does not fit the configuration is refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.file("m");
  using Plans = std::vector<TensorPlan>;
  using Metadata = std::map<std::string, std::string>;
  struct Case {
    std::string message;
    std::function<void(Plans&, Metadata&)> change;
  };
  const auto plan = [](Plans& plans, std::string_view name) -> TensorPlan& {
    for (TensorPlan& each : plans) {
      if (each.name == name) return each;
    }
    FAIL("no such tensor");
    return plans.front();
  };
  const Case cases[] = {
      {"has been altered: its fingerprint", [](Plans&, Metadata&) {}},
      {"is a safetensors file but not a .tinyloop file",
       [](Plans&, Metadata& m) { m.erase("format"); }},
      {"is a safetensors file but not a .tinyloop file",
       [](Plans&, Metadata& m) { m["format"] = "pt"; }},
      {"has format \"tinyloop 2\", this program reads \"tinyloop 1\"",
       [](Plans&, Metadata& m) { m["format"] = "tinyloop 2"; }},
      {"'config' is missing", [](Plans&, Metadata& m) { m.erase("config"); }},
      {"'fingerprint' is missing", [](Plans&, Metadata& m) { m.erase("fingerprint"); }},
      {"'hashes' is missing", [](Plans&, Metadata& m) { m.erase("hashes"); }},
      {"configuration: is not", [](Plans&, Metadata& m) { m["config"] = "{"; }},
      {"tensor embedding: its hash is missing", [](Plans&, Metadata& m) { m["hashes"] = ""; }},
      {"tensor embedding: its hash is missing", [](Plans&, Metadata& m) { m["hashes"][12] = 'X'; }},
      {"tensor head.scales: its hash is missing",
       [](Plans&, Metadata& m) { m["hashes"].pop_back(); }},
      {"too many hashes", [](Plans&, Metadata& m) { m["hashes"] += "0"; }},
      {"tensor layers.1.down is missing",
       [&](Plans& p, Metadata&) { plan(p, "layers.1.down").name = "layers.1.dawn"; }},
      {"tensor head.scales is missing", [](Plans& p, Metadata&) { p.pop_back(); }},
      {"tensor more: not part of the configuration",
       [](Plans& p, Metadata&) {
         p.push_back({"more", TensorType::f32, {1}});
       }},
      {"tensor final_norm: type F16 is not allowed",
       [&](Plans& p, Metadata&) { plan(p, "final_norm").type = TensorType::f16; }},
      {"tensor exit_gate: type BF16 is not allowed",
       [&](Plans& p, Metadata&) { plan(p, "exit_gate").type = TensorType::bf16; }},
      {"tensor adapter: type I32 is not allowed",
       [&](Plans& p, Metadata&) { plan(p, "adapter").type = TensorType::i32; }},
      {"tensor head.scales: is BF16 [2, 1, 16], but the configuration needs F16 [2, 1, 16]",
       [&](Plans& p, Metadata&) { plan(p, "head.scales").type = TensorType::bf16; }},
      {"tensor layers.0.qkv: is I8 [2, 2, 8, 16, 4], but the configuration needs I8 [2, 1, 8, 16, "
       "4]",
       [&](Plans& p, Metadata&) { plan(p, "layers.0.qkv").shape[1] = 2; }},
      {"tensor layers.0.norm1: is F32 [11], but the configuration needs F32 [10]",
       [&](Plans& p, Metadata&) { plan(p, "layers.0.norm1").shape = {11}; }},
      {"is out of order", [&](Plans& p, Metadata&) { std::swap(p[2], p[3]); }},
  };
  for (const Case& example : cases) {
    CAPTURE(example.message);
    write_changed(path, example.change);
    CHECK_ERROR(Model::open(path), data, path + ": ");
    CHECK_ERROR(Model::open(path), data, example.message);
  }
  CHECK_ERROR(Model::open(folder.file("none")), io, "none: No such file");
}

TEST_CASE("tensors that are not aligned are refused") {
  const TemporaryFolder folder;
  const std::string path = folder.file("m");
  write_model(path, small_config(), WeightType::f16);
  std::string bytes = read_file(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  bytes.insert(8 + header, 1,
               ' ');  // a blank more at the header's end is still a good safetensors file
  ++header;
  std::memcpy(bytes.data(), &header, 8);
  write_file(path, bytes);
  CHECK_NOTHROW(TensorFile::open(path));
  CHECK_ERROR(Model::open(path), data, "does not start at a multiple of 64 bytes");
}

TEST_CASE("an unfinished model leaves nothing, a wrong configuration begins nothing") {
  const TemporaryFolder folder;
  ModelConfig config = small_config();
  const std::vector<WeightType> types(model_tensors(config).size(), WeightType::f32);
  {
    ModelWriter writer(folder.file("m"), config, types);
    writer.append_panel(std::vector<float>(160));
  }
  CHECK(entries_in(folder.path()) == 0);
  config.vocab = 0;
  CHECK_ERROR(ModelWriter(folder.file("m"), config, types), data, "vocab is 0");
  CHECK(entries_in(folder.path()) == 0);
}

}  // namespace
}  // namespace tinyloop
