// SPDX-License-Identifier: Apache-2.0
// Measures the errors of functions of the CPU's executor, in units in the last place, against a
// wider type: float64 for f32 and narrower types, long double for f64. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "compute/host/kernels.h"
#include "compute/numerics/convert.h"

namespace ferry::compute::testing {

// A function of one argument, and the largest error in f32 that docs/numerics.md allows.
struct FunctionCase {
  Op op;
  double (*exact)(double);
  long double (*exact_long)(long double);
  double bound;  // units in the last place; for f64 too
};

template <typename Float>
Float ExactLogistic(Float x) {
  return 1 / (1 + std::exp(-x));
}
template <typename Float>
Float ExactRsqrt(Float x) {
  return 1 / std::sqrt(x);
}

inline constexpr FunctionCase kFunctionCases[] = {
    {Op::kRsqrt, ExactRsqrt, ExactRsqrt, 1.5},
    {Op::kCbrt, std::cbrt, std::cbrt, 4},
    {Op::kExponential, std::exp, std::exp, 4},
    {Op::kExponentialBase2, std::exp2, std::exp2, 4},
    {Op::kExponentialMinusOne, std::expm1, std::expm1, 4},
    {Op::kLog, std::log, std::log, 4},
    {Op::kLogBase2, std::log2, std::log2, 4},
    {Op::kLogPlusOne, std::log1p, std::log1p, 4},
    {Op::kSine, std::sin, std::sin, 4},
    {Op::kCosine, std::cos, std::cos, 4},
    {Op::kTanh, std::tanh, std::tanh, 4},
    {Op::kLogistic, ExactLogistic, ExactLogistic, 4},
    {Op::kErf, std::erf, std::erf, 1},
};

// A type with `mantissa` bits, least normal exponent `lowest` and largest finite number `largest`.
struct FunctionType {
  DType type;
  int mantissa;
  int lowest;
  double largest;
};
inline constexpr FunctionType kF32Function{DType::kF32, 23, -126, 0x1.fffffep127};
inline constexpr FunctionType kF16Function{DType::kF16, 10, -14, 65504};
inline constexpr FunctionType kBF16Function{DType::kBF16, 7, -126, 0x1.fep127};

inline constexpr FunctionType kF64Function{DType::kF64, 52, -1022, 0x1.fffffffffffffp1023};

// The error in units in the last place. `Float` must be wider than the type, so that a unit, and
// what is beyond the largest number, are exact.
template <typename Float>
double UnitsOff(const FunctionType& type, Float got, Float exact) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kInfinity;
  if (std::isnan(got)) return kInfinity;
  const auto unit_at = [&](Float value) {
    const int exponent = value == 0 ? type.lowest : std::max(std::ilogb(value), type.lowest);
    return std::ldexp(Float{1}, exponent - type.mantissa);
  };
  const Float beyond = type.largest + unit_at(type.largest);  // the value that infinity counts as
  const auto limited = [&](Float value) { return std::clamp(value, -beyond, beyond); };
  return static_cast<double>(std::fabs(limited(got) - limited(exact)) / unit_at(limited(exact)));
}

struct WorstUnits {
  double units = 0;
  double at = 0;

  void Add(double off, double value) {
    if (off > units) *this = {off, value};
  }
  void Add(const WorstUnits& other) { Add(other.units, other.at); }
};

// The largest error over all elements in `codes`.
template <typename Code>
WorstUnits WorstOf(const FunctionCase& one, const FunctionType& type,
                   const std::vector<Code>& codes) {
  std::vector<Code> results(codes.size());
  std::vector<double> in(codes.size()), out(codes.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(codes.data());
  KernelOf(one.op, type.type)(bytes, nullptr, nullptr, reinterpret_cast<std::byte*>(results.data()),
                              codes.size());
  const auto widen = [&](const Code* from, std::vector<double>& to) {
    Convert(type.type, reinterpret_cast<const std::byte*>(from), DType::kF64,
            reinterpret_cast<std::byte*>(to.data()), to.size());
  };
  widen(codes.data(), in);
  widen(results.data(), out);
  WorstUnits worst;
  for (size_t i = 0; i < codes.size(); ++i) {
    worst.Add(UnitsOff(type, out[i], one.exact(in[i])), in[i]);
  }
  return worst;
}

}  // namespace ferry::compute::testing
