// SPDX-License-Identifier: Apache-2.0
// The elementwise ops, each of one element, by their names. What C++ leaves open of integers is as
// docs/numerics.md says. f16 and bf16 are computed in f32 and rounded once more. Nothing here is
// contracted or approximate: the compiler is told so (compute/cuda/nvrtc.h).
#pragma once

#include "convert.cuh"

template <int bytes>
struct UnsignedOf {
  using Type = u32;  // of narrow integers too: their products do not overflow into the sign
};
template <>
struct UnsignedOf<8> {
  using Type = u64;
};
template <typename T>
using Wide = typename UnsignedOf<sizeof(T)>::Type;

// An integer's own bits as an unsigned number.
template <typename T>
FERRY_DEVICE Wide<T> OwnBits(T value) {
  return static_cast<Wide<T>>(CodeOf(value));
}

#define FERRY_FLOAT_OR(float_result, ...)        \
  if constexpr (kIsFloating<T>) {                \
    const auto x = Load(a), y = Load(b);         \
    return Store<T>(float_result);               \
  } else {                                       \
    const Wide<T> x = static_cast<Wide<T>>(a);   \
    const Wide<T> y = static_cast<Wide<T>>(b);   \
    __VA_ARGS__                                  \
  }

template <typename T>
FERRY_DEVICE T Add(T a, T b) {
  FERRY_FLOAT_OR(x + y, return static_cast<T>(x + y);)
}
template <typename T>
FERRY_DEVICE T Subtract(T a, T b) {
  FERRY_FLOAT_OR(x - y, return static_cast<T>(x - y);)
}
template <typename T>
FERRY_DEVICE T Multiply(T a, T b) {
  FERRY_FLOAT_OR(x * y, return static_cast<T>(x * y);)
}
template <typename T>
FERRY_DEVICE T Divide(T a, T b) {
  FERRY_FLOAT_OR(x / y, {
    if (y == 0) return static_cast<T>(-1);
    if (kIsSigned<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - x);
    return static_cast<T>(a / b);
  })
}

// A number that many others are divided by. Where the magnitudes of both are from 2^-60 to below
// 2^60, as nearly always, DivideBy multiplies by the rounded reciprocal, and corrects the product
// twice by what is left over. By Markstein's theorem the second correction gives the quotient as
// IEEE rounds it, since the first one leaves at most one unit in the last place (P. Markstein,
// Computation of elementary functions on the IBM RISC System/6000 processor, IBM J. Res. Dev. 34,
// 1990).
struct Divisor {
  f32 value;
  f32 reciprocal;
  u32 range;  // kDividedRange, or 0 if the magnitude of `value` is another
};
// Of a number's bits without the sign, shifted left by one.
constexpr u32 kLeastDivided = (127u - 60u) << 24;
constexpr u32 kDividedRange = 120u << 24;
FERRY_DEVICE Divisor DivisorOf(f32 value) {
  const bool plain = (BitCast<u32>(value) << 1) - kLeastDivided < kDividedRange;
  return {value, 1.0f / value, plain ? kDividedRange : 0};
}
FERRY_DEVICE bool IsPlain(f32 a, const Divisor& b) {
  return (BitCast<u32>(a) << 1) - kLeastDivided < b.range;
}
// `plain`: IsPlain(a, b) is known to be true.
template <bool plain>
FERRY_DEVICE f32 DivideBy(f32 a, const Divisor& b) {
  if constexpr (plain) {
    const f32 near = a * b.reciprocal;
    const f32 nearer = fmaf(fmaf(-b.value, near, a), b.reciprocal, near);
    return fmaf(fmaf(-b.value, nearer, a), b.reciprocal, nearer);
  } else {
    return a / b.value;
  }
}

FERRY_DEVICE f32 Modulo(f32 a, f32 b) { return fmodf(a, b); }
FERRY_DEVICE f64 Modulo(f64 a, f64 b) { return fmod(a, b); }
template <typename T>
FERRY_DEVICE T Remainder(T a, T b) {
  FERRY_FLOAT_OR(Modulo(x, y), {
    if (y == 0) return a;
    if (kIsSigned<T> && b == static_cast<T>(-1)) return static_cast<T>(x - x);
    return static_cast<T>(a % b);
  })
}

// NaN if there is one, and -0 is below 0.
template <bool maximum, typename Float>
FERRY_DEVICE Float Extreme(Float a, Float b) {
#ifdef __CUDA_ARCH__
  if constexpr (kIsSame<Float, f32>) {
    f32 made;
    if constexpr (maximum) {
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(made) : "f"(a), "f"(b));
    } else {
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(made) : "f"(a), "f"(b));
    }
    return made;
  }
#endif
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) {
    const auto x = CodeOf(a), y = CodeOf(b);
    return FromCode<Float>(maximum ? x & y : x | y);
  }
  return (maximum ? a > b : a < b) ? a : b;
}
template <typename T>
FERRY_DEVICE T Maximum(T a, T b) {
  FERRY_FLOAT_OR((Extreme<true>(x, y)), return a > b ? a : b; (void)x; (void)y;)
}
template <typename T>
FERRY_DEVICE T Minimum(T a, T b) {
  FERRY_FLOAT_OR((Extreme<false>(x, y)), return a < b ? a : b; (void)x; (void)y;)
}
template <typename T>
FERRY_DEVICE T Clamp(T low, T value, T high) {
  return Minimum(Maximum(low, value), high);
}

template <typename T>
FERRY_DEVICE T And(T a, T b) {
  return static_cast<T>(a & b);
}
template <typename T>
FERRY_DEVICE T Or(T a, T b) {
  return static_cast<T>(a | b);
}
template <typename T>
FERRY_DEVICE T Xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <typename T>
FERRY_DEVICE T Not(T a) {
  if constexpr (kIsSame<T, bool>) {
    return !a;
  } else {
    return static_cast<T>(~a);
  }
}

// By as many bits as there are, or more: nothing is left, or the sign.
template <typename T>
FERRY_DEVICE T ShiftLeft(T a, T b) {
  constexpr Wide<T> kBits = 8 * sizeof(T);
  const Wide<T> count = OwnBits(b);
  return static_cast<T>(count < kBits ? static_cast<Wide<T>>(a) << count : 0);
}
template <typename T>
FERRY_DEVICE T ShiftRightLogical(T a, T b) {
  constexpr Wide<T> kBits = 8 * sizeof(T);
  const Wide<T> count = OwnBits(b);
  return static_cast<T>(count < kBits ? OwnBits(a) >> count : 0);
}
template <typename T>
FERRY_DEVICE T ShiftRightArithmetic(T a, T b) {
  constexpr Wide<T> kBits = 8 * sizeof(T);
  const Wide<T> count = OwnBits(b);
  const Wide<T> by = count < kBits ? count : kBits - 1;
  const i64 high = static_cast<i64>(OwnBits(a)) << (64 - kBits);  // as if it had a sign
  return static_cast<T>(high >> (64 - kBits) >> by);
}

template <typename T>
FERRY_DEVICE T Negate(T a) {
  if constexpr (kIsFloating<T>) {
    return Store<T>(-Load(a));
  } else {
    return static_cast<T>(0 - static_cast<Wide<T>>(a));
  }
}
template <typename T>
FERRY_DEVICE T Abs(T a) {
  if constexpr (kIsSame<T, f64>) {
    return fabs(a);
  } else if constexpr (kIsFloating<T>) {
    return Store<T>(fabsf(Load(a)));
  } else {
    return a < 0 ? Negate(a) : a;
  }
}
template <typename T>
FERRY_DEVICE T Sign(T a) {
  if constexpr (kIsFloating<T>) {
    const auto x = Load(a);
    const decltype(x + x) one = 1;
    return Store<T>(x > 0 ? one : x < 0 ? -one : x);
  } else {
    return static_cast<T>((a > 0) - (a < 0));
  }
}

// Functions of f32 and f64 by CUDA's names.
#define FERRY_FUNCTION(Name, of_float, of_double)     \
  template <typename T>                               \
  FERRY_DEVICE T Name(T a) {                          \
    if constexpr (kIsSame<T, f64>) {                  \
      return of_double(a);                            \
    } else {                                          \
      return Store<T>(static_cast<f32>(of_float(Load(a)))); \
    }                                                 \
  }
FERRY_FUNCTION(Floor, floorf, floor)
FERRY_FUNCTION(Ceil, ceilf, ceil)
FERRY_FUNCTION(RoundNearestEven, rintf, rint)
FERRY_FUNCTION(Sqrt, sqrtf, sqrt)
FERRY_FUNCTION(Rsqrt, 1 / sqrtf, 1 / sqrt)
FERRY_FUNCTION(Cbrt, cbrtf, cbrt)
FERRY_FUNCTION(Exponential, expf, exp)
FERRY_FUNCTION(ExponentialBaseTwo, exp2f, exp2)
FERRY_FUNCTION(ExponentialMinusOne, expm1f, expm1)
FERRY_FUNCTION(Log, logf, log)
FERRY_FUNCTION(LogBaseTwo, log2f, log2)
FERRY_FUNCTION(LogPlusOne, log1pf, log1p)
FERRY_FUNCTION(Sine, sinf, sin)
FERRY_FUNCTION(Cosine, cosf, cos)
FERRY_FUNCTION(Tanh, tanhf, tanh)
FERRY_FUNCTION(Erf, erff, erf)
FERRY_DEVICE f32 LogisticOf(f32 x) {
  const f32 e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
FERRY_DEVICE f64 LogisticOf(f64 x) {
  const f64 e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
FERRY_FUNCTION(Logistic, LogisticOf, LogisticOf)
template <typename T>
FERRY_DEVICE T Power(T a, T b) {
  if constexpr (kIsSame<T, f64>) {
    return pow(a, b);
  } else {
    return Store<T>(powf(Load(a), Load(b)));
  }
}

// Rounded once. Of f16 and bf16 the product is exact in f64; the sum is rounded to odd there, so
// that rounding it once more rounds the exact one.
template <typename T>
FERRY_DEVICE T Fma(T a, T b, T c) {
  if constexpr (kIsSame<T, f64>) {
    return fma(a, b, c);
  } else if constexpr (kIsSame<T, f32>) {
    return fmaf(a, b, c);
  } else {
    const f64 product = static_cast<f64>(Load(a)) * static_cast<f64>(Load(b));
    const f64 addend = Load(c);
    const f64 sum = product + addend;
    const f64 of_c = sum - product;
    const f64 rest = (product - (sum - of_c)) + (addend - of_c);
    u64 bits = BitCast<u64>(sum);
    if (sum - sum == 0 && rest != 0 && (bits & 1) == 0) bits += (rest > 0) == (sum > 0) ? 1 : -1;
    return Encode<T>(BitCast<f64>(bits));
  }
}

template <typename T>
FERRY_DEVICE bool IsFinite(T a) {
  const auto x = Load(a);
  return x - x == 0;
}

// The order of sign and magnitude as one of integers.
template <typename T>
FERRY_DEVICE i64 Rank(T a) {
  if constexpr (kIsFloating<T>) {
    constexpr int kUnused = 64 - 8 * sizeof(T);
    const i64 bits = static_cast<i64>(CodeOf(a) << kUnused) >> kUnused;
    return bits >= 0 ? bits : bits ^ 0x7FFFFFFFFFFFFFFFll;
  } else {
    return a;
  }
}
#define FERRY_COMPARE(Name, holds)                        \
  template <typename T>                                   \
  FERRY_DEVICE bool Name(T a, T b) {                      \
    return Load(a) holds Load(b);                         \
  }                                                       \
  template <typename T>                                   \
  FERRY_DEVICE bool Name##Total(T a, T b) {               \
    if constexpr (kIsFloating<T>) return Rank(a) holds Rank(b); \
    return Load(a) holds Load(b);                         \
  }
FERRY_COMPARE(Eq, ==)
FERRY_COMPARE(Ne, !=)
FERRY_COMPARE(Lt, <)
FERRY_COMPARE(Le, <=)
FERRY_COMPARE(Gt, >)
FERRY_COMPARE(Ge, >=)

template <typename T>
FERRY_DEVICE T Select(bool which, T yes, T no) {
  return which ? yes : no;
}
