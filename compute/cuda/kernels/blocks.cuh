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
constexpr f64 kLargestElement = kIsSame<Element, f8e4m3fn> ? 448.0
                                : kIsSame<Element, f8e5m2> ? 57344.0
                                                           : 6.0;
template <typename Element>
constexpr f64 kLargestPower = kIsSame<Element, f8e4m3fn> ? 256.0
                              : kIsSame<Element, f8e5m2> ? 32768.0
                                                         : 4.0;

// The scale of a block of which the largest magnitude has these bits.
template <typename Element, typename Scale, int rounding>
FERRY_DEVICE Scale ScaleOf(u32 largest) {
  const f32 most = BitCast<f32>(largest);
  if constexpr (kIsSame<Scale, f8e8m0fnu>) {
    // A double, in which the quotient is on the right side of every power of two.
    constexpr f64 kDivisor = rounding == kCeil ? kLargestElement<Element> : kLargestPower<Element>;
    return EncodeScale(static_cast<f64>(most) / kDivisor, true, rounding);
  } else {
    return Encode<Scale>(most / static_cast<f32>(kLargestElement<Element>), true);
  }
}

// `in` is a value over the global scale; `sign` the value itself.
template <typename Element, typename Scale>
FERRY_DEVICE Element Quantized(f32 in, f32 sign, Scale scale) {
  const f32 divisor = Decode(scale);
  // NaN is said by the scale alone; below the smallest scale nothing is left.
  if (divisor != divisor || divisor == 0) {
    return Encode<Element>(BitCast<f32>(BitCast<u32>(sign) & 0x80000000u), true);
  }
  if constexpr (kIsSame<Scale, f8e8m0fnu>) {
    // Times the reciprocal, which is a power of two too: the same bits.
    const u32 code = scale.code;
    const f32 reciprocal = BitCast<f32>(code == 254 ? 0x00400000u : (254 - code) << 23);
    return Encode<Element>(in * reciprocal, true);
  } else {
    return Encode<Element>(in / divisor, true);
  }
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
