// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files and over random changes of them, always the same, where libFuzzer
// is not at hand (gcc). Not a fuzzer: it does not learn. Usage: replay [--mutations N]
// FILE|FOLDER...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be opened");
  return Input(std::istreambuf_iterator<char>(file), {});
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Input>& corpus) : corpus_(corpus) {}

  Input next() {
    Input input = corpus_[below(corpus_.size())];
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    return input;
  }

 private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(below(256)); }

  void change(Input& input) {
    // Bytes that mean something to one of our formats.
    static constexpr char kTelling[] = "\0\xff\x7f\x80\n\r\t -0189,:\"[]{}.e\\";
    if (input.empty()) return input.push_back(byte());
    const std::size_t at = below(input.size());
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    const auto some =
        static_cast<std::ptrdiff_t>(1 + below(std::min<std::size_t>(input.size() - at, 16)));
    switch (below(7)) {
      case 0:
        input[at] = byte();
        return;
      case 1:
        input[at] = static_cast<std::uint8_t>(input[at] ^ (1u << below(8)));
        return;
      case 2:
        input[at] = static_cast<std::uint8_t>(kTelling[below(sizeof kTelling)]);
        return;
      case 3:
        input.insert(place, static_cast<std::uint8_t>(kTelling[below(sizeof kTelling)]));
        return;
      case 4:
        input.erase(place, place + some);
        return;
      case 5: {
        const Input copy(place, place + some);
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size())), copy.begin(),
                     copy.end());
        return;
      }
      default: {  // the head of one and the tail of another
        const Input& other = corpus_[below(corpus_.size())];
        input.resize(at);
        if (!other.empty()) {
          input.insert(input.end(),
                       other.begin() + static_cast<std::ptrdiff_t>(below(other.size())),
                       other.end());
        }
      }
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_{1};
};

int replay(int argc, char** argv) {
  std::size_t mutations = 10000;
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--mutations" && i + 1 < argc) {
      mutations = std::stoul(argv[++i]);
    } else if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
        paths.push_back(entry.path());
      }
    } else {
      paths.emplace_back(argv[i]);
    }
  }
  std::sort(paths.begin(), paths.end());  // folders list in any order
  std::vector<Input> corpus;
  for (const std::filesystem::path& path : paths) corpus.push_back(read_file(path));
  if (corpus.empty()) throw std::runtime_error("no input files");

  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  Mutator mutator(corpus);
  for (std::size_t i = 0; i < mutations; ++i) {
    const Input input = mutator.next();
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu files and %zu changes of them\n", corpus.size(), mutations);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return replay(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "replay: %s\n", error.what());
    return 1;
  }
}
