// SPDX-License-Identifier: Apache-2.0
// make-acceptance-model FILE ACCEPTANCE[+SECOND] [HIDDEN LAYERS LOOPS [TYPE]]: writes a model whose
// drafts are right with a given probability, for measuring speculation. Not installed; big weights
// are random and idle, what decides is this:
//
// Ids 0 .. 511 form one cycle, and the answer after x is the next id of it. For the share
// ACCEPTANCE of the ids the embedding alone says so. For the others it says another id, and each
// loop adds to a second channel that says the right one; it wins after three quarters of the loops,
// and with SECOND, up to that share of the ids, after two loops. So a draft of at most half of the
// loops is wrong exactly after those ids.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tinyloop/model/model_writer.h"
#include "tinyloop/random.h"

namespace {

using namespace tinyloop;

constexpr std::int32_t kIds = 512;
constexpr float kEmbedding = 8.0f, kStep = 1.0f;

double noise(std::uint32_t tensor, std::uint32_t index) {
  return static_cast<double>(philox(1, {index, tensor, 0, 0})[0]) * 0x1p-32 - 0.5;
}

struct Plan {
  std::vector<TokenId> next, wrong;  // [ids]
  std::vector<float> late;  // [ids]: loops until `next` wins over `wrong`; 0: from the first
};

Plan make_plan(double acceptance, double second, std::int32_t loops) {
  std::vector<TokenId> cycle(kIds);
  for (TokenId i = 0; i < kIds; ++i) cycle[static_cast<std::size_t>(i)] = i;
  for (std::uint32_t i = kIds - 1; i > 0; --i) {
    std::swap(cycle[i], cycle[philox(2, {i, 0, 0, 0})[0] % (i + 1)]);
  }
  Plan plan{std::vector<TokenId>(kIds), std::vector<TokenId>(kIds), std::vector<float>(kIds)};
  for (std::uint32_t i = 0; i < kIds; ++i) {
    const auto x = static_cast<std::size_t>(cycle[i]);
    plan.next[x] = cycle[(i + 1) % kIds];
    plan.wrong[x] = cycle[(i + 2) % kIds];
    const double share = static_cast<double>(philox(3, {i, 0, 0, 0})[0]) * 0x1p-32;
    if (share >= acceptance) plan.late[x] = 0.75f * static_cast<float>(loops);
    if (share >= acceptance && share < second) plan.late[x] = 1.5f;
  }
  return plan;
}

// One row [k] of a matrix.
std::vector<float> row_of(const ModelTensor& tensor, const ModelConfig& config, const Plan& plan,
                          std::uint32_t number, std::int64_t n) {
  const auto k = static_cast<std::size_t>(tensor.k);
  std::vector<float> row(k);
  const bool down = tensor.name == "layers.0.down";
  const bool gates = tensor.name == "layers.0.gate_up";
  const bool writes = tensor.name.ends_with("out") || tensor.name.ends_with("down");
  if (tensor.name == "embedding") {
    row[static_cast<std::size_t>(n)] = kEmbedding;
  } else if (tensor.name == "head") {
    for (std::size_t x = 0; x < kIds; ++x) {
      if (plan.late[x] > 0.0f) {
        if (plan.wrong[x] == n) row[x] = 1.0f;
        if (plan.next[x] == n) row[kIds + x] = kEmbedding / (kStep * plan.late[x]);
      } else if (plan.next[x] == n) {
        row[x] = 1.0f;
      }
    }
  } else if (gates && n % config.ffn < kIds) {
    // Unit x sees id x as about sqrt(hidden), so that gate * up is about 1.
    row[static_cast<std::size_t>(n % config.ffn)] =
        1.0f / std::sqrt(static_cast<float>(config.hidden));
  } else {
    const double scale = writes ? 1e-5 : 1.0 / std::sqrt(static_cast<double>(k));
    for (std::size_t i = 0; i < k; ++i) {
      row[i] = static_cast<float>(
          scale * noise(number, static_cast<std::uint32_t>(static_cast<std::size_t>(n) * k + i)));
    }
  }
  if (down) {
    for (std::size_t x = 0; x < kIds; ++x) row[x] = 0.0f;
    const std::int64_t x = n - kIds;
    if (x >= 0 && x < kIds && plan.late[static_cast<std::size_t>(x)] > 0.0f) {
      row[static_cast<std::size_t>(x)] = kStep / 0.731f;  // silu(1)
    }
  }
  return row;
}

void write(const std::string& path, double acceptance, double second, std::int32_t hidden,
           std::int32_t layers, std::int32_t loops, WeightType type) {
  ModelConfig config;
  config.family = "nanbeige";
  config.vocab = kIds;
  config.hidden = hidden;
  config.ffn = 4 * hidden;
  config.head_dim = 64;
  config.heads = config.kv_heads = hidden / 64;
  config.context = 4096;
  config.core_layers = layers;
  config.default_loops = config.trained_loops = loops;
  config.max_loops = 64;
  const Plan plan = make_plan(acceptance, second, loops);
  const std::vector<WeightType> types(model_tensors(config).size(), type);
  ModelWriter writer(path, config, types);
  std::uint32_t number = 0;
  while (const ModelTensor* next = writer.next()) {
    const ModelTensor tensor = *next;
    ++number;
    if (!tensor.matrix) {
      writer.append_vector(std::vector<float>(static_cast<std::size_t>(tensor.n), 1.0f));
      continue;
    }
    for (std::int64_t first = 0; first < tensor.n; first += kPanel) {
      std::vector<float> rows(static_cast<std::size_t>(kPanel * tensor.k), 0.0f);
      for (std::int64_t n = first; n < std::min(first + kPanel, tensor.n); ++n) {
        const std::vector<float> row = row_of(tensor, config, plan, number, n);
        std::copy(row.begin(), row.end(), rows.begin() + (n - first) * tensor.k);
      }
      writer.append_panel(rows);
    }
  }
  writer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 6 && argc != 7) {
    std::fputs(
        "usage: make-acceptance-model FILE ACCEPTANCE[+SECOND] [HIDDEN LAYERS LOOPS [TYPE]]\n",
        stderr);
    return 2;
  }
  try {
    const auto number = [&](int index, int otherwise) {
      return argc > index ? std::atoi(argv[index]) : otherwise;
    };
    const std::string shares = argv[2];
    const std::size_t plus = shares.find('+');
    const double second = plus == std::string::npos ? 0.0 : std::atof(argv[2] + plus + 1);
    write(argv[1], std::atof(argv[2]), second, number(3, 1024), number(4, 4), number(5, 8),
          parse_weight_type(argc > 6 ? argv[6] : "f16"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make-acceptance-model: %s\n", error.what());
    return 1;
  }
  return 0;
}
