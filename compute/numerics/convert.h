// SPDX-License-Identifier: Apache-2.0
// Converts between element types, with the same bits on every CPU: docs/numerics.md has the tables.
// A value is rounded once, from its type to the wanted type and never through a narrower one, to
// nearest with ties to even, by integer arithmetic. For any thread whose floating-point environment
// is the default one (round to nearest, subnormals kept). No state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/dtype.h"

namespace ferry::compute {

// What becomes of a value beyond the largest finite one of a floating type, and of an infinity.
enum class Overflow : uint8_t {
  kNanOrInf,  // infinity; where the type has none, NaN
  kSaturate,  // the largest finite value with its sign, for infinities too
};
// f4e2m1fn has neither infinity nor NaN: it saturates in both modes, and NaN becomes +6. To f64,
// and from a narrower type to f32, every value is exact, infinities too, and the mode does not
// matter.

// How a value between two powers of two becomes one of the two: f8e8m0fnu only.
enum class ScaleRounding : uint8_t {
  kCeil,
  kFloor,
  kNearestHalfUp,  // 1.5 becomes 2; but every value between 2^-127 and 2^-126 becomes 2^-126
};

struct ConvertMode {
  Overflow overflow = Overflow::kNanOrInf;
  ScaleRounding scale_rounding = ScaleRounding::kCeil;
};

// Converts `count` elements of type `from` at `in` to type `to` at `out`. They have BytesOf(type,
// count) bytes, do not overlap, and need no alignment. A half byte at the end without an element
// becomes 0.
void Convert(DType from, const std::byte* in, DType to, std::byte* out, uint64_t count,
             ConvertMode mode = {});

// One value. `type` is f32 or a narrower floating type; `code` is the element's bits.
float DecodeFloat(DType type, uint32_t code);
uint32_t EncodeFloat(DType type, double value, ConvertMode mode = {});

}  // namespace ferry::compute
