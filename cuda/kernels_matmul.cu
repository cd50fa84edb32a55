// SPDX-License-Identifier: Apache-2.0
// Products of packed weights with few rows, at the speed of reading the weights once. Many rows are
// correct but slow here: cuBLAS multiplies those.
//
// The order of sums, the same for every number of rows: a lane adds up its own inputs in ascending
// order by fma; the lanes of a warp that share an output are added by a fixed tree; then the four
// warps along k, then the splits of k, each in ascending order. q8, q4 and q4_1 add whole groups:
// dot products inside a group are exact integers, times w_scale * x_scale.
#include "device_values.h"
#include "kernel_plans.h"

namespace tinyloop::cuda {
namespace {

constexpr std::uint32_t kMatmulThreads = 32 * kWarpsAlongK * kBlockPanels;

struct MatmulCall {
  Rows y, x;
  Weights w;
  std::int64_t n, rows, panels;
  std::int64_t chunks;  // of kMatmulRows rows, where there are more rows than that
  std::int64_t splits, k_of_split;
  float* partial;
  std::int32_t* counters;              // [pairs of panels][chunks]
  const unsigned char* quantised;      // [rows][groups][32] int8
  const QuantisedGroup* group_scales;  // [rows][groups]
};

// What a lane holds of a panel: kOutputs neighbours, of kInputLanes different inputs or groups a
// warp. accumulate adds the products of the inputs first .. end - 1, as far as they are this
// warp's.
template <WeightType kType>
struct FloatLane {
  static constexpr int kBytes = kType == WeightType::f32 ? 4 : 2;
  static constexpr int kOutputs = 16 / kBytes;
  static constexpr int kLanesOfInput = 16 / kOutputs;
  static constexpr int kInputLanes = 32 / kLanesOfInput;
  static constexpr int kLoads = 4;

  TL_DEVICE static void widen(float (&to)[kOutputs], const uint4& raw) {
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    TL_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (kType == WeightType::f32) {
        to[i] = float_of(words[i]);
      } else if constexpr (kType == WeightType::f16) {
        to[2 * i] = widen_f16(static_cast<std::uint16_t>(words[i] & 0xffffu));
        to[2 * i + 1] = widen_f16(static_cast<std::uint16_t>(words[i] >> 16));
      } else {
        to[2 * i] = float_of(words[i] << 16);
        to[2 * i + 1] = float_of(words[i] & 0xffff0000u);
      }
    }
  }

  template <int kRows>
  TL_DEVICE static void accumulate(float (&acc)[kRows][kOutputs], const MatmulCall& call,
                                   std::int64_t panel, std::int64_t first_row,
                                   std::int64_t last_row, std::int64_t first, std::int64_t end,
                                   std::uint32_t warp, std::uint32_t lane) {
    constexpr std::int64_t kUnit = kLoads * kInputLanes;
    const unsigned char* weights =
        call.w.data + panel * call.w.k * 16 * kBytes + lane % kLanesOfInput * 16;
    for (std::int64_t unit = first + warp * kUnit; unit < end; unit += kWarpsAlongK * kUnit) {
      uint4 raw[kLoads];
      TL_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const std::int64_t k = unit + i * kInputLanes + lane / kLanesOfInput;
        raw[i] = uint4{0, 0, 0, 0};
        if (k < end) {
          raw[i] = load_once(reinterpret_cast<const uint4*>(weights + k * 16 * kBytes));
        }
      }
      TL_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const std::int64_t k = unit + i * kInputLanes + lane / kLanesOfInput;
        float weight[kOutputs];
        widen(weight, raw[i]);
        TL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const float* row = row_at(call.x, least_of(first_row + r, last_row));
          const float x = k < end ? row[k] : 0.0f;
          TL_UNROLL
          for (int o = 0; o < kOutputs; ++o) acc[r][o] = fma(weight[o], x, acc[r][o]);
        }
      }
    }
  }
};

template <WeightType kType>
struct QuantisedLane {
  static constexpr int kOutputs = 4;
  static constexpr int kLanesOfInput = 4;
  static constexpr int kInputLanes = 8;
  static constexpr int kQuads = kType == WeightType::q8 ? 8 : 4;  // loads of a group
  static constexpr int kGroupBytes = kQuads * 64;
  static constexpr bool kMinimum = kType == WeightType::q4_1;

  TL_DEVICE static void add_quad(std::int32_t (&sums)[4], const uint4& w, std::uint32_t x) {
    sums[0] = dot_bytes(w.x, x, sums[0]);
    sums[1] = dot_bytes(w.y, x, sums[1]);
    sums[2] = dot_bytes(w.z, x, sums[2]);
    sums[3] = dot_bytes(w.w, x, sums[3]);
  }
  // The steps, or the entries of the codebook, that the low and the high half bytes of a word stand
  // for.
  struct Halves {
    std::uint32_t low, high;
  };
  TL_DEVICE static Halves look_up(std::uint32_t pairs) {
    if constexpr (kType == WeightType::q4_1) return {pairs & 0x0f0f0f0fu, pairs >> 4 & 0x0f0f0f0fu};
    const std::uint32_t first = codebook_entries(pairs), last = codebook_entries(pairs >> 16);
    return {choose_bytes(first, last, 0x6420u), choose_bytes(first, last, 0x7531u)};
  }
  TL_DEVICE static void add_pairs(std::int32_t (&sums)[4], const uint4& w, std::uint32_t x_low,
                                  std::uint32_t x_high) {
    const std::uint32_t words[4] = {w.x, w.y, w.z, w.w};
    TL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Halves entries = look_up(words[i]);
      sums[i] = dot_bytes(entries.high, x_high, dot_bytes(entries.low, x_low, sums[i]));
    }
  }

  template <int kRows>
  TL_DEVICE static void accumulate(float (&acc)[kRows][kOutputs], const MatmulCall& call,
                                   std::int64_t panel, std::int64_t first_row,
                                   std::int64_t last_row, std::int64_t first, std::int64_t end,
                                   std::uint32_t warp, std::uint32_t lane) {
    const std::int64_t end_group = (end + 31) / 32;
    for (std::int64_t group = first / 32 + warp * kInputLanes + lane / kLanesOfInput;
         group < end_group; group += kWarpsAlongK * kInputLanes) {
      const std::int64_t at = panel * call.w.groups + group;
      const auto* quads =
          reinterpret_cast<const uint4*>(call.w.data + at * kGroupBytes) + lane % kLanesOfInput;
      uint4 raw[kQuads];
      TL_UNROLL
      for (int i = 0; i < kQuads; ++i) raw[i] = load_once(quads + i * 4);
      const auto* scales = reinterpret_cast<const std::uint16_t*>(call.w.scales) +
                           at * (kMinimum ? 32 : 16) + lane % kLanesOfInput * 4;
      float scale[kOutputs], minimum[kOutputs];
      TL_UNROLL
      for (int o = 0; o < kOutputs; ++o) {
        scale[o] = widen_f16(scales[o]);
        minimum[o] = kMinimum ? widen_f16(scales[16 + o]) : 0.0f;
      }
      TL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t row_group = least_of(first_row + r, last_row) * call.w.groups + group;
        const auto* x = reinterpret_cast<const uint4*>(call.quantised + row_group * 32);
        const uint4 low = x[0], high = x[1];
        const std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const QuantisedGroup of_row = call.group_scales[row_group];
        std::int32_t sums[4] = {0, 0, 0, 0};
        TL_UNROLL
        for (int i = 0; i < kQuads; ++i) {
          if constexpr (kType == WeightType::q8) {
            add_quad(sums, raw[i], words[i]);
          } else {
            add_pairs(sums, raw[i], words[i], words[i + 4]);
          }
        }
        TL_UNROLL
        for (int o = 0; o < kOutputs; ++o) {
          acc[r][o] = fma(static_cast<float>(sums[o]), scale[o] * of_row.scale, acc[r][o]);
          if constexpr (kMinimum) {
            acc[r][o] = fma(static_cast<float>(of_row.sum), minimum[o] * of_row.scale, acc[r][o]);
          }
        }
      }
    }
  }
};

template <WeightType kType>
struct LaneOf {
  using Type = FloatLane<kType>;
};
template <>
struct LaneOf<WeightType::q8> {
  using Type = QuantisedLane<WeightType::q8>;
};
template <>
struct LaneOf<WeightType::q4> {
  using Type = QuantisedLane<WeightType::q4>;
};
template <>
struct LaneOf<WeightType::q4_1> {
  using Type = QuantisedLane<WeightType::q4_1>;
};

// Adds the lanes that differ in bits kMask and below, down to kLanesOfInput. As long as a lane has
// several outputs it gives half of them away and adds up the other half, so that there are as few
// exchanges as outputs. On return acc[0] is the sum of the output that `output_of` names.
template <int kCount, int kMask, int kLast, int kSize>
TL_DEVICE void add_lanes(float (&acc)[kSize], std::uint32_t lane) {
  if constexpr (kCount > 1) {
    constexpr int kHalf = kCount / 2;
    const bool upper = (lane & kMask) != 0;
    TL_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? acc[i + kHalf] : acc[i];
      const float given = upper ? acc[i] : acc[i + kHalf];
      acc[i] = kept + xor_lane(given, kMask);
    }
    add_lanes<kHalf, kMask / 2, kLast>(acc, lane);
  } else {
    acc[0] = acc[0] + xor_lane(acc[0], kMask);
    if constexpr (kMask > kLast) add_lanes<1, kMask / 2, kLast>(acc, lane);
  }
}
template <int kOutputs>
TL_DEVICE std::uint32_t output_of(std::uint32_t lane) {
  std::uint32_t output = 0, mask = 16;
  for (int half = kOutputs / 2; half > 0; half /= 2, mask /= 2) {
    if ((lane & mask) != 0) output += static_cast<std::uint32_t>(half);
  }
  return output;
}

template <WeightType kType, int kRows>
TL_GLOBAL_OF(kMatmulThreads)
void matmul_kernel(MatmulCall call) {
  using Lane = typename LaneOf<kType>::Type;
  constexpr int kItems = static_cast<int>(kBlockPanels) * kRows * 16;  // outputs of the block
  // [panels of the block][warps along k][kRows][16], then a flag
  auto* sums = reinterpret_cast<float*>(shared_memory());
  auto* is_last = reinterpret_cast<std::int32_t*>(sums + kItems * kWarpsAlongK);

  const std::int64_t chunk = block_x() % call.chunks;
  const std::int64_t split = block_x() / call.chunks % call.splits;
  const std::int64_t pair = block_x() / call.chunks / call.splits;
  const std::int64_t first_row = chunk * kMatmulRows;
  const std::uint32_t warp = thread_index() / 32, lane = thread_index() % 32;
  const std::int64_t panel = pair * kBlockPanels + warp / kWarpsAlongK;

  float acc[kRows][Lane::kOutputs];
  TL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TL_UNROLL
    for (int o = 0; o < Lane::kOutputs; ++o) acc[r][o] = 0.0f;
  }
  if (panel < call.panels) {
    const std::int64_t first = split * call.k_of_split;
    Lane::template accumulate<kRows>(acc, call, panel, first_row, call.rows - 1, first,
                                     least_of(first + call.k_of_split, call.w.k),
                                     warp % kWarpsAlongK, lane);
  }
  TL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    add_lanes<Lane::kOutputs, 16, Lane::kLanesOfInput>(acc[r], lane);
    // Lanes that differ in the last bit of the tree hold the same sum.
    if ((lane & Lane::kLanesOfInput) == 0) {
      sums[(warp * kRows + static_cast<std::uint32_t>(r)) * 16 +
           lane % Lane::kLanesOfInput * Lane::kOutputs + output_of<Lane::kOutputs>(lane)] =
          acc[r][0];
    }
  }
  barrier();

  const std::int64_t padded = call.panels * 16;
  for (int item = static_cast<int>(thread_index()); item < kItems; item += kMatmulThreads) {
    const int in_pair = item / (kRows * 16), row = item / 16 % kRows;
    const std::int64_t r = first_row + row,
                       output = (pair * kBlockPanels + in_pair) * 16 + item % 16;
    const float* parts = sums + (in_pair * kWarpsAlongK * kRows + row) * 16 + item % 16;
    float sum = parts[0];
    for (int w = 1; w < kWarpsAlongK; ++w) sum = sum + parts[w * kRows * 16];
    if (r >= call.rows || output >= call.n) continue;
    if (call.splits == 1) {
      row_at(call.y, r)[output] = sum;
    } else {
      call.partial[(split * call.rows + r) * padded + output] = sum;
    }
  }
  if (call.splits == 1) return;

  // The block that comes last adds up the splits, in order.
  std::int32_t* counter = call.counters + pair * call.chunks + chunk;
  barrier();
  if (thread_index() == 0) *is_last = count_up(counter) == call.splits - 1;
  barrier();
  if (*is_last != 1) return;
  if (thread_index() == 0) *counter = 0;
  for (int item = static_cast<int>(thread_index()); item < kItems; item += kMatmulThreads) {
    const int in_pair = item / (kRows * 16), row = item / 16 % kRows;
    const std::int64_t r = first_row + row,
                       output = (pair * kBlockPanels + in_pair) * 16 + item % 16;
    if (r >= call.rows || output >= call.n) continue;
    const float* parts = call.partial + r * padded + output;
    float sum = load_written(parts);
    for (std::int64_t s = 1; s < call.splits; ++s) {
      sum = sum + load_written(parts + s * call.rows * padded);
    }
    row_at(call.y, r)[output] = sum;
  }
}

// One warp a group of 32 inputs: scale = greatest magnitude / 127, q = round(x * (127 / greatest)).
// Groups of zeros, or of values so small that the inverse is infinite, become zeros; NaN makes the
// scale NaN.
constexpr std::uint32_t kQuantiseThreads = 256;

TL_GLOBAL void quantise_kernel(unsigned char* to, QuantisedGroup* groups, Rows x, std::int64_t rows,
                               std::int64_t k, std::int64_t groups_of_row) {
  const std::uint32_t lane = thread_index() % 32;
  const std::int64_t at = std::int64_t{block_x()} * (kQuantiseThreads / 32) + thread_index() / 32;
  if (at >= rows * groups_of_row) return;
  const std::int64_t column = at % groups_of_row * 32 + lane;
  const float value = column < k ? row_at(x, at / groups_of_row)[column] : 0.0f;
  const float greatest = greatest_of_warp(value);
  const float inverse = divide(127.0f, greatest);
  const bool is_zero = inverse > kGreatestFloat;
  const float scaled = is_zero ? 0.0f : value * inverse;
  const std::int32_t q = round_to_int(scaled > 127.0f    ? 127.0f
                                      : scaled < -127.0f ? -127.0f
                                                         : scaled);
  to[at * 32 + lane] = static_cast<unsigned char>(q);
  std::uint32_t sum = static_cast<std::uint32_t>(q);
  for (std::uint32_t mask = 16; mask > 0; mask /= 2) sum += exchange_xor(sum, mask);
  if (lane == 0) {
    groups[at] = {is_zero ? 0.0f : divide(greatest, 127.0f), static_cast<std::int32_t>(sum)};
  }
}

template <WeightType kType>
void launch_matmul(const MatmulCall& call, Stream stream) {
  const std::int64_t pairs = ceil_divide(call.panels, kBlockPanels);
  const Grid grid = {static_cast<std::uint32_t>(pairs * call.splits * call.chunks)};
  const auto with_rows = [&](auto kernel, std::int64_t rows) {
    launch(kernel, grid, kMatmulThreads,
           static_cast<std::size_t>(kBlockPanels * kWarpsAlongK * rows * 16 + 1) * sizeof(float),
           stream, call);
  };
  if (call.rows == 1) return with_rows(matmul_kernel<kType, 1>, 1);
  if (call.rows == 2) return with_rows(matmul_kernel<kType, 2>, 2);
  if (call.rows <= 4) return with_rows(matmul_kernel<kType, 4>, 4);
  if (call.rows <= 8) return with_rows(matmul_kernel<kType, 8>, 8);
  with_rows(matmul_kernel<kType, 16>, 16);
}

void matmul(Rows y, Rows x, const Matrix& w, std::int64_t rows, Workspace workspace,
            Stream stream) {
  if (rows == 0 || w.n == 0) return;
  const MatmulPlan plan = plan_matmul(rows, w.type, w.n, w.k);
  MatmulCall call = {};
  call.w = weights_of(w);
  call.n = w.n;
  call.panels = panels_of(w.n);
  call.splits = plan.splits;
  call.k_of_split = plan.k_of_split;
  call.partial = reinterpret_cast<float*>(workspace.data);
  call.counters = workspace.counters;
  auto* quantised = reinterpret_cast<unsigned char*>(workspace.data + plan.partial_bytes);
  for (std::int64_t first = 0; first < rows; first += plan.rows_of_launch) {
    call.rows = rows - first < plan.rows_of_launch ? rows - first : plan.rows_of_launch;
    call.chunks = ceil_divide(call.rows, kMatmulRows);
    call.y = {y.data + first * y.stride * 4, y.stride};
    call.x = {x.data + first * x.stride * 4, x.stride};
    if (is_quantised(w.type)) {
      const std::int64_t groups = call.rows * call.w.groups;
      auto* group_scales = reinterpret_cast<QuantisedGroup*>(quantised + groups * kGroup);
      launch(quantise_kernel,
             Grid{static_cast<std::uint32_t>(ceil_divide(groups, kQuantiseThreads / 32))},
             kQuantiseThreads, 0, stream, quantised, group_scales, call.x, call.rows, w.k,
             call.w.groups);
      call.quantised = quantised;
      call.group_scales = group_scales;
    }
    with_weight_type(w.type,
                     [&](auto type) { launch_matmul<decltype(type)::value>(call, stream); });
  }
}

}  // namespace

void TL_KERNELS_NAMESPACE::enter_matmul(Kernels& table) { table.matmul = matmul; }

}  // namespace tinyloop::cuda
