// SPDX-License-Identifier: Apache-2.0
// Conversions between all element types: each value is rounded once.
#pragma once

#include "types.cuh"

constexpr int kCeil = 0, kFloor = 1, kNearestHalfUp = 2;

template <typename Float>
FERRY_DEVICE f8e8m0fnu EncodeScale(Float value, bool saturate, int rounding) {
  using Bits = decltype(CodeOf(value));
  constexpr bool kWide = sizeof(Float) == 8;
  constexpr int kMantissa = kWide ? 52 : 23;
  constexpr u64 kFraction = (1ull << kMantissa) - 1;
  constexpr u64 kInfinity = kWide ? 0x7FF0000000000000ull : 0x7F800000ull;
  constexpr u64 kRebias = kWide ? 896ull << 52 : 0;
  const Bits bits = CodeOf(value);
  const u64 magnitude = bits & (kInfinity | kFraction);
  const u8 beyond = saturate ? 254 : 255;
  if (magnitude > kInfinity) return {255};
  if (magnitude == 0 || bits != magnitude) return {static_cast<u8>(saturate ? 0 : 255)};
  if (magnitude == kInfinity) return {beyond};
  if (value <= static_cast<Float>(BitCast<f32>(0x00400000u))) return {0};
  // The exponent's field becomes the code; f32's subnormals above 2^-127 have the field 0 as is.
  const u64 moved = magnitude - kRebias;
  const u64 floor = moved >> kMantissa;
  const u64 rest = moved & kFraction;
  u64 up = 0;
  if (rounding == kCeil) up = rest > 0;
  // All between 2^-127 and 2^-126 becomes 2^-126.
  if (rounding == kNearestHalfUp) up = floor == 0 ? 1 : rest >> (kMantissa - 1);
  const u64 code = floor + up;
  return {code > 254 ? beyond : static_cast<u8>(code)};
}

// As a double from which one further rounding gives what rounding the integer itself would: the
// last bit of what has too many says whether there was anything below.
template <typename Integer>
FERRY_DEVICE f64 NearlyDouble(Integer value) {
  const bool negative = value < 0;
  u64 magnitude = negative ? 0 - static_cast<u64>(value) : static_cast<u64>(value);
  if (magnitude >> 53 != 0) {
    magnitude = (magnitude & ~0x7FFull) | ((magnitude & 0x7FFull) != 0 ? 0x800ull : 0);
  }
  const f64 number = static_cast<f64>(magnitude);
  return negative ? -number : number;
}

// Toward zero, to the nearest end of the range if beyond it, NaN to 0.
template <typename To, typename Float>
FERRY_DEVICE To Truncate(Float value) {
  constexpr int kDigits = 8 * static_cast<int>(sizeof(To)) - (kIsSigned<To> ? 1 : 0);
  constexpr u64 kLargest = ~0ull >> (64 - kDigits);
  // 2^digits, the first value above the range; exact, which the largest one itself need not be.
  constexpr Float kEnd = static_cast<Float>(1ull << (kDigits - 1)) * 2;
  if (value >= kEnd) return static_cast<To>(kLargest);
  if (value <= (kIsSigned<To> ? -kEnd : Float{0})) {
    return kIsSigned<To> ? static_cast<To>(~kLargest) : To{0};
  }
  return value != value ? To{0} : static_cast<To>(value);
}

template <typename To, bool saturate = false, int rounding = kCeil, typename From>
FERRY_DEVICE To Convert(From value) {
  if constexpr (kIsSame<From, To>) {
    return value;
  } else if constexpr (kIsSame<To, bool>) {
    return Load(value) != 0;
  } else if constexpr (!kIsFloating<To>) {
    if constexpr (kIsFloating<From>) {
      return Truncate<To>(Load(value));
    } else {
      return static_cast<To>(value);
    }
  } else if constexpr (kIsSame<To, f8e8m0fnu>) {
    if constexpr (kIsFloating<From>) {
      return EncodeScale(Load(value), saturate, rounding);
    } else {
      return EncodeScale(NearlyDouble(value), saturate, rounding);
    }
  } else if constexpr (kIsSmall<To>) {
    if constexpr (kIsFloating<From>) {
      return Encode<To>(Load(value), saturate);
    } else {
      return Encode<To>(NearlyDouble(value), saturate);
    }
  } else {
    const To result = static_cast<To>(Load(value));
    if constexpr (saturate && kIsSame<From, f64> && kIsSame<To, f32>) {
      const u32 bits = BitCast<u32>(result);
      if ((bits & 0x7FFFFFFFu) == 0x7F800000u) return BitCast<f32>(bits - 1);
    }
    return result;
  }
}
