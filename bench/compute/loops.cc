// SPDX-License-Identifier: Apache-2.0
#include "bench/compute/loops.h"

#include <bit>
#include <cmath>

#if defined(__x86_64__) && !defined(__clang__)
#define FERRY_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FERRY_WIDEST
#endif
#ifdef __clang__
#define FERRY_INDEPENDENT
#else
#define FERRY_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace ferry::bench {
namespace {

inline uint16_t Nearest(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7FFF : rounded);
}

}  // namespace

FERRY_WIDEST void FusedChain(const float* x, const float* y, uint16_t* out, size_t count) {
  FERRY_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    float v = (x[i] * 1.5f + 0.25f) * y[i] - x[i];
    v = v > 8 ? 8 : v;
    v = v < -8 ? -8 : v;
    out[i] = Nearest(v * 0.5f + y[i]);
  }
}

FERRY_WIDEST void FusedTanh(const float* x, const float* y, uint16_t* out, size_t count) {
  FERRY_INDEPENDENT
  for (size_t i = 0; i < count; ++i) out[i] = Nearest(std::tanh(x[i] * 1.5f + 0.25f) * y[i]);
}

#define FERRY_LOOP(signature, expression)                                     \
  FERRY_WIDEST void signature {                                               \
    FERRY_INDEPENDENT for (size_t i = 0; i < count; ++i) out[i] = expression; \
  }
FERRY_LOOP(Scale(const float* x, float factor, float* out, size_t count), x[i] * factor)
FERRY_LOOP(Shift(const float* x, float term, float* out, size_t count), x[i] + term)
FERRY_LOOP(Multiply(const float* x, const float* y, float* out, size_t count), x[i] * y[i])
FERRY_LOOP(Subtract(const float* x, const float* y, float* out, size_t count), x[i] - y[i])
FERRY_LOOP(Add(const float* x, const float* y, float* out, size_t count), x[i] + y[i])
FERRY_LOOP(AtMost(const float* x, float bound, float* out, size_t count),
           x[i] > bound ? bound : x[i])
FERRY_LOOP(AtLeast(const float* x, float bound, float* out, size_t count),
           x[i] < bound ? bound : x[i])
FERRY_LOOP(Tanh(const float* x, float* out, size_t count), std::tanh(x[i]))
FERRY_LOOP(ToBF16(const float* x, uint16_t* out, size_t count), Nearest(x[i]))

}  // namespace ferry::bench
