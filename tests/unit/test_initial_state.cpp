// SPDX-License-Identifier: Apache-2.0
// Initial states: zero, seeded noise and files.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

#include "temporary_folder.h"
#include "tinyloop/error.h"
#include "tinyloop/files/npy_file.h"
#include "tinyloop/model/initial_state.h"
#include "unit/file_bytes.h"

namespace tinyloop {
namespace {

ModelConfig free_config(std::int32_t hidden, double deviation) {
  ModelConfig config;
  config.family = "huginn";
  config.hidden = hidden;
  config.injection = Injection::concat;
  config.initial_state = InitialState::free;
  config.initial_std = deviation;
  return config;
}

std::vector<float> state_at(const InitialStates& states, std::int64_t position,
                            std::size_t hidden) {
  std::vector<float> row(hidden, 99.0f);
  states.fill(position, row);
  return row;
}

TEST_CASE("a state that is not free takes no choice") {
  ModelConfig config;
  config.family = "ouro";
  config.hidden = 8;
  CHECK(InitialStates::parse("", config).identity().empty());
  CHECK_ERROR(InitialStates::parse("zero", config), usage, "ouro");
  CHECK_ERROR(InitialStates::parse("seed:0", config), usage, "seed:0");
}

TEST_CASE("zero") {
  const InitialStates states = InitialStates::parse("zero", free_config(8, 0.5));
  CHECK(states.identity() == "zero");
  CHECK(state_at(states, 12345, 8) == std::vector<float>(8, 0.0f));
}

TEST_CASE("noise depends on seed, position and channel, and on nothing else") {
  const ModelConfig config = free_config(64, 0.63);
  const InitialStates states = InitialStates::parse("seed:7", config);
  CHECK(states.identity() == "seed:7");
  CHECK(InitialStates::parse("", config).identity() == "seed:0");
  CHECK(state_at(InitialStates::parse("", config), 3, 64) ==
        state_at(InitialStates::parse("seed:0", config), 3, 64));
  const std::vector<float> later = state_at(states, 5, 64);
  state_at(states, 1, 64);
  CHECK(state_at(states, 5, 64) == later);
  CHECK(state_at(InitialStates::parse("seed:7", config), 5, 64) == later);
  CHECK(state_at(states, 4, 64) != later);
  CHECK(state_at(InitialStates::parse("seed:8", config), 5, 64) != later);
  CHECK(InitialStates::parse("seed:18446744073709551615", config).identity() ==
        "seed:18446744073709551615");
}

TEST_CASE("noise has the deviation of the model and is cut at three of them") {
  const double deviation = 0.63;
  const InitialStates states = InitialStates::parse("seed:1", free_config(64, deviation));
  double sum = 0.0, squares = 0.0, greatest = 0.0;
  std::set<float> values;
  const int positions = 2000;
  for (int p = 0; p < positions; ++p) {
    for (const float value : state_at(states, p, 64)) {
      sum += value;
      squares += static_cast<double>(value) * value;
      greatest = std::max(greatest, std::fabs(static_cast<double>(value)));
      values.insert(value);
    }
  }
  const double count = positions * 64.0;
  CHECK(std::fabs(sum / count) < 0.01);
  // A normal distribution cut at 3 has the variance 1 - 6 phi(3) / (2 Phi(3) - 1) = 0.97334.
  CHECK(squares / count == doctest::Approx(0.97334 * deviation * deviation).epsilon(0.02));
  CHECK(greatest <= 3.0 * deviation * (1 + 1e-6));
  CHECK(greatest > 2.8 * deviation);
  CHECK(values.size() > 0.95 * count);
}

TEST_CASE("a file gives the rows of its positions") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, std::vector<std::int64_t> row_shape,
                         const std::vector<float>& values) {
    NpyWriter writer(folder.file(name), std::move(row_shape));
    writer.append(values);
    writer.finish();
    return folder.file(name);
  };
  const ModelConfig config = free_config(4, 0.5);
  const std::string path = write("a.npy", {4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const InitialStates states = InitialStates::parse(path, config);
  CHECK(state_at(states, 0, 4) == std::vector<float>{1, 2, 3, 4});
  CHECK(state_at(states, 1, 4) == std::vector<float>{5, 6, 7, 8});
  std::vector<float> row(4);
  CHECK_ERROR(states.fill(2, row), usage, "position 2");
  // The identity is that of the content, not of the name.
  CHECK(states.identity().starts_with("file:"));
  CHECK(states.identity().size() == 5 + 32);
  CHECK(InitialStates::parse(write("b.npy", {4}, {1, 2, 3, 4, 5, 6, 7, 8}), config).identity() ==
        states.identity());
  CHECK(InitialStates::parse(write("c.npy", {4}, {1, 2, 3, 4, 5, 6, 7, 9}), config).identity() !=
        states.identity());

  // In Fortran order, as NumPy writes a transposed array, the same state.
  std::string dict = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4), }";
  dict.resize(117, ' ');
  write_file(folder.file("fortran.npy"), std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict +
                                             '\n' +
                                             bytes_of_values<float>({1, 5, 2, 6, 3, 7, 4, 8}));
  CHECK(InitialStates::parse(folder.file("fortran.npy"), config).identity() == states.identity());

  CHECK_ERROR(InitialStates::parse(write("d.npy", {3}, {1, 2, 3}), config), usage, "d.npy");
  CHECK_ERROR(InitialStates::parse(write("e.npy", {}, {1, 2, 3, 4}), config), usage,
              "[positions][4]");
  CHECK_ERROR(InitialStates::parse(write("f.npy", {4}, {}), config), usage, "f.npy");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_ERROR(InitialStates::parse(write("g.npy", {4}, {1, 2, 3, 4, 5, 6, nan, 8}), config), usage,
              "[1][2] is not finite");
}

TEST_CASE("malformed choices are refused") {
  const ModelConfig config = free_config(4, 0.5);
  for (const char* text : {"seed:", "seed:-1", "seed:1x", "seed: 1", "seed:0x1", "seed:1.0",
                           "seed:18446744073709551616"}) {
    CAPTURE(text);
    CHECK_ERROR(InitialStates::parse(text, config), usage, text);
  }
  CHECK_ERROR(InitialStates::parse("no-such-file.npy", config), io, "no-such-file.npy");
}

}  // namespace
}  // namespace tinyloop
