// SPDX-License-Identifier: Apache-2.0
// How near functions of f32 are to float64's, over every so many of all patterns of bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "compute/host/kernels.h"

namespace ferry::compute {
namespace {

constexpr double kBound = 4;  // units in the last place, as docs/numerics.md says

double UnitOf(double value) {
  const int exponent = std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - 23);
}

double ErrorOf(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  if (std::fabs(exact) >= 0x1.ffffffp127) {  // what rounds to infinity
    return std::isinf(got) && std::signbit(got) == std::signbit(exact)
               ? 0
               : std::fabs(std::fabs(static_cast<double>(got)) - 0x1p128) / 0x1p104;
  }
  if (exact == 0) return got == 0 ? 0 : std::fabs(static_cast<double>(got)) / 0x1p-149;
  const double most = std::isinf(got) ? std::copysign(0x1p128, got) : static_cast<double>(got);
  return std::fabs(most - exact) / UnitOf(exact);
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }
double Rsqrt(double x) { return 1 / std::sqrt(x); }

TEST(FunctionTest, AreWithinTheBound) {
  struct Case {
    Op op;
    double (*exact)(double);
  };
  const Case cases[] = {{Op::kCbrt, std::cbrt},
                        {Op::kExponential, std::exp},
                        {Op::kExponentialBase2, std::exp2},
                        {Op::kExponentialMinusOne, std::expm1},
                        {Op::kLog, std::log},
                        {Op::kLogBase2, std::log2},
                        {Op::kLogPlusOne, std::log1p},
                        {Op::kSine, std::sin},
                        {Op::kCosine, std::cos},
                        {Op::kTanh, std::tanh},
                        {Op::kLogistic, Logistic},
                        {Op::kErf, std::erf},
                        {Op::kRsqrt, Rsqrt}};
  constexpr uint64_t kStep = 10007;
  constexpr size_t kTile = 500;  // a part of a vector too
  for (const Case& one : cases) {
    const TileKernel kernel = KernelOf(one.op, DType::kF32);
    double worst = 0;
    float at = 0;
    std::vector<float> in(kTile), out(kTile);
    for (uint64_t first = 0; first < uint64_t{1} << 32; first += kStep * kTile) {
      for (size_t i = 0; i < kTile; ++i) {
        in[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i * kStep));
      }
      kernel(reinterpret_cast<const std::byte*>(in.data()), nullptr, nullptr,
             reinterpret_cast<std::byte*>(out.data()), kTile);
      for (size_t i = 0; i < kTile; ++i) {
        const double error = ErrorOf(out[i], one.exact(static_cast<double>(in[i])));
        if (error <= worst) continue;
        worst = error;
        at = in[i];
      }
    }
    RecordProperty(std::string(InfoOf(one.op).name), std::to_string(worst));
    EXPECT_LE(worst, kBound) << InfoOf(one.op).name << " of " << at;
    if (worst > 1.5) GTEST_LOG_(INFO) << InfoOf(one.op).name << " " << worst << " at " << at;
  }
}

}  // namespace
}  // namespace ferry::compute
