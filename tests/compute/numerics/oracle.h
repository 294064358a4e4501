// SPDX-License-Identifier: Apache-2.0
// What conversions must return, found by searching the list of all values of a type for the
// nearest. Slow, and computed in another way than the product does. Constant after construction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "compute/numerics/convert.h"

namespace ferry::compute::testing {

// The definition of a type: an element is 2^(e - bias) * (1 + m / 2^mantissa), and subnormal where
// e is 0.
struct Definition {
  DType type;
  int bits;
  int mantissa;
  int bias;
  uint32_t max;       // code of the largest finite value
  uint32_t overflow;  // code of a value that is too large, without saturation
  uint32_t nan;
};

inline const std::vector<Definition>& Definitions() {
  static const std::vector<Definition> kDefinitions = {
      {DType::kF16, 16, 10, 15, 0x7BFF, 0x7C00, 0x7FFF},
      {DType::kBF16, 16, 7, 127, 0x7F7F, 0x7F80, 0x7FFF},
      {DType::kF8E4M3FN, 8, 3, 7, 0x7E, 0x7F, 0x7F},
      {DType::kF8E5M2, 8, 2, 15, 0x7B, 0x7C, 0x7F},
      {DType::kF4E2M1FN, 4, 1, 1, 0x7, 0x7, 0x7},
  };
  return kDefinitions;
}

class NearestOracle {
 public:
  explicit NearestOracle(const Definition& definition) : definition_(definition) {
    for (uint32_t code = 0; code <= definition.max + 1; ++code) {
      const int e = static_cast<int>(code >> definition.mantissa);
      const int m = static_cast<int>(code & ((1u << definition.mantissa) - 1));
      const int ones = e == 0 ? m : m + (1 << definition.mantissa);
      values_.push_back(std::ldexp(static_cast<long double>(ones),
                                   std::max(e, 1) - definition.bias - definition.mantissa));
    }
  }

  // The values of the codes 0 to `max`, and the value that would come next.
  const std::vector<long double>& values() const { return values_; }

  // The exact middle between the value of `code` and the next value.
  long double Midpoint(uint32_t code) const { return (values_[code] + values_[code + 1]) / 2; }

  uint32_t Beyond(Overflow overflow) const {
    return overflow == Overflow::kSaturate ? definition_.max : definition_.overflow;
  }

  uint32_t Encode(long double value, Overflow overflow) const {
    if (std::isnan(value)) return definition_.nan;
    const uint32_t sign = std::signbit(value) ? 1u << (definition_.bits - 1) : 0;
    const long double magnitude = std::fabs(value);
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) return sign | Beyond(overflow);
    uint32_t code = static_cast<uint32_t>(above - values_.begin()) - 1;
    const long double midpoint = Midpoint(code);
    if (magnitude > midpoint || (magnitude == midpoint && code % 2 == 1)) ++code;
    return sign | (code > definition_.max ? Beyond(overflow) : code);
  }

 private:
  Definition definition_;
  std::vector<long double> values_;
};

// The code of f8e8m0fnu, by the definition of its three roundings.
inline uint32_t EncodeE8M0(long double value, ConvertMode mode) {
  const bool saturate = mode.overflow == Overflow::kSaturate;
  if (std::isnan(value)) return 255;
  if (value <= 0) return saturate ? 0 : 255;  // the nearest there is, also of -infinity
  if (std::isinf(value)) return saturate ? 254 : 255;
  int code = 0;
  while (code < 255 && std::ldexp(1.0L, code + 1 - 127) <= value) ++code;
  const long double below = std::ldexp(1.0L, code - 127);
  if (value > below) {
    const bool up = mode.scale_rounding == ScaleRounding::kCeil ||
                    (mode.scale_rounding == ScaleRounding::kNearestHalfUp &&
                     (code == 0 || value >= 1.5L * below));
    if (up) ++code;
  }
  if (code > 254) return saturate ? 254 : 255;
  return static_cast<uint32_t>(code);
}

inline const std::vector<ConvertMode>& Modes() {
  static const std::vector<ConvertMode> kModes = {
      {Overflow::kNanOrInf, ScaleRounding::kCeil},
      {Overflow::kNanOrInf, ScaleRounding::kFloor},
      {Overflow::kNanOrInf, ScaleRounding::kNearestHalfUp},
      {Overflow::kSaturate, ScaleRounding::kCeil},
      {Overflow::kSaturate, ScaleRounding::kFloor},
      {Overflow::kSaturate, ScaleRounding::kNearestHalfUp},
  };
  return kModes;
}

}  // namespace ferry::compute::testing
