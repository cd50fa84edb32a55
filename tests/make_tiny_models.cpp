// SPDX-License-Identifier: Apache-2.0
// make-tiny-models FOLDER: writes all tiny models for the shell tests, and some of them as Hugging
// Face folders. Not installed. FOLDER/NAME.tinyloop is f32, NAME-q8.tinyloop and the like are other
// types, NAME-hf are checkpoints.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "tiny_models.h"

namespace {

void write_all(const std::string& folder) {
  using namespace tinyloop;
  std::filesystem::create_directories(folder);
  std::vector<TinyModel> models = all_tiny_models();
  models.push_back(TinyModel::flat);
  for (const TinyModel which : models) {
    const std::string path = write_tiny_model(folder, which, WeightType::f32);
    std::filesystem::rename(path, folder + "/" + std::string(name_of(which)) + ".tinyloop");
  }
  for (const WeightType type :
       {WeightType::f16, WeightType::bf16, WeightType::q8, WeightType::q4, WeightType::q4_1}) {
    write_tiny_model(folder, TinyModel::m, type);
    write_tiny_model(folder, TinyModel::odd, type);
  }
  write_tiny_checkpoint(folder, TinyModel::ouro, WeightType::bf16);
  write_tiny_checkpoint(folder, TinyModel::nanbeige, WeightType::f16);
  write_tiny_checkpoint(folder, TinyModel::nan, WeightType::f32);
  for (const TinyModel which : {TinyModel::m, TinyModel::huginn, TinyModel::huginn_llama,
                                TinyModel::llama, TinyModel::qwen3, TinyModel::relaxed}) {
    write_tiny_checkpoint(folder, which, WeightType::f32);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make-tiny-models FOLDER\n", stderr);
    return 2;
  }
  try {
    write_all(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make-tiny-models: %s\n", error.what());
    return 1;
  }
  return 0;
}
