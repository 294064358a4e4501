// SPDX-License-Identifier: Apache-2.0
// Single elements: how each type is loaded and stored, and what ops compute from loaded values, as
// docs/numerics.md says. Inline, for the loops of kernels.cc. No state.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "compute/numerics/float_format.h"
#include "compute/program/op.h"

namespace ferry::compute {

template <typename Float>
struct NativeElement {
  using Stored = Float;
  static constexpr bool kFloating = true;
  static Float Load(Float value) { return value; }
  static Float Store(Float value) { return value; }
  static Float Fma(Float a, Float b, Float c) { return std::fma(a, b, c); }
};
using FloatElement = NativeElement<float>;
using DoubleElement = NativeElement<double>;

template <FloatFormat Format>
struct HalfElement {
  using Stored = uint16_t;
  static constexpr bool kFloating = true;
  static float Load(uint16_t code) { return DecodeAs<Format>(code); }
  static uint16_t Store(float value) {
    return static_cast<uint16_t>(EncodeAs<Format>(value, Overflow::kNanOrInf));
  }
  // The product is exact in f64. The sum is rounded to odd there, so that rounding it once more
  // gives the exact sum's rounding.
  static uint16_t Fma(float a, float b, float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b);
    const double sum = product + static_cast<double>(c);
    const double of_c = sum - product;
    const double rest = (product - (sum - of_c)) + (static_cast<double>(c) - of_c);
    auto bits = std::bit_cast<uint64_t>(sum);
    if (std::isfinite(sum) && rest != 0 && (bits & 1) == 0) {
      bits += (rest > 0) == (sum > 0) ? 1 : -1;
    }
    return static_cast<uint16_t>(
        EncodeAs<Format>(std::bit_cast<double>(bits), Overflow::kNanOrInf));
  }
};

template <typename Integer>
struct IntegerElement {
  using Stored = Integer;
  static constexpr bool kFloating = false;
  static Integer Load(Integer value) { return value; }
  static Integer Store(Integer value) { return value; }
};

struct BoolElement {
  using Stored = uint8_t;
  static constexpr bool kFloating = false;
  static bool Load(uint8_t value) { return value != 0; }
  static uint8_t Store(bool value) { return value; }
};

template <Direction direction, typename Number>
bool Holds(Number a, Number b) {
  if constexpr (direction == Direction::kEq) return a == b;
  if constexpr (direction == Direction::kNe) return a != b;
  if constexpr (direction == Direction::kLt) return a < b;
  if constexpr (direction == Direction::kLe) return a <= b;
  if constexpr (direction == Direction::kGt) return a > b;
  if constexpr (direction == Direction::kGe) return a >= b;
}

// Orders floats, which have sign and magnitude, as signed integers: the integer for a value.
template <typename Stored>
auto RankOf(Stored value) {
  using Signed = std::conditional_t<sizeof(Stored) == 2, int16_t,
                                    std::conditional_t<sizeof(Stored) == 4, int32_t, int64_t>>;
  const auto bits = std::bit_cast<Signed>(value);
  return bits >= 0 ? bits : static_cast<Signed>(bits ^ std::numeric_limits<Signed>::max());
}

template <Op op, typename Float>
Float LargestOf(Float a, Float b) {
  using Bits = typename FloatBits<Float>::Bits;
  constexpr bool kMaximum = op == Op::kMaximum;
  const auto x = std::bit_cast<Bits>(a);
  const auto y = std::bit_cast<Bits>(b);
  const Float zero_or_equal = std::bit_cast<Float>(kMaximum ? x & y : x | y);
  const Float larger = (kMaximum ? a > b : a < b) ? a : b;
  const Float number = a == b ? zero_or_equal : larger;
  return a != a ? a : b != b ? b : number;
}

template <typename Float>
Float Logistic(Float x) {
  const Float e = std::exp(-std::fabs(x));
  return (x < 0 ? e : Float{1}) / (Float{1} + e);
}

template <typename Float>
Float CubeRoot(Float x) {
  // The C library's cbrt for double is less exact than is allowed here.
  if constexpr (sizeof(Float) == 8)
    return static_cast<double>(std::cbrt(static_cast<long double>(x)));
  return std::cbrt(x);
}

// Ops on floats.
template <Op op, typename Float, std::enable_if_t<std::is_floating_point_v<Float>, int> = 0>
Float ElementOp(Float a, Float b = 0) {
  if constexpr (op == Op::kAdd) return a + b;
  if constexpr (op == Op::kSubtract) return a - b;
  if constexpr (op == Op::kMultiply) return a * b;
  if constexpr (op == Op::kDivide) return a / b;
  if constexpr (op == Op::kMaximum || op == Op::kMinimum) return LargestOf<op>(a, b);
  if constexpr (op == Op::kPower) return std::pow(a, b);
  if constexpr (op == Op::kRemainder) return std::fmod(a, b);
  if constexpr (op == Op::kNegate) return -a;
  if constexpr (op == Op::kAbs) return std::fabs(a);
  if constexpr (op == Op::kSign) return a > 0 ? Float{1} : a < 0 ? Float{-1} : a;
  if constexpr (op == Op::kFloor) return std::floor(a);
  if constexpr (op == Op::kCeil) return std::ceil(a);
  if constexpr (op == Op::kRoundNearestEven) return std::nearbyint(a);
  if constexpr (op == Op::kSqrt) return std::sqrt(a);
  if constexpr (op == Op::kRsqrt) return Float{1} / std::sqrt(a);
  if constexpr (op == Op::kCbrt) return CubeRoot(a);
  if constexpr (op == Op::kExponential) return std::exp(a);
  if constexpr (op == Op::kExponentialBase2) return std::exp2(a);
  if constexpr (op == Op::kExponentialMinusOne) return std::expm1(a);
  if constexpr (op == Op::kLog) return std::log(a);
  if constexpr (op == Op::kLogBase2) return std::log2(a);
  if constexpr (op == Op::kLogPlusOne) return std::log1p(a);
  if constexpr (op == Op::kSine) return std::sin(a);
  if constexpr (op == Op::kCosine) return std::cos(a);
  if constexpr (op == Op::kTanh) return std::tanh(a);
  if constexpr (op == Op::kLogistic) return Logistic(a);
  if constexpr (op == Op::kErf) return std::erf(a);
}

// Ops on integers, which wrap around; on bool only `not`.
template <Op op, typename Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
Integer ElementOp(Integer a, Integer b = 0) {
  if constexpr (std::is_same_v<Integer, bool>) {
    static_assert(op == Op::kNot);
    return !a;
  } else {
    using Limits = std::numeric_limits<Integer>;
    // Wide enough that products do not overflow into the sign of int.
    using Wide = std::conditional_t<sizeof(Integer) < 4, uint32_t, std::make_unsigned_t<Integer>>;
    constexpr auto kBits = static_cast<Wide>(8 * sizeof(Integer));
    const auto x = static_cast<Wide>(a);
    const auto y = static_cast<Wide>(b);
    const auto count = static_cast<Wide>(static_cast<std::make_unsigned_t<Integer>>(b));
    const auto bits = static_cast<Wide>(static_cast<std::make_unsigned_t<Integer>>(a));
    if constexpr (op == Op::kAdd) return static_cast<Integer>(x + y);
    if constexpr (op == Op::kSubtract) return static_cast<Integer>(x - y);
    if constexpr (op == Op::kMultiply) return static_cast<Integer>(x * y);
    if constexpr (op == Op::kDivide) {
      if (b == 0) return static_cast<Integer>(-1);
      if (Limits::is_signed && b == static_cast<Integer>(-1)) return static_cast<Integer>(0 - x);
      return static_cast<Integer>(a / b);
    }
    if constexpr (op == Op::kRemainder) {
      if (b == 0) return a;
      if (Limits::is_signed && b == static_cast<Integer>(-1)) return 0;
      return static_cast<Integer>(a % b);
    }
    if constexpr (op == Op::kMaximum) return a > b ? a : b;
    if constexpr (op == Op::kMinimum) return a < b ? a : b;
    if constexpr (op == Op::kAnd) return static_cast<Integer>(a & b);
    if constexpr (op == Op::kOr) return static_cast<Integer>(a | b);
    if constexpr (op == Op::kXor) return static_cast<Integer>(a ^ b);
    if constexpr (op == Op::kNot) return static_cast<Integer>(~a);
    if constexpr (op == Op::kNegate) return static_cast<Integer>(0 - x);
    if constexpr (op == Op::kAbs) return a < 0 ? static_cast<Integer>(0 - x) : a;
    if constexpr (op == Op::kSign) return static_cast<Integer>((a > 0) - (a < 0));
    if constexpr (op == Op::kShiftLeft) {
      return static_cast<Integer>(count < kBits ? x << (count % kBits) : Wide{0});
    }
    if constexpr (op == Op::kShiftRightLogical) {
      return static_cast<Integer>(count < kBits ? bits >> (count % kBits) : Wide{0});
    }
    if constexpr (op == Op::kShiftRightArithmetic) {
      using Signed = std::make_signed_t<Integer>;
      return static_cast<Integer>(static_cast<Signed>(a) >> (count < kBits ? count : kBits - 1));
    }
  }
}

}  // namespace ferry::compute
