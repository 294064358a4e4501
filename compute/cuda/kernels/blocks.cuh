// SPDX-License-Identifier: Apache-2.0
// Block formats: docs/numerics.md, "Block formats". What is quantised is f32.
#pragma once

#include "memory.cuh"
#include "reduce.cuh"

// Of magnitudes' bits, so that NaN is above infinity. Threads of a warp that have vectors of the
// same block, of `block` elements: a power of two, and at most 32 vectors.
template <int block, int V>
FERRY_DEVICE void LargestOfBlocks(const Vector<f32, V>& in, int count, Vector<u32, V>& largest) {
  constexpr int kParts = block < V ? block : V;
  FERRY_UNROLL
  for (int first = 0; first < V; first += kParts) {
    u32 most = 0;
    FERRY_UNROLL
    for (int k = first; k < first + kParts; ++k) {
      const u32 bits = BitCast<u32>(in[k]) & 0x7FFFFFFFu;
      if (k < count && bits > most) most = bits;
    }
    FERRY_UNROLL
    for (int mask = block / V / 2; mask > 0; mask /= 2) {
      const u32 other = __shfl_xor_sync(kWarp, most, mask);
      if (other > most) most = other;
    }
    FERRY_UNROLL
    for (int k = first; k < first + kParts; ++k) largest[k] = most;
  }
}

template <typename Element>
constexpr f32 kLargestElement = kIsSame<Element, f8e4m3fn> ? 448.0f
                                : kIsSame<Element, f8e5m2> ? 57344.0f
                                                           : 6.0f;
// The power of two below it, and its bits behind the point as f32 has them: 1.75 or 1.5 times.
template <typename Element>
constexpr int kLargestExponent = kIsSame<Element, f8e4m3fn> ? 8
                                 : kIsSame<Element, f8e5m2> ? 15
                                                            : 2;
template <typename Element>
constexpr u32 kLargestFraction = kIsSame<Element, f4e2m1fn> ? 0x400000u : 0x600000u;

// The scale of a block of which the largest magnitude has these bits.
template <typename Element, typename Scale, int rounding>
FERRY_DEVICE Scale ScaleOf(u32 largest) {
  if constexpr (kIsSame<Scale, f8e8m0fnu>) {
    // The largest over the element's largest (kCeil), or over the power of two below that.
    const int floor = static_cast<int>(largest >> 23) - kLargestExponent<Element>;
    const u32 fraction = largest & 0x7FFFFFu;
    bool up = false;
    if (rounding == kCeil) up = fraction > kLargestFraction<Element>;
    // All between 2^-127, which is code 0, and 2^-126 becomes 2^-126.
    if (rounding == kNearestHalfUp) up = floor == 0 ? fraction > 0 : fraction >> 22 != 0;
    const int code = floor + (up ? 1 : 0);
    const int finite = code > 0 ? code : 0;
    return {static_cast<u8>(largest < 0x7F800000u ? finite : largest == 0x7F800000u ? 254 : 255)};
  } else {
    return Encode<Scale>(BitCast<f32>(largest) / kLargestElement<Element>, true);
  }
}

// `in` is a value over the global scale; `sign` the value itself.
template <typename Element, typename Scale>
FERRY_DEVICE Element Quantized(f32 in, f32 sign, Scale scale) {
  f32 quotient;
  bool nothing;  // NaN is said by the scale alone; below the smallest scale nothing is left
  if constexpr (kIsSame<Scale, f8e8m0fnu>) {
    // Times the reciprocal, which is a power of two too: the same bits.
    const u32 code = scale.code;
    quotient = in * BitCast<f32>(code == 254 ? 0x00400000u : (254 - code) << 23);
    nothing = code == 255;
  } else {
    const f32 divisor = Decode(scale);
    quotient = in / divisor;
    nothing = divisor != divisor || divisor == 0;
  }
  const f32 zero = sign != sign ? 0.0f : BitCast<f32>(BitCast<u32>(sign) & 0x80000000u);
  return Encode<Element>(nothing ? zero : quotient, true);
}

template <typename Element, typename Scale>
FERRY_DEVICE f32 Dequantized(Element element, Scale scale) {
  return Decode(element) * Decode(scale);
}

// Where the scale at (row, column) is in tiles of 128 x 4, `columns` in a row.
FERRY_DEVICE i64 SwizzledOffset(i64 row, i64 column, i64 columns) {
  const i64 tile = row / 128 * ((columns + 3) / 4) + column / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
}
// The row and the column of which scale there may be at `offset`.
FERRY_DEVICE i64 SwizzledRow(i64 offset, i64 columns) {
  const i64 within = offset % 512;
  return offset / 512 / ((columns + 3) / 4) * 128 + within / 4 % 4 * 32 + within / 16;
}
FERRY_DEVICE i64 SwizzledColumn(i64 offset, i64 columns) {
  return offset / 512 % ((columns + 3) / 4) * 4 + offset % 4;
}
