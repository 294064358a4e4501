// SPDX-License-Identifier: Apache-2.0
// The floating types of up to 32 bits, as bits, and the two operations on one value from which all
// conversions are made. Inline, for the loops of convert.cc. No state.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "compute/numerics/convert.h"

namespace ferry::compute {

// Sign, exponent, mantissa, from the high bit down. The codes below are without the sign.
struct FloatFormat {
  int bits = 0;
  int mantissa = 0;
  int bias = 0;
  uint32_t max = 0;       // the largest finite value
  uint32_t overflow = 0;  // code for values beyond `max` under kNanOrInf
  uint32_t nan = 0;       // code that every NaN becomes: positive, all bits set
};

inline constexpr FloatFormat kF32Format{32, 23, 127, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF};
inline constexpr FloatFormat kF16Format{16, 10, 15, 0x7BFF, 0x7C00, 0x7FFF};
inline constexpr FloatFormat kBF16Format{16, 7, 127, 0x7F7F, 0x7F80, 0x7FFF};
inline constexpr FloatFormat kE4M3Format{8, 3, 7, 0x7E, 0x7F, 0x7F};
inline constexpr FloatFormat kE5M2Format{8, 2, 15, 0x7B, 0x7C, 0x7F};
inline constexpr FloatFormat kE2M1Format{4, 1, 1, 0x7, 0x7, 0x7};

// An f32 or f64 taken apart.
template <typename Float>
struct FloatBits {
  using Bits = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
  static constexpr int kMantissa = std::numeric_limits<Float>::digits - 1;
  static constexpr int kBias = std::numeric_limits<Float>::max_exponent - 1;
  static constexpr Bits kFraction = (Bits{1} << kMantissa) - 1;
  static constexpr Bits kInfinity = static_cast<Bits>(2 * kBias + 1) << kMantissa;

  explicit FloatBits(Float value)
      : magnitude(std::bit_cast<Bits>(value) & (kInfinity | kFraction)),
        negative(std::bit_cast<Bits>(value) != magnitude) {}

  Bits magnitude;
  bool negative;
};

// Encodes `value` as `Format`, which has fewer mantissa bits than Float.
template <FloatFormat Format, typename Float>
uint32_t EncodeAs(Float value, Overflow overflow) {
  using In = FloatBits<Float>;
  using Bits = typename In::Bits;
  constexpr int kLowest = 1 - Format.bias;  // the exponent of subnormals
  const In in(value);
  if (in.magnitude > In::kInfinity) return Format.nan;
  const int field = static_cast<int>(in.magnitude >> In::kMantissa);
  const int exponent = std::max(field, 1) - In::kBias;
  const Bits significand =
      (in.magnitude & In::kFraction) | (static_cast<Bits>(field != 0) << In::kMantissa);
  // Bits that go. With two more than there are, nothing is left of any significand.
  const int shift = std::min(In::kMantissa - Format.mantissa + std::max(kLowest - exponent, 0),
                             In::kMantissa + 2);
  const Bits odd = (significand >> shift) & 1;
  const Bits rounded = (significand + (Bits{1} << (shift - 1)) - 1 + odd) >> shift;
  // `rounded` has the leading one if the result is normal, so it counts as one step of exponent; an
  // infinity's exponent leads beyond `max` like any too large one.
  const Bits code =
      rounded + (static_cast<Bits>(std::max(exponent - kLowest, 0)) << Format.mantissa);
  const uint32_t limited = code <= Format.max                ? static_cast<uint32_t>(code)
                           : overflow == Overflow::kSaturate ? Format.max
                                                             : Format.overflow;
  return limited | static_cast<uint32_t>(in.negative) << (Format.bits - 1);
}

// The same for f32 under kSaturate and a Format of up to 8 bits. Without branches, for loops that
// compilers vectorise.
template <FloatFormat Format>
[[gnu::always_inline]] inline uint32_t EncodeSaturated(float value) {
  constexpr int kShift = kF32Format.mantissa - Format.mantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(kF32Format.bias - Format.bias);
  constexpr uint32_t kLeastNormal = (kRebias + 1) << kF32Format.mantissa;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t odd = (magnitude >> kShift) & 1;
  const uint32_t normal =
      ((magnitude + (1u << (kShift - 1)) - 1 + odd) >> kShift) - (kRebias << Format.mantissa);
  // f32 rounds to steps of Format's subnormals beside what has them as its last bit.
  constexpr uint32_t kBeside = (kRebias + 1 + kShift) << kF32Format.mantissa;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kBeside)) -
      kBeside;
  const uint32_t code = magnitude < kLeastNormal ? subnormal : normal;
  const uint32_t limited = code < Format.max ? code : Format.max;
  const uint32_t sign = bits >> 31 << (Format.bits - 1);
  return magnitude > kF32Format.overflow ? Format.nan : limited | sign;
}

// Encodes as f8e8m0fnu: code k is 2^(k - 127), 255 is NaN.
template <typename Float>
uint32_t EncodeAsE8M0(Float value, ConvertMode mode) {
  using In = FloatBits<Float>;
  using Bits = typename In::Bits;
  constexpr uint32_t kMax = 254;
  constexpr uint32_t kNan = 255;
  const uint32_t beyond = mode.overflow == Overflow::kSaturate ? kMax : kNan;
  const In in(value);
  if (in.magnitude > In::kInfinity) return kNan;
  if (in.magnitude == 0 || in.negative) return mode.overflow == Overflow::kSaturate ? 0 : kNan;
  if (in.magnitude == In::kInfinity) return beyond;
  if (value <= Float{0x1p-127}) return 0;
  // The exponent's field becomes the code; f32's subnormals above 2^-127 have the field 0 as is.
  const Bits moved = in.magnitude - (static_cast<Bits>(In::kBias - 127) << In::kMantissa);
  const Bits floor = moved >> In::kMantissa;
  const Bits rest = moved & In::kFraction;
  constexpr Bits kNever = In::kFraction + 1;
  const bool half_up = mode.scale_rounding == ScaleRounding::kNearestHalfUp && floor != 0;
  const Bits first_up = mode.scale_rounding == ScaleRounding::kFloor ? kNever
                        : half_up                                    ? kNever / 2
                                                                     : 1;
  const Bits code = floor + (rest >= first_up ? 1 : 0);
  return code <= kMax ? static_cast<uint32_t>(code) : beyond;
}

// Decodes a code exactly. Without branches, as EncodeSaturated().
template <FloatFormat Format>
[[gnu::always_inline]] constexpr inline float DecodeAs(uint32_t code) {
  constexpr int kShift = kF32Format.mantissa - Format.mantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(kF32Format.bias - Format.bias);
  const uint32_t sign = code >> (Format.bits - 1) << 31;
  const uint32_t magnitude = code & ((1u << (Format.bits - 1)) - 1);
  const uint32_t normal = (magnitude << kShift) + (kRebias << kF32Format.mantissa);
  // Subnormal: beside the leading one of the lowest exponent, which is then taken off again.
  constexpr uint32_t kLowest = (kRebias + 1) << kF32Format.mantissa;
  const auto subnormal = std::bit_cast<uint32_t>(
      std::bit_cast<float>(kLowest | (magnitude << kShift)) - std::bit_cast<float>(kLowest));
  const bool is_subnormal = kRebias != 0 && magnitude >> Format.mantissa == 0;
  const bool is_infinity = Format.overflow != Format.nan && magnitude == Format.overflow;
  const uint32_t finite = is_subnormal ? subnormal : normal;
  const uint32_t beyond = is_infinity ? kF32Format.overflow : kF32Format.nan;
  return std::bit_cast<float>((magnitude > Format.max ? beyond : finite) | sign);
}

inline float DecodeAsE8M0(uint32_t code) {
  if (code == 255) return std::bit_cast<float>(kF32Format.nan);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : code << kF32Format.mantissa);
}

}  // namespace ferry::compute
