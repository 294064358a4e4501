// SPDX-License-Identifier: Apache-2.0
// How far functions of the CPU's executor are from float64's, in units in the last place. Pure
// functions; any thread.
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

// A function of one argument, and what it is at most off in f32, as docs/numerics.md says.
struct FunctionCase {
  Op op;
  double (*exact)(double);
  double bound;
};

inline double ExactLogistic(double x) { return 1 / (1 + std::exp(-x)); }
inline double ExactRsqrt(double x) { return 1 / std::sqrt(x); }

inline constexpr FunctionCase kFunctionCases[] = {
    {Op::kRsqrt, ExactRsqrt, 1.5},
    {Op::kCbrt, std::cbrt, 4},
    {Op::kExponential, std::exp, 4},
    {Op::kExponentialBase2, std::exp2, 4},
    {Op::kExponentialMinusOne, std::expm1, 4},
    {Op::kLog, std::log, 4},
    {Op::kLogBase2, std::log2, 4},
    {Op::kLogPlusOne, std::log1p, 4},
    {Op::kSine, std::sin, 4},
    {Op::kCosine, std::cos, 4},
    {Op::kTanh, std::tanh, 4},
    {Op::kLogistic, ExactLogistic, 4},
    {Op::kErf, std::erf, 1},
};

// Of a type with `mantissa` bits, least normal exponent `lowest` and largest finite `largest`.
struct FunctionType {
  DType type;
  int mantissa;
  int lowest;
  double largest;
};
inline constexpr FunctionType kF32Function{DType::kF32, 23, -126, 0x1.fffffep127};
inline constexpr FunctionType kF16Function{DType::kF16, 10, -14, 65504};
inline constexpr FunctionType kBF16Function{DType::kBF16, 7, -126, 0x1.fep127};

inline double UnitsOff(const FunctionType& type, double got, double exact) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kInfinity;
  if (std::isnan(got)) return kInfinity;
  const auto unit_at = [&](double value) {
    const int exponent = value == 0 ? type.lowest : std::max(std::ilogb(value), type.lowest);
    return std::ldexp(1.0, exponent - type.mantissa);
  };
  const double beyond = type.largest + unit_at(type.largest);  // what infinity counts as
  const auto limited = [&](double value) { return std::clamp(value, -beyond, beyond); };
  return std::fabs(limited(got) - limited(exact)) / unit_at(limited(exact));
}

struct WorstUnits {
  double units = 0;
  double at = 0;

  void Add(double off, double value) {
    if (off > units) *this = {off, value};
  }
  void Add(const WorstUnits& other) { Add(other.units, other.at); }
};

// Over `codes`, bits of elements.
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
