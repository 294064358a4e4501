// SPDX-License-Identifier: Apache-2.0
// The element types of programs by the names that programs have for them, and what is the same for
// all: loading one into a type to compute in, and rounding it back. Floating types that C++ lacks
// are their bits. docs/numerics.md says what all of these headers give, and compute/numerics is the
// same for hosts: the bits are equal, which tests/compute/cuda shows.
// For NVRTC, which has no C++ library; a host's compiler takes them too, with a few lines for what
// only GPUs have.
#pragma once

#define FERRY_DEVICE static __device__ __forceinline__
#ifdef FERRY_ROLLED  // the first tier (kernel_compiler.h): less code, which compiles faster
#define FERRY_UNROLL _Pragma("unroll 1")
#else
#define FERRY_UNROLL _Pragma("unroll")
#endif

using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

template <typename To, typename From>
FERRY_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  return __builtin_bit_cast(To, from);
}

// Codes without the sign: `max` is the largest finite one, `overflow` what is beyond it where
// nothing saturates, `nan` the one that NaN becomes, `infinity` the first that is no number.
template <typename Code_, int bits, int mantissa, int bias, u32 max, u32 overflow, u32 infinity>
struct SmallFloat {
  using Code = Code_;
  static constexpr int kBits = bits;
  static constexpr int kMantissa = mantissa;
  static constexpr int kBias = bias;
  static constexpr u32 kMax = max;
  static constexpr u32 kOverflow = overflow;
  static constexpr u32 kInfinity = infinity;
  static constexpr u32 kNan = (1u << (bits - 1)) - 1;

  Code code;
};
using f16 = SmallFloat<u16, 16, 10, 15, 0x7BFF, 0x7C00, 0x7C00>;
using bf16 = SmallFloat<u16, 16, 7, 127, 0x7F7F, 0x7F80, 0x7F80>;
using f8e4m3fn = SmallFloat<u8, 8, 3, 7, 0x7E, 0x7F, 0x7F>;
using f8e5m2 = SmallFloat<u8, 8, 2, 15, 0x7B, 0x7C, 0x7C>;
using f4e2m1fn = SmallFloat<u8, 4, 1, 1, 0x7, 0x7, 0x8>;
struct f8e8m0fnu {  // code k is 2^(k - 127), 255 is NaN
  using Code = u8;
  Code code;
};

template <typename T>
constexpr bool kIsSmall = false;
template <typename Code, int bits, int mantissa, int bias, u32 max, u32 overflow, u32 infinity>
constexpr bool kIsSmall<SmallFloat<Code, bits, mantissa, bias, max, overflow, infinity>> = true;
template <typename A, typename B>
constexpr bool kIsSame = false;
template <typename A>
constexpr bool kIsSame<A, A> = true;
template <typename T>
constexpr bool kIsFloating =
    kIsSmall<T> || kIsSame<T, f32> || kIsSame<T, f64> || kIsSame<T, f8e8m0fnu>;
template <typename T>
constexpr bool kIsSigned = static_cast<T>(-1) < static_cast<T>(0);

// Two f4e2m1fn share a byte, the first in the low half.
template <typename T>
constexpr bool kIsPacked = kIsSame<T, f4e2m1fn>;

#ifdef __CUDA_ARCH__
template <typename T>
FERRY_DEVICE f32 DecodeByGpu(T value) {
  u32 halves = value.code;
  if constexpr (kIsSame<T, f8e4m3fn>) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(value.code)));
  } else if constexpr (kIsSame<T, f8e5m2>) {
    halves <<= 8;
  }
  f32 number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(static_cast<u16>(halves)));
  return number;
}
#endif

template <typename T>
FERRY_DEVICE f32 Decode(T value) {
  if constexpr (kIsSame<T, f8e8m0fnu>) {
    const u32 code = value.code;
    return BitCast<f32>(code == 255 ? 0x7FFFFFFFu : code == 0 ? 0x00400000u : code << 23);
  } else if constexpr (kIsSame<T, bf16>) {
    return BitCast<f32>(static_cast<u32>(value.code) << 16);
  } else {
#ifdef __CUDA_ARCH__
    if constexpr (!kIsPacked<T>) return DecodeByGpu(value);
#endif
    const u32 code = value.code;
    const u32 magnitude = code & T::kNan;
    // As if it were f32's own: a product by the difference of the biases is exact, of subnormals
    // too.
    constexpr u32 kRebias = static_cast<u32>(254 - T::kBias) << 23;
    const f32 number = BitCast<f32>(magnitude << (23 - T::kMantissa)) * BitCast<f32>(kRebias);
    const u32 sign = (code >> (T::kBits - 1)) << 31;
    const bool infinite =
        T::kOverflow == T::kInfinity && T::kInfinity != T::kNan && magnitude == T::kInfinity;
    const u32 beyond = infinite ? 0x7F800000u : 0x7FFFFFFFu;
    return BitCast<f32>(sign | (magnitude >= T::kInfinity ? beyond : BitCast<u32>(number)));
  }
}

template <typename T>
FERRY_DEVICE u32 Limited(u32 code, bool saturate, u32 sign) {
  const u32 limited = code <= T::kMax ? code : saturate ? T::kMax : T::kOverflow;
  return limited | sign << (T::kBits - 1);
}

#ifdef __CUDA_ARCH__
// What the GPU rounds by one instruction gives the same bits as the rounding below, and NaN as
// well: tests/gpu/kernel_test.cc.
template <typename T>
constexpr bool kIsRoundedByGpu =
    kIsSame<T, f16> || kIsSame<T, bf16> || kIsSame<T, f8e4m3fn> || kIsSame<T, f8e5m2>;

template <typename T>
FERRY_DEVICE T EncodeByGpu(f32 value, bool saturate) {
  u16 code;
  if constexpr (sizeof(T) == 2) {
    if constexpr (kIsSame<T, bf16>) {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(value));
    } else {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
    }
    if (saturate && (code & T::kNan) == T::kInfinity) --code;
  } else {
    // The largest that rounds to a finite code: a tie goes up where that code is odd.
    constexpr u32 kLast = kIsSame<T, f8e4m3fn> ? 0x43E80000u : 0x476FFFFFu;
    if constexpr (kIsSame<T, f8e4m3fn>) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(value));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(value));
    }
    const u32 magnitude = BitCast<u32>(value) & 0x7FFFFFFFu;
    if (!saturate && magnitude > kLast && magnitude <= 0x7F800000u) {
      code = static_cast<u16>(T::kOverflow | (code & (T::kNan + 1)));
    }
  }
  return {static_cast<typename T::Code>(code)};
}
#else
template <typename T>
constexpr bool kIsRoundedByGpu = false;
template <typename T>
FERRY_DEVICE T EncodeByGpu(f32 value, bool saturate);  // never called
#endif

// To the nearest, a tie to the even code.
template <typename T>
FERRY_DEVICE T Encode(f32 value, bool saturate = false) {
  if constexpr (kIsRoundedByGpu<T>) {
    return EncodeByGpu<T>(value, saturate);
  } else {
    const u32 bits = BitCast<u32>(value);
    const u32 magnitude = bits & 0x7FFFFFFFu;
    constexpr int kShift = 23 - T::kMantissa;
    constexpr u32 kRebias = static_cast<u32>(127 - T::kBias) << 23;
    u32 code;
    if (T::kBias != 127 && magnitude < kRebias + (1u << 23)) {
      // A subnormal: the sum's last bit is the smallest of them, so that the addition rounds.
      constexpr u32 kMagic = static_cast<u32>(151 - T::kBias - T::kMantissa) << 23;
      code = BitCast<u32>(BitCast<f32>(magnitude) + BitCast<f32>(kMagic)) - kMagic;
    } else {
      const u32 odd = (magnitude >> kShift) & 1;
      code = (magnitude - kRebias + (1u << (kShift - 1)) - 1 + odd) >> kShift;
    }
    const u32 limited = Limited<T>(code, saturate, bits >> 31);
    return {static_cast<typename T::Code>(magnitude > 0x7F800000u ? T::kNan : limited)};
  }
}

template <typename T>
FERRY_DEVICE T Encode(f64 value, bool saturate = false) {
  const u64 bits = BitCast<u64>(value);
  const u64 magnitude = bits & 0x7FFFFFFFFFFFFFFFull;
  constexpr u64 kFraction = (1ull << 52) - 1;
  if (magnitude > 0x7FF0000000000000ull) return {static_cast<typename T::Code>(T::kNan)};
  constexpr int kLowest = 1 - T::kBias;  // the exponent of subnormals
  const int field = static_cast<int>(magnitude >> 52);
  const int exponent = (field > 0 ? field : 1) - 1023;
  const u64 significand = (magnitude & kFraction) | (field != 0 ? kFraction + 1 : 0);
  // Bits that go. With two more than there are, nothing is left of any significand.
  const int below = kLowest - exponent > 0 ? kLowest - exponent : 0;
  const int wanted = 52 - T::kMantissa + below;
  const int shift = wanted < 54 ? wanted : 54;
  const u64 odd = (significand >> shift) & 1;
  const u64 rounded = (significand + (1ull << (shift - 1)) - 1 + odd) >> shift;
  const int steps = exponent - kLowest > 0 ? exponent - kLowest : 0;
  const u64 code = rounded + (static_cast<u64>(steps) << T::kMantissa);
  const u32 near = code <= T::kMax ? static_cast<u32>(code) : T::kMax + 1;
  const u32 sign = static_cast<u32>(bits >> 63);
  return {static_cast<typename T::Code>(Limited<T>(near, saturate, sign))};
}

// f16 and bf16 are computed in f32 and rounded once more; all others as they are.
template <typename T>
FERRY_DEVICE auto Load(T value) {
  if constexpr (kIsSmall<T> || kIsSame<T, f8e8m0fnu>) {
    return Decode(value);
  } else {
    return value;
  }
}
template <typename T, typename Work>
FERRY_DEVICE T Store(Work value) {
  if constexpr (kIsSmall<T>) {
    return Encode<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// The bits of an element, and back.
template <typename T>
FERRY_DEVICE u64 CodeOf(T value) {
  if constexpr (kIsSame<T, f64>) {
    return BitCast<u64>(value);
  } else if constexpr (kIsSame<T, f32>) {
    return BitCast<u32>(value);
  } else if constexpr (kIsFloating<T>) {
    return value.code;
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<u64>(value);
  } else {
    return static_cast<u64>(value) & ((1ull << (8 * sizeof(T))) - 1);
  }
}
template <typename T>
FERRY_DEVICE T FromCode(u64 code) {
  if constexpr (kIsSame<T, f64>) {
    return BitCast<f64>(code);
  } else if constexpr (kIsSame<T, f32>) {
    return BitCast<f32>(static_cast<u32>(code));
  } else if constexpr (kIsFloating<T>) {
    return {static_cast<typename T::Code>(code)};
  } else {
    return static_cast<T>(code);
  }
}
