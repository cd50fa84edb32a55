// SPDX-License-Identifier: Apache-2.0
// Kernels that move or change rows element by element, the RMS norm, and the conversions for
// cuBLAS. All but the conversions give the CPU's bits. Products are in kernels_matmul.
#include "device_values.h"

namespace tinyloop::cuda {
namespace {

TL_GLOBAL void gather_kernel(Rows to, Rows from, const std::int32_t* index, std::int64_t width) {
  const Element at = element_of(width);
  if (at.column < width) {
    row_at(to, at.row)[at.column] = row_at(from, index[at.row])[at.column];
  }
}

TL_GLOBAL void scatter_kernel(Rows to, Rows from, const std::int32_t* index, std::int64_t width) {
  const Element at = element_of(width);
  if (at.column < width) {
    row_at(to, index[at.row])[at.column] = row_at(from, at.row)[at.column];
  }
}

template <WeightType kType>
TL_GLOBAL void embed_kernel(Rows to, Weights table, const TokenId* ids, float scale) {
  const Element at = element_of(table.k);
  if (at.column < table.k) {
    row_at(to, at.row)[at.column] = scale * weight_at<kType>(table, ids[at.row], at.column);
  }
}

TL_GLOBAL void add_kernel(Rows y, Rows x, std::int64_t width) {
  const Element at = element_of(width);
  if (at.column < width) {
    float& sum = row_at(y, at.row)[at.column];
    sum = sum + row_at(x, at.row)[at.column];
  }
}

TL_GLOBAL void blend_kernel(Rows y, float a, Rows x, float b, std::int64_t width) {
  const Element at = element_of(width);
  if (at.column < width) {
    float& mix = row_at(y, at.row)[at.column];
    mix = fma(b, row_at(x, at.row)[at.column], a * mix);
  }
}

TL_GLOBAL void gated_silu_kernel(Rows out, Rows gate_up, std::int64_t width) {
  const Element at = element_of(width);
  if (at.column < width) {
    const float* row = row_at(gate_up, at.row);
    const float gate = row[at.column];
    const float silu = divide(gate, 1.0f + exp_of(0.0f - gate));
    row_at(out, at.row)[at.column] = silu * row[width + at.column];
  }
}

// One block a row. The chains of the 16 sums (lane = column % 16) are short beside the way to
// memory, so all threads fetch and 16 add.
constexpr std::int64_t kNormChunk = 4096;  // floats in shared memory
constexpr std::uint32_t kNormThreads = 256;

TL_GLOBAL void rms_norm_kernel(Rows y, Rows x, const float* weight, std::int64_t width, float eps) {
  auto* chunk = reinterpret_cast<float*>(shared_memory());
  const float* from = row_at(x, block_x());
  float* to = row_at(y, block_x());
  const std::uint32_t thread = thread_index();
  float squares = 0.0f;
  for (std::int64_t first = 0; first < width; first += kNormChunk) {
    const std::int64_t count = least_of(width - first, kNormChunk);
    for (std::int64_t i = thread; i < count; i += kNormThreads) chunk[i] = from[first + i];
    barrier();
    if (thread < 16) {
      for (std::int64_t i = thread; i < count; i += 16) squares = fma(chunk[i], chunk[i], squares);
    }
    barrier();
  }
  if (thread < kWarpThreads) {
    squares = sum_of_16(squares);  // lanes 16 .. 31 hold zeros and are not used
    const float mean = divide(squares, static_cast<float>(width));
    if (thread == 0) chunk[0] = divide(1.0f, square_root(mean + eps));
  }
  barrier();
  const float factor = chunk[0];
  for (std::int64_t i = thread; i < width; i += kNormThreads) to[i] = from[i] * factor * weight[i];
}

// --- for cuBLAS ---------------------------------------------------------------------------------

constexpr float kGreatestHalf = 65504.0f;

TL_DEVICE void put(float* to, float value) { *to = value; }
struct Half {
  std::uint16_t bits;
};
TL_DEVICE void put(Half* to, float value) {
  if (value > kGreatestHalf) value = kGreatestHalf;
  if (value < -kGreatestHalf) value = -kGreatestHalf;
  to->bits = narrow_f16(value);
}
struct Bfloat {
  std::uint16_t bits;
};
TL_DEVICE void put(Bfloat* to, float value) { to->bits = narrow_bf16(value); }

template <typename F>
void with_plain_type(void* to, PlainType type, F&& f) {
  switch (type) {
    case PlainType::f32:
      return f(static_cast<float*>(to));
    case PlainType::f16:
      return f(static_cast<Half*>(to));
    case PlainType::bf16:
      return f(static_cast<Bfloat*>(to));
  }
}

template <typename Plain>
TL_GLOBAL void convert_kernel(Plain* to, Rows x, std::int64_t width) {
  const Element at = element_of(width);
  if (at.column < width) put(to + at.row * width + at.column, row_at(x, at.row)[at.column]);
}

// A block takes 64 inputs of one panel: it reads along the panel's outputs and writes along k.
constexpr std::int64_t kUnpackInputs = 64;
constexpr std::int64_t kUnpackStride = kUnpackInputs + 1;  // no two lanes in one bank
constexpr std::uint32_t kUnpackThreads = 128;

template <WeightType kType, typename Plain>
TL_GLOBAL void unpack_kernel(Plain* to, Weights w, std::int64_t first, std::int64_t rows) {
  auto* tile = reinterpret_cast<float*>(shared_memory());  // [16][kUnpackStride]
  const std::int64_t chunks = (w.k + kUnpackInputs - 1) / kUnpackInputs;
  const std::int64_t panel = first / 16 + block_x() / chunks;
  const std::int64_t first_k = block_x() % chunks * kUnpackInputs;
  for (std::int64_t i = thread_index(); i < 16 * kUnpackInputs; i += kUnpackThreads) {
    const std::int64_t lane = i % 16, k = first_k + i / 16;
    if (k < w.k) tile[lane * kUnpackStride + i / 16] = weight_at<kType>(w, panel * 16 + lane, k);
  }
  barrier();
  for (std::int64_t i = thread_index(); i < 16 * kUnpackInputs; i += kUnpackThreads) {
    const std::int64_t k = first_k + i % kUnpackInputs, lane = i / kUnpackInputs;
    const std::int64_t row = panel * 16 + lane - first;
    if (k < w.k && row >= 0 && row < rows) {
      put(to + row * w.k + k, tile[lane * kUnpackStride + i % kUnpackInputs]);
    }
  }
}

// --- host ---------------------------------------------------------------------------------------

void gather(Rows to, Rows from, const std::int32_t* index, std::int64_t rows, std::int64_t width,
            Stream stream) {
  if (rows == 0 || width == 0) return;
  launch(gather_kernel, grid_over(rows, width), kRowThreads, 0, stream, to, from, index, width);
}

void scatter(Rows to, Rows from, const std::int32_t* index, std::int64_t rows, std::int64_t width,
             Stream stream) {
  if (rows == 0 || width == 0) return;
  launch(scatter_kernel, grid_over(rows, width), kRowThreads, 0, stream, to, from, index, width);
}

void embed(Rows to, const Matrix& table, const TokenId* ids, std::int64_t rows, float scale,
           Stream stream) {
  if (rows == 0 || table.k == 0) return;
  with_weight_type(table.type, [&](auto type) {
    launch(embed_kernel<decltype(type)::value>, grid_over(rows, table.k), kRowThreads, 0, stream,
           to, weights_of(table), ids, scale);
  });
}

void add(Rows y, Rows x, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows == 0 || width == 0) return;
  launch(add_kernel, grid_over(rows, width), kRowThreads, 0, stream, y, x, width);
}

void blend(Rows y, float a, Rows x, float b, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows == 0 || width == 0) return;
  launch(blend_kernel, grid_over(rows, width), kRowThreads, 0, stream, y, a, x, b, width);
}

void rms_norm(Rows y, Rows x, const float* weight, std::int64_t rows, std::int64_t width, float eps,
              Stream stream) {
  if (rows == 0 || width == 0) return;
  const std::int64_t chunk = width < kNormChunk ? width : kNormChunk;
  launch(rms_norm_kernel, Grid{static_cast<std::uint32_t>(rows)}, kNormThreads,
         static_cast<std::size_t>(chunk) * sizeof(float), stream, y, x, weight, width, eps);
}

void gated_silu(Rows out, Rows gate_up, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows == 0 || width == 0) return;
  launch(gated_silu_kernel, grid_over(rows, width), kRowThreads, 0, stream, out, gate_up, width);
}

void unpack(void* to, PlainType type, const Matrix& w, std::int64_t first, std::int64_t rows,
            Stream stream) {
  if (rows == 0 || w.k == 0) return;
  const std::int64_t panels = (first + rows - 1) / kPanel - first / kPanel + 1;
  const Grid grid = {static_cast<std::uint32_t>(panels * ceil_divide(w.k, kUnpackInputs))};
  with_weight_type(w.type, [&](auto weight_type) {
    with_plain_type(to, type, [&]<typename Plain>(Plain* plain) {
      launch(unpack_kernel<decltype(weight_type)::value, Plain>, grid, kUnpackThreads,
             16 * kUnpackStride * sizeof(float), stream, plain, weights_of(w), first, rows);
    });
  });
}

void convert(void* to, PlainType type, Rows x, std::int64_t rows, std::int64_t width,
             Stream stream) {
  if (rows == 0 || width == 0) return;
  with_plain_type(to, type, [&]<typename Plain>(Plain* plain) {
    launch(convert_kernel<Plain>, grid_over(rows, width), kRowThreads, 0, stream, plain, x, width);
  });
}

}  // namespace

void TL_KERNELS_NAMESPACE::enter_rows(Kernels& table) {
  table.gather = gather;
  table.scatter = scatter;
  table.embed = embed;
  table.add = add;
  table.blend = blend;
  table.rms_norm = rms_norm;
  table.gated_silu = gated_silu;
  table.unpack = unpack;
  table.convert = convert;
}

}  // namespace tinyloop::cuda
