// SPDX-License-Identifier: Apache-2.0
// The conversion of checkpoints: every value in its place, the error it states, and failures that
// leave nothing. Which keys mean what is in test_hf_families.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/model/import_hf.h"
#include "tinyloop/model/model.h"
#include "unit/file_bytes.h"
#include "unit/hf_folder.h"

namespace tinyloop {
namespace {

std::vector<float> rows_of(HfModel& source, const std::vector<std::string>& parts) {
  std::vector<float> values;
  for (const std::string& name : parts) {
    const HfSpec& spec = source.tensor(name);
    std::int64_t count = 1;
    for (const std::int64_t n : spec.shape) count *= n;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(hf_value(spec, i));
  }
  return values;
}

void check_vector(VectorView view, HfModel& source, const std::string& name) {
  CAPTURE(name);
  const std::vector<float> wanted = rows_of(source, {name});
  CHECK(std::vector<float>(view.begin(), view.end()) == wanted);
}

// The greatest error that a type may make: half a unit in the last place for floats, half a step
// for groups of 32 in q8. Those of four bits are as good as their sum of squares.
double bound_of(WeightType type, const std::vector<float>& row, std::size_t column) {
  const double value = std::fabs(static_cast<double>(row[column]));
  if (type == WeightType::f32) return 0.0;
  if (type == WeightType::f16) return value * 0x1p-11 + 0x1p-25;
  if (type == WeightType::bf16) return value * 0x1p-8;
  double greatest = 0.0;
  const std::size_t first = column / 32 * 32;
  for (std::size_t i = first; i < std::min(first + 32, row.size()); ++i) {
    greatest = std::max(greatest, std::fabs(static_cast<double>(row[i])));
  }
  if (is_four_bits(type)) return 0.4 * greatest;
  // The f16 scale is off by at most 2^-11 of itself, or one step of f16 where it is rounded up.
  return greatest / 127 * 0.5 * (1 + 0x1p-9) + greatest * 0x1p-10;
}

// Compares a matrix; returns the sums of squares of error and source.
std::pair<double, double> check_matrix(const WeightView& view, HfModel& source, WeightType type,
                                       const std::vector<std::string>& parts) {
  CAPTURE(parts.front());
  CHECK(view.type == type);
  const std::vector<float> wanted = rows_of(source, parts);
  REQUIRE(static_cast<std::int64_t>(wanted.size()) == view.n * view.k);
  const auto k = static_cast<std::size_t>(view.k);
  double errors = 0.0, squares = 0.0;
  bool good = true;
  for (std::int64_t row = 0; row < view.n; ++row) {
    const auto begin = wanted.begin() + row * view.k;
    const std::vector<float> values(begin, begin + view.k);
    for (std::size_t i = 0; i < k; ++i) {
      const double difference =
          static_cast<double>(unpack_value(type, view.k, view.data, view.scales, row,
                                           static_cast<std::int64_t>(i))) -
          static_cast<double>(values[i]);
      good = good && std::fabs(difference) <= bound_of(type, values, i);
      errors += difference * difference;
      squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  CHECK(good);
  if (is_four_bits(type)) CHECK(errors < 0.12 * 0.12 * squares);
  bool filled = true;  // what lies beyond the last row is zero
  for (std::int64_t row = view.n; row < panels_of(view.n) * kPanel; ++row) {
    for (std::int64_t i = 0; i < view.k; ++i) {
      filled = filled && unpack_value(type, view.k, view.data, view.scales, row, i) == 0.0f;
    }
  }
  CHECK(filled);
  return {errors, squares};
}

std::string layer_name(int i, const char* name) {
  return "model.layers." + std::to_string(i) + "." + name + ".weight";
}

TEST_CASE("Llama names: every value is in its place, for every type, with the error stated") {
  const TemporaryFolder folder;
  HfModel source = hf_llama();
  source.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {3}});
  source.write(folder.file("hf"));
  const std::string out = folder.file("m.tinyloop");
  std::set<std::string> fingerprints;
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q8,
                                WeightType::q4, WeightType::q4_1}) {
    CAPTURE(name_of(type));
    ImportOptions options;
    options.type = type;
    const ImportReport report = import_checkpoint(folder.file("hf"), out, options);
    const Model model = Model::open(out);
    CHECK_NOTHROW(model.verify());
    CHECK(model.fingerprint() == report.fingerprint);
    fingerprints.insert(report.fingerprint);
    CHECK(report.file_bytes == static_cast<std::int64_t>(std::filesystem::file_size(out)));
    CHECK(report.source_bytes ==
          4 * (2 * 19 * 20 + 20 + 3 * (48 * 20 + 20 * 24 + 3 * 36 * 20 + 40)));

    const WeightType ends = is_four_bits(type) ? WeightType::q8 : type;
    std::map<std::string, std::pair<double, double>> sums;
    const auto check = [&](const char* tensor_class, const WeightView& view, WeightType stored,
                           const std::vector<std::string>& parts) {
      const auto [errors, squares] = check_matrix(view, source, stored, parts);
      sums[tensor_class].first += errors;
      sums[tensor_class].second += squares;
    };
    check("embedding", model.embedding(), ends, {"model.embed_tokens.weight"});
    check("head", model.head(), ends, {"lm_head.weight"});
    check_vector(model.final_norm(), source, "model.norm.weight");
    for (int i = 0; i < 3; ++i) {
      const LayerWeights& layer = model.layers()[static_cast<std::size_t>(i)];
      check("attention", layer.qkv, type,
            {layer_name(i, "self_attn.q_proj"), layer_name(i, "self_attn.k_proj"),
             layer_name(i, "self_attn.v_proj")});
      check("attention", layer.out, type, {layer_name(i, "self_attn.o_proj")});
      check("mlp", layer.gate_up, type,
            {layer_name(i, "mlp.gate_proj"), layer_name(i, "mlp.up_proj")});
      check("mlp", layer.down, type, {layer_name(i, "mlp.down_proj")});
      check_vector(layer.norm1, source, layer_name(i, "input_layernorm"));
      check_vector(layer.norm3, source, layer_name(i, "post_attention_layernorm"));
    }
    REQUIRE(report.errors.size() == 4);
    for (const ConversionError& error : report.errors) {
      CAPTURE(error.tensor_class);
      const auto [errors, squares] = sums.at(error.tensor_class);
      CHECK(error.relative_rms == doctest::Approx(std::sqrt(errors / squares)).epsilon(1e-9));
      CHECK((error.relative_rms == 0.0) == (type == WeightType::f32));
      CHECK(error.largest >= error.relative_rms);
      const bool end = error.tensor_class == "embedding" || error.tensor_class == "head";
      CHECK(error.type == name_of(end ? ends : type));
      CHECK(error.elements == (end                                 ? 19 * 20
                               : error.tensor_class == "attention" ? 3 * (48 * 20 + 20 * 24)
                                                                   : 3 * 3 * 36 * 20));
    }
  }
  CHECK(fingerprints.size() == 6);
}

TEST_CASE("the greatest error is that of the worst value") {
  const TemporaryFolder folder;
  HfModel source = hf_llama();
  // All ones but one value between two halves: 1 + 2^-12 is stored as 1.
  for (std::int64_t i = 0; i < 19 * 20; ++i) source.replaced[{"lm_head.weight", i}] = 1.0f;
  source.replaced[{"lm_head.weight", 77}] = 1.0f + 0x1p-12f;
  source.write(folder.file("hf"));
  ImportOptions options;
  options.type = WeightType::f16;
  const ImportReport report =
      import_checkpoint(folder.file("hf"), folder.file("m.tinyloop"), options);
  for (const ConversionError& error : report.errors) {
    if (error.tensor_class != "head") continue;
    CHECK(error.largest == doctest::Approx(0x1p-12).epsilon(1e-5));
    CHECK(error.relative_rms == doctest::Approx(0x1p-12 / std::sqrt(380.0)).epsilon(1e-5));
  }
}

TEST_CASE("keep leaves every type as it is, also a mixture") {
  const TemporaryFolder folder;
  const std::string out = folder.file("m.tinyloop");
  for (const auto& [foreign, ours] :
       {std::pair("F32", WeightType::f32), std::pair("F16", WeightType::f16),
        std::pair("BF16", WeightType::bf16)}) {
    HfModel source = hf_llama();
    source.store_as(foreign);
    source.write(folder.file("hf"));
    const ImportReport report = import_checkpoint(folder.file("hf"), out, {});
    const Model model = Model::open(out);
    for (const WeightView* view : {&model.embedding(), &model.head(), &model.layers()[2].down}) {
      CHECK(view->type == ours);
    }
    CHECK(check_matrix(model.layers()[1].qkv, source, ours,
                       {layer_name(1, "self_attn.q_proj"), layer_name(1, "self_attn.k_proj"),
                        layer_name(1, "self_attn.v_proj")})
              .first == 0.0);
    check_vector(model.final_norm(), source, "model.norm.weight");
    for (const ConversionError& error : report.errors) CHECK(error.relative_rms == 0.0);
  }
  HfModel source = hf_llama();
  source.store_as("BF16");
  source.tensor(layer_name(0, "self_attn.k_proj")).type = "F32";
  source.tensor(layer_name(1, "self_attn.v_proj")).type = "F16";  // neither holds the other
  source.tensor(layer_name(2, "mlp.down_proj")).type = "F16";
  source.write(folder.file("hf"));
  const ImportReport report = import_checkpoint(folder.file("hf"), out, {});
  const Model model = Model::open(out);
  CHECK(model.layers()[2].down.type == WeightType::f16);
  for (int i = 0; i < 3; ++i) {
    const WeightType type = i < 2 ? WeightType::f32 : WeightType::bf16;
    CHECK(check_matrix(model.layers()[static_cast<std::size_t>(i)].qkv, source, type,
                       {layer_name(i, "self_attn.q_proj"), layer_name(i, "self_attn.k_proj"),
                        layer_name(i, "self_attn.v_proj")})
              .first == 0.0);
  }
  std::int64_t mlp = 0;  // one line a type of each class
  for (const ConversionError& error : report.errors) mlp += error.tensor_class == "mlp" ? 1 : 0;
  CHECK(mlp == 2);
}

TEST_CASE("Ouro, Nanbeige and Qwen3 names") {
  const TemporaryFolder folder;
  const std::string out = folder.file("m.tinyloop");
  HfModel ouro = hf_ouro();
  ouro.write(folder.file("ouro"));
  ImportOptions options;
  options.type = WeightType::q8;
  import_checkpoint(folder.file("ouro"), out, options);
  {
    const Model model = Model::open(out);
    for (int i = 0; i < 3; ++i) {
      const LayerWeights& layer = model.layers()[static_cast<std::size_t>(i)];
      check_vector(layer.norm1, ouro, layer_name(i, "input_layernorm"));
      check_vector(layer.norm2, ouro, layer_name(i, "input_layernorm_2"));
      check_vector(layer.norm3, ouro, layer_name(i, "post_attention_layernorm"));
      check_vector(layer.norm4, ouro, layer_name(i, "post_attention_layernorm_2"));
    }
    check_matrix(model.exit_gate(), ouro, WeightType::f32, {"model.early_exit_gate.weight"});
    CHECK(model.exit_bias() == hf_value(ouro.tensor("model.early_exit_gate.bias"), 0));
  }
  HfModel qwen = hf_qwen3();
  qwen.write(folder.file("qwen"));
  import_checkpoint(folder.file("qwen"), out, {});
  {
    const Model model = Model::open(out);
    check_vector(model.layers()[2].q_norm, qwen, layer_name(2, "self_attn.q_norm"));
    check_vector(model.layers()[2].k_norm, qwen, layer_name(2, "self_attn.k_norm"));
  }
  HfModel nanbeige = hf_nanbeige();
  nanbeige.write(folder.file("nanbeige"));
  import_checkpoint(folder.file("nanbeige"), out, {});
  const Model model = Model::open(out);
  check_matrix(model.layers()[2].down, nanbeige, WeightType::f32, {layer_name(2, "mlp.down_proj")});
}

TEST_CASE("Huginn's sections, fused matrices and both flavours of norms") {
  const TemporaryFolder folder;
  const std::string out = folder.file("m.tinyloop");
  for (const bool llama_flavour : {false, true}) {
    HfModel source = hf_huginn(llama_flavour);
    source.write(folder.file("hf"));
    import_checkpoint(folder.file("hf"), out, {});
    const Model model = Model::open(out);
    check_matrix(model.embedding(), source, WeightType::f32, {"transformer.wte.weight"});
    check_matrix(model.head(), source, WeightType::f32, {"transformer.wte.weight"});
    check_matrix(model.adapter(), source, WeightType::f32, {"transformer.adapter.weight"});
    check_vector(model.final_norm(), source, "transformer.ln_f.weight");
    const std::string sections[] = {"prelude.0.", "prelude.1.", "core_block.0.", "coda.0."};
    REQUIRE(model.layers().size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      const LayerWeights& layer = model.layers()[i];
      const std::string prefix = "transformer." + sections[i];
      check_matrix(layer.qkv, source, WeightType::f32, {prefix + "attn.Wqkv.weight"});
      check_matrix(layer.out, source, WeightType::f32, {prefix + "attn.proj.weight"});
      check_matrix(layer.gate_up, source, WeightType::f32, {prefix + "mlp.fc.weight"});
      check_matrix(layer.down, source, WeightType::f32, {prefix + "mlp.proj.weight"});
      check_vector(layer.norm1, source, prefix + "norm_1.weight");
      if (llama_flavour) {
        check_vector(layer.norm3, source, prefix + "norm_2.weight");
        CHECK(layer.qk_bias.empty());
        CHECK(layer.norm2.empty());
      } else {
        check_vector(layer.norm2, source, prefix + "norm_2.weight");
        check_vector(layer.norm3, source, prefix + "norm_3.weight");
        check_vector(layer.norm4, source, prefix + "norm_4.weight");
        check_vector(layer.qk_bias, source, prefix + "attn.qk_bias");  // all of q, then all of k
      }
    }
  }
}

TEST_CASE("a tied head needs no tensor and ignores one that is the embedding") {
  const TemporaryFolder folder;
  HfModel source = hf_llama();
  source.keys["tie_word_embeddings"] = "true";
  for (std::int64_t i = 0; i < 19 * 20; ++i) {
    source.replaced[{"lm_head.weight", i}] =
        hf_value(source.tensor("model.embed_tokens.weight"), i);
  }
  source.write(folder.file("with"));
  source.remove("lm_head.weight");
  source.write(folder.file("without"));
  const auto convert = [&](const char* name) {
    return import_checkpoint(folder.file(name), folder.file("m.tinyloop"), {}).fingerprint;
  };
  const std::string fingerprint = convert("without");
  CHECK(convert("with") == fingerprint);
  const Model model = Model::open(folder.file("m.tinyloop"));
  CHECK(model.config().tied_head);
  CHECK(model.head().data.data() == model.embedding().data.data());
}

// Splits a model's tensors over two shards with an index.
void write_shards(const HfModel& source, const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_file(folder + "/config.json", source.config());
  std::vector<HfSpec> parts[2];
  std::string map;
  for (std::size_t i = 0; i < source.tensors.size(); ++i) {
    const std::size_t shard = i % 3 == 0 ? 0 : 1;
    parts[shard].push_back(source.tensors[i]);
    map += (map.empty() ? "\"" : ",\"") + source.tensors[i].name + "\":\"s" +
           std::to_string(shard) + ".safetensors\"";
  }
  for (const std::size_t shard : {0, 1}) {
    write_file(folder + "/s" + std::to_string(shard) + ".safetensors",
               source.file_of(parts[shard]));
  }
  write_file(folder + "/model.safetensors.index.json",
             R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}");
}

TEST_CASE(
    "shards make the same model as one file; shards that do not fit their index are refused") {
  const TemporaryFolder folder;
  const HfModel source = hf_ouro();
  source.write(folder.file("one"));
  write_shards(source, folder.file("two"));
  const std::string out = folder.file("m.tinyloop");
  const std::string fingerprint = import_checkpoint(folder.file("one"), out, {}).fingerprint;
  CHECK(import_checkpoint(folder.file("two"), out, {}).fingerprint == fingerprint);

  const std::string index_path = folder.file("two") + "/model.safetensors.index.json";
  const std::string index = read_file(index_path);
  const auto edited = [&](std::string_view from, std::string_view to) {
    std::string text = index;
    text.replace(text.find(from), from.size(), to);
    write_file(index_path, text);
  };
  const auto convert = [&] { import_checkpoint(folder.file("two"), out, {}); };
  edited("\"model.embed_tokens.weight\":\"s0.", "\"model.embed_tokens.weight\":\"s2.");
  CHECK_ERROR(convert(), io, "s2.safetensors: No such file");
  edited("\"model.embed_tokens.weight\":\"s0.", "\"model.embed_tokens.weight\":\"s1.");
  CHECK_ERROR(convert(), data, "s1.safetensors: tensor \"model.embed_tokens.weight\" is missing");
  edited("\"model.norm.weight\":\"s1.safetensors\",", "");
  CHECK_ERROR(convert(), data, "s1.safetensors: tensor model.norm.weight");
  edited("\"weight_map\":{", "\"weight_map\":{\"more\":\"s0.safetensors\",");
  CHECK_ERROR(convert(), data, "s0.safetensors: tensor \"more\" is missing");
  edited("s0.safetensors", "../one/model.safetensors");
  CHECK_ERROR(convert(), data, "its shard is not a plain file name");
  edited("\"s0.safetensors\"", "\"\\u001b[2J\"");
  CHECK_ERROR(convert(), data, "its shard is not a plain file name");
  edited("\"weight_map\":{", "\"weight_map\":{\"\\n\":\"s0.safetensors\",");
  CHECK_ERROR(convert(), data, "tensor \"\\u000a\" is missing");
  edited("weight_map", "weights");
  CHECK_ERROR(convert(), data, "index.json: weight_map is missing");
  edited("\"s0.safetensors\"", "0");
  CHECK_ERROR(convert(), data, "index.json: weight_map is");
  CHECK(entries_in(folder.path()) == 3);
}

TEST_CASE("weights that do not fit are refused by name and leave nothing") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const TemporaryFolder folder;
  struct Case {
    std::string message;
    WeightType type;
    std::function<void(HfModel&)> change;
  };
  const std::string down = "model.layers.1.mlp.down_proj.weight";
  const auto set = [&](const std::string& name, std::int64_t index, float value) {
    return [=](HfModel& m) { m.replaced[{name, index}] = value; };
  };
  const Case cases[] = {
      {"tensor " + down + " is missing", WeightType::f32, [&](HfModel& m) { m.remove(down); }},
      {"tensor lm_head.weight is missing", WeightType::f32,
       [&](HfModel& m) { m.remove("lm_head.weight"); }},
      {"tensor model.layers.3.mlp.down_proj.weight: a model of family llama has no such tensor "
       "(the configuration has 3 layers)",
       WeightType::f32,
       [&](HfModel& m) {
         m.tensor("model.layers.3.mlp.down_proj.weight").shape = {20, 36};
       }},
      {"tensor model.layers.0.self_attn.q_proj.bias: a model of family llama has no such tensor",
       WeightType::f32,
       [&](HfModel& m) { m.tensor("model.layers.0.self_attn.q_proj.bias").shape = {24}; }},
      {"tensor " + down + ": its shape is [36, 20], but the configuration needs [20, 36]",
       WeightType::f32,
       [&](HfModel& m) {
         m.tensor(down).shape = {36, 20};
       }},
      {"tensor " + down + ": its shape is [720]", WeightType::f32,
       [&](HfModel& m) { m.tensor(down).shape = {720}; }},
      {"tensor model.norm.weight: its shape is [21]", WeightType::f32,
       [&](HfModel& m) { m.tensor("model.norm.weight").shape = {21}; }},
      {"tensor " + down + ": type I64 is not supported", WeightType::f32,
       [&](HfModel& m) { m.tensor(down).type = "I64"; }},
      {"tensor " + down + ": value nan at element 715 is not finite", WeightType::f32,
       set(down, 715, nan)},
      {"tensor " + down + ": value -inf at element 0 is not finite", WeightType::q8,
       set(down, 0, -infinity)},
      {"tensor model.norm.weight: value inf at element 3 is not finite", WeightType::f32,
       set("model.norm.weight", 3, infinity)},
      {"tensor " + down + ": value -65520 at element 1 is too large for f16", WeightType::f16,
       set(down, 1, -65520.0f)},
      {"tensor " + down + ": value 3.4", WeightType::bf16,
       set(down, 1, std::numeric_limits<float>::max())},
      {"tensor " + down + ": value 8400000 at element 1 is too large for q8", WeightType::q8,
       set(down, 1, 8.4e6f)},
      {"tensor " + down + ": value 3700000 at element 1 is too large for q4", WeightType::q4,
       set(down, 1, 3.7e6f)},
      {"tensor " + down + ": value -65520 at element 1 is too large for q4_1", WeightType::q4_1,
       set(down, 1, -65520.0f)},
  };
  write_file(folder.file("m.tinyloop"), "old");
  for (const Case& example : cases) {
    CAPTURE(example.message);
    HfModel source = hf_llama();
    example.change(source);
    source.write(folder.file("hf"));
    ImportOptions options;
    options.type = example.type;
    CHECK_ERROR(import_checkpoint(folder.file("hf"), folder.file("m.tinyloop"), options), data,
                example.message);
    CHECK(entries_in(folder.path()) == 2);
    CHECK(read_file(folder.file("m.tinyloop")) == "old");
  }
  // The largest values that do fit.
  HfModel source = hf_llama();
  source.replaced[{down, 1}] = 65519.0f;
  source.write(folder.file("hf"));
  ImportOptions options;
  options.type = WeightType::f16;
  import_checkpoint(folder.file("hf"), folder.file("m.tinyloop"), options);
  const Model model = Model::open(folder.file("m.tinyloop"));
  const WeightView& view = model.layers()[1].down;
  CHECK(unpack_value(view.type, view.k, view.data, view.scales, 0, 1) == 65504.0f);
}

TEST_CASE("a full disk, a stopped run or a place that cannot be written leave nothing") {
  const TemporaryFolder folder;
  hf_llama().write(folder.file("hf"));
  const std::string out = folder.file("m.tinyloop");
  {
    const FileSizeLimit limit(20'000);
    CHECK_ERROR(import_checkpoint(folder.file("hf"), out, {}), io, out + ": File too large");
  }
  ImportOptions options;
  struct Stop {};
  std::int64_t last = 0, whole = 0;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    CHECK(done >= last);
    last = done;
    whole = total;
    if (done * 2 > total) throw Stop{};
  };
  CHECK_THROWS_AS(import_checkpoint(folder.file("hf"), out, options), Stop);
  CHECK(entries_in(folder.path()) == 1);
  options.progress = [&](std::int64_t done, std::int64_t total) {
    last = done;
    whole = total;
  };
  const ImportReport report = import_checkpoint(folder.file("hf"), out, options);
  CHECK(last == whole);
  CHECK(whole == report.source_bytes);
  CHECK_ERROR(import_checkpoint(folder.file("hf"), folder.file("no/m.tinyloop"), {}), io,
              "no/m.tinyloop: No such file");
  CHECK_ERROR(import_checkpoint(folder.file("hf"), folder.path(), {}), io, "Is a directory");
  CHECK_ERROR(import_checkpoint(folder.file("hf"), folder.file("hf/model.safetensors"), {}), usage,
              "the output is also an input");
  CHECK(entries_in(folder.path()) == 2);
  CHECK(entries_in(folder.file("hf")) == 2);
}

}  // namespace
}  // namespace tinyloop
