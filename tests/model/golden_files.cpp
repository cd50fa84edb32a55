// SPDX-License-Identifier: Apache-2.0
// Reads golden vectors for tests; see the header.
#include "model/golden_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace tinyloop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Little-endian float32 in C order; the shape is left to the caller, who knows it.
Doubles read_npy(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (bytes.size() < 10 || bytes.compare(0, 6, "\x93NUMPY") != 0 ||
      bytes.find("'<f4'") == std::string::npos ||
      bytes.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error("not a float32 .npy file: " + path.string());
  }
  const std::size_t data =
      10 + static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  Doubles values;
  for (std::size_t at = data; at + 4 <= bytes.size(); at += 4) {
    float value;
    std::memcpy(&value, bytes.data() + at, 4);
    values.push_back(value);
  }
  return values;
}

// The array that a key names; empty without the key or the file, since the repository keeps some of
// the arrays only.
Doubles named_array(const fs::path& folder, const Json& json, const std::string& key) {
  if (!json.contains(key)) return {};
  const fs::path path = folder / json.at(key).get<std::string>();
  return fs::exists(path) ? read_npy(path) : Doubles();
}

GoldenRun read_run(const fs::path& folder, const Json& json, const std::vector<TokenId>& prompt) {
  GoldenRun run;
  run.prompt = prompt;
  json.at("greedy_tokens").get_to(run.greedy);
  json.at("margins").get_to(run.margins);
  json.at("top_logits_first_step").get_to(run.top_logits);
  run.prompt_logits = named_array(folder, json, "prompt_logits_npy");
  run.decode_logits = named_array(folder, json, "decode_logits_npy");
  run.loop_states = named_array(folder, json, "loop_states_last_pos_npy");
  json.at("f32_vs_f64_max_abs_diff_prompt").get_to(run.float_error_prompt);
  json.at("f32_vs_f64_max_abs_diff_decode").get_to(run.float_error_decode);
  for (const Json& row : json.value("gate_lambda_all_pos", Json::array())) {
    for (const Json& value : row) run.gates.push_back(value);
  }
  run.exit_prompt = json.value("exit_step_all_pos", run.exit_prompt);
  run.exit_greedy = json.value("exit_step_greedy", run.exit_greedy);
  run.latent_changes = json.value("exit_latent_diff", run.latent_changes);
  run.divergences = json.value("exit_kl", run.divergences);
  return run;
}

GoldenCase read_case(const fs::path& folder, const Json& json, const Json& family) {
  GoldenCase golden;
  golden.folder = folder.string();
  json.at("name").get_to(golden.name);
  json.at("loops").get_to(golden.loops);
  golden.shared_planes = json.value("kv_slots", 0);
  if (json.contains("exit_threshold")) golden.exit_threshold = json["exit_threshold"].get<double>();
  golden.skip_compute = json.value("skip_compute", false);
  golden.skip_loop_norm = json.value("skip_loop_final_norm", false);
  if (json.contains("tflt")) {
    const Json& looped = json["tflt"];
    golden.loops = looped.at("substeps");
    golden.looped = LoopedRange{looped.at("window").at(0), looped.at("window").at(1), golden.loops,
                                looped.at("alpha"), looped.at("beta")};
  }
  if (json.value("init_state", "zero") == "stored") {
    golden.initial_states_file = (folder / family.at("init_state_npy").get<std::string>()).string();
    golden.initial_states = read_npy(golden.initial_states_file);
  }
  for (const auto& [prompt, run] : json.at("runs").items()) {
    golden.runs.push_back(read_run(folder, run, family.at("prompts").at(prompt)));
    golden.runs.back().name = folder.filename().string() + "/" + golden.name + "/" + prompt;
  }
  return golden;
}

// The folders whose families are read today; the full set has more.
const std::set<std::string> kFamilies = {"huginn",   "huginn_llama", "llama_tied", "llama_untied",
                                         "nanbeige", "ouro",         "qwen3"};

}  // namespace

std::vector<std::string> golden_roots() {
  const fs::path source = TL_SOURCE_ROOT;
  std::vector<std::string> roots = {(source / "tests/model/golden").string()};
  const fs::path full = source / "../shared/goldens";
  if (fs::exists(full)) roots.push_back(full.string());
  return roots;
}

std::vector<GoldenCase> read_golden_cases(const std::string& root) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "golden.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<GoldenCase> cases;
  for (const fs::path& folder : folders) {
    if (!kFamilies.contains(folder.filename().string())) continue;
    std::ifstream in(folder / "golden.json");
    const Json family = Json::parse(in);
    for (const Json& json : family.at("cases")) cases.push_back(read_case(folder, json, family));
  }
  return cases;
}

}  // namespace tinyloop
