// SPDX-License-Identifier: Apache-2.0
// What a matrix product must come near to: sums in float64 of decoded values, and how far a result
// may differ, which depends on how its terms were added up. For tests of executors. Pure functions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "compute/numerics/block.h"
#include "compute/numerics/convert.h"
#include "compute/program/program.h"

namespace ferry::compute::testing {

// A matrix of `rows` rows with `depth` values each, along which the product contracts. Either plain
// (of any type), or the codes and scales of a block format.
struct Operand {
  uint64_t rows = 0;
  uint64_t depth = 0;
  std::vector<double> values;  // decoded, not scaled yet
  std::vector<double> scales;  // rows of ScaleColumns(depth, block); empty: there are none
  uint64_t block = 1;
};

inline std::vector<double> Decoded(DType type, const std::vector<std::byte>& codes,
                                   uint64_t count) {
  std::vector<double> values(count);
  Convert(type, codes.data(), DType::kF64, reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

inline Operand PlainOperand(DType type, uint64_t rows, uint64_t depth,
                            const std::vector<std::byte>& elements) {
  return {rows, depth, Decoded(type, elements, rows * depth), {}, 1};
}

inline Operand BlockOperand(const BlockFormat& format, uint64_t rows, uint64_t depth,
                            const std::vector<std::byte>& elements,
                            const std::vector<std::byte>& scales) {
  return {rows, depth, Decoded(format.element, elements, rows * depth),
          Decoded(format.scale, scales, rows * ScaleColumns(depth, format.block)), format.block};
}

// One result, and the sum of the magnitudes of its terms, to which rounding errors are
// proportional.
struct ReferenceValue {
  double value = 0;
  double magnitude = 0;
};

// lhs * transposed rhs, times `global`; the result is row-major, lhs.rows x rhs.rows.
inline std::vector<ReferenceValue> ReferenceDot(const Operand& lhs, const Operand& rhs,
                                                double global = 1) {
  const auto scale_of = [](const Operand& operand, uint64_t row, uint64_t k) {
    if (operand.scales.empty()) return 1.0;
    return operand.scales[row * ScaleColumns(operand.depth, operand.block) + k / operand.block];
  };
  std::vector<ReferenceValue> out;
  for (uint64_t i = 0; i < lhs.rows; ++i) {
    for (uint64_t j = 0; j < rhs.rows; ++j) {
      double magnitude = 0;
      long double value = 0;  // so that a sum of many terms is as good as of few
      for (uint64_t k = 0; k < lhs.depth; ++k) {
        const double term = scale_of(lhs, i, k) * scale_of(rhs, j, k) *
                            (lhs.values[i * lhs.depth + k] * rhs.values[j * rhs.depth + k]);
        value += term;
        if (std::isfinite(term)) magnitude += std::fabs(term);
      }
      out.push_back({static_cast<double>(value) * global, magnitude * std::fabs(global)});
    }
  }
  return out;
}

// How far from `reference` a result of type `out` may be: the error of the sums (computed in f64 if
// `wide`), and the rounding of the result. Infinite: any result is allowed.
inline double AllowedError(Accumulation accumulation, const ReferenceValue& reference, DType out,
                           bool wide = false) {
  const double unit = out == DType::kBF16  ? 0x1p-8
                      : out == DType::kF16 ? 0x1p-11
                      : out == DType::kF64 ? 0x1p-53
                                           : 0x1p-24;
  const double tiny = out == DType::kBF16  ? 0x1p-133
                      : out == DType::kF16 ? 0x1p-24
                      : out == DType::kF64 ? 0x1p-1074
                                           : 0x1p-149;
  const double rounding = std::fabs(reference.value) * unit + tiny;
  if (wide) return 0x1p-46 * reference.magnitude + rounding;
  switch (accumulation) {
    case Accumulation::kExactProducts:
      return 0x1p-17 * reference.magnitude + rounding;
    case Accumulation::kFp8Tc:
      return 0x1p-9 * reference.magnitude + rounding;
    case Accumulation::kFp8TcFast:
      return std::numeric_limits<double>::infinity();
    case Accumulation::kNativeBlock:
      return 1e-4 + 1e-5 * std::fabs(reference.value) + 0x1p-17 * reference.magnitude + rounding;
  }
  return 0;
}

// NaN for NaN, the same infinity for an infinity; else within the bound.
inline bool IsNear(double got, const ReferenceValue& reference, Accumulation accumulation,
                   DType out) {
  if (std::isnan(reference.value)) return std::isnan(got);
  if (got == reference.value) return true;
  return std::fabs(got - reference.value) <= AllowedError(accumulation, reference, out);
}

}  // namespace ferry::compute::testing
