// SPDX-License-Identifier: Apache-2.0
// Ways to read memory and to multiply as fast as the machine can, to be measured against each
// other. Private to kernels.cpp; choosing among them is cpu_limits' business.
#pragma once

#include "tinyloop/cpu/f32x16.h"
#include "tinyloop/cpu/kernel_table.h"

namespace tinyloop {
namespace {

// Enough chains of max that their latency is not what is measured.
#if defined(__AVX512F__)
constexpr int kReadChains = 8;
#else
constexpr int kReadChains = 4;
#endif
constexpr std::size_t kReadLines = 4;  // of one stream before the next stream's turn

template <int kStreams, std::size_t kPanelBytes, std::ptrdiff_t kAhead>
float read_streams(const Byte* from, std::size_t bytes) {
  F32x16 most[kReadChains];
  for (int c = 0; c < kReadChains; ++c) most[c] = broadcast(0.0f);
  while (bytes > 0) {
    std::size_t each = bytes / kStreams;
    if (kPanelBytes > 0 && each > kPanelBytes) each = kPanelBytes;
    for (std::size_t at = 0; at < each; at += kReadLines * 64) {
#pragma GCC unroll 8
      for (std::size_t s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
        for (std::size_t l = 0; l < kReadLines; ++l) {
          const Byte* line = from + s * each + at + l * 64;
          if constexpr (kAhead > 0) __builtin_prefetch(line + kAhead);
          F32x16& chain = most[(s * kReadLines + l) % kReadChains];
          chain = max(chain, load(reinterpret_cast<const float*>(line)));
        }
      }
    }
    from += each * kStreams;
    bytes -= each * kStreams;
  }
  for (int c = 1; c < kReadChains; ++c) most[0] = max(most[0], most[c]);
  return max_lanes(most[0]);
}

template <int kStreams, int kPanelBytes, int kAhead>
constexpr ReadPattern kRead = {kStreams, kPanelBytes, kAhead,
                               read_streams<kStreams, kPanelBytes, kAhead>};
#define TL_READS(streams, panel)                                                     \
  kRead<streams, panel, 0>, kRead<streams, panel, 512>, kRead<streams, panel, 1024>, \
      kRead<streams, panel, 2048>, kRead<streams, panel, 4096>, kRead<streams, panel, 8192>
constexpr ReadPattern kReads[] = {TL_READS(1, 0),    TL_READS(2, 0),     TL_READS(4, 0),
                                  TL_READS(8, 0),    TL_READS(2, 32768), TL_READS(4, 32768),
                                  TL_READS(8, 32768)};
#undef TL_READS

// 16 multiply-adds a chain and round.
template <int kChains>
float fma_chains(std::int64_t rounds) {
  F32x16 acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = broadcast(static_cast<float>(c));
  const F32x16 a = broadcast(0.999f), b = broadcast(0.001f);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) acc[c] = fma(acc[c], a, b);
  }
  F32x16 total = acc[0];
  for (int c = 1; c < kChains; ++c) total = total + acc[c];
  return sum_lanes(total);
}

template <int kChains>
constexpr PeakPattern kFmaPeak = {kChains, 2.0 * 16 * kChains, fma_chains<kChains>};
#if defined(__AVX512F__)
constexpr PeakPattern kFloatPeaks[] = {kFmaPeak<8>, kFmaPeak<10>, kFmaPeak<12>, kFmaPeak<16>,
                                       kFmaPeak<24>};
#else
constexpr PeakPattern kFloatPeaks[] = {kFmaPeak<4>, kFmaPeak<5>, kFmaPeak<6>};
#endif

// Exact dot products as of quad_dot.h at their best.
#if defined(__AVX512VNNI__)

template <int kChains>
float int8_chains(std::int64_t rounds) {
  __m512i acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_set1_epi32(c);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_dpbusd_epi32(acc[c], a, b);
  }
  __m512i total = acc[0];
  for (int c = 1; c < kChains; ++c) total = _mm512_add_epi32(total, acc[c]);
  return static_cast<float>(_mm512_reduce_add_epi32(total));
}

template <int kChains>
constexpr PeakPattern kInt8Peak = {kChains, 2.0 * 64 * kChains, int8_chains<kChains>};
constexpr PeakPattern kInt8Peaks[] = {kInt8Peak<8>, kInt8Peak<10>, kInt8Peak<12>, kInt8Peak<16>,
                                      kInt8Peak<24>};

#elif defined(__AVX2__)

// Pair sums of several products are added in 16 bits before they are widened.
template <int kChains, int kSummed>
float int8_chains(std::int64_t rounds) {
  alignas(32) signed char weights[kChains * kSummed][32];
  for (int i = 0; i < kChains * kSummed; ++i) {
    for (int j = 0; j < 32; ++j) weights[i][j] = static_cast<signed char>(i + j);
  }
  const auto* w = reinterpret_cast<const __m256i*>(weights);
  const __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  __m256i x = one, acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < rounds; ++i) {
    x = _mm256_add_epi8(x, one);  // or the products would be the same each time
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) {
      const __m256i* at = w + c * kSummed;
      __m256i pairs = _mm256_maddubs_epi16(x, at[0]);
#pragma GCC unroll 8
      for (int s = 1; s < kSummed; ++s) {
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(x, at[s]));
      }
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(pairs, ones));
    }
  }
  __m256i total = acc[0];
  for (int c = 1; c < kChains; ++c) total = _mm256_add_epi32(total, acc[c]);
  return static_cast<float>(_mm256_extract_epi32(total, 0) ^ _mm256_extract_epi32(total, 7));
}

template <int kChains, int kSummed>
constexpr PeakPattern kInt8Peak = {kChains, 2.0 * 32 * kSummed* kChains,
                                   int8_chains<kChains, kSummed>};
constexpr PeakPattern kInt8Peaks[] = {kInt8Peak<2, 4>, kInt8Peak<4, 4>, kInt8Peak<8, 4>,
                                      kInt8Peak<4, 8>};

#else

constexpr int kPlainProducts = 1536;

float int8_plain(std::int64_t rounds) {
  signed char a[kPlainProducts], b[kPlainProducts];
  for (int i = 0; i < kPlainProducts; ++i) a[i] = b[i] = static_cast<signed char>(i);
  std::int32_t total = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    b[round % kPlainProducts] = static_cast<signed char>(round);
    std::int32_t sum = 0;
    for (int i = 0; i < kPlainProducts; ++i) sum += a[i] * b[i];
    total ^= sum;
  }
  return static_cast<float>(total);
}

constexpr PeakPattern kInt8Peaks[] = {{1, 2.0 * kPlainProducts, int8_plain}};

#endif

}  // namespace
}  // namespace tinyloop
