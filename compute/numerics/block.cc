// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/block.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry::compute {
namespace {

// Elements at a time; even, so that a chunk of a 4-bit type begins with a byte.
constexpr uint64_t kChunk = 256;
constexpr ConvertMode kSaturating{Overflow::kSaturate};

double LargestOf(DType element) {
  return DecodeFloat(element,
                     EncodeFloat(element, std::numeric_limits<double>::infinity(), kSaturating));
}

// The largest magnitude of a block; NaN if there is one in it, for its bits are above infinity's.
float LargestMagnitude(const float* in, uint64_t count, float global) {
  uint32_t largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(in[i] / global)));
  }
  return std::bit_cast<float>(largest);
}

// What a block's elements are divided by, and its code.
struct Scale {
  uint32_t code = 0;
  float value = 0;
};

class ScaleRule {
 public:
  ScaleRule(const BlockFormat& format, ScaleRounding rounding)
      : type_(format.scale), mode_{Overflow::kSaturate, rounding} {
    const double largest = LargestOf(format.element);
    // Powers of two below the true ratio, floor and half up, leave room above the element's largest
    // power of two; only ceil counts on all of its range.
    const bool power = type_ == DType::kF8E8M0FNU && rounding != ScaleRounding::kCeil;
    divisor_ = power ? std::ldexp(1.0, std::ilogb(largest)) : largest;
  }

  Scale Of(float largest) const {
    // The quotient for f8e8m0fnu is a double, in which it is on the right side of every power of
    // two: 24 bits divided by 3 or 7 come no nearer to one than 2^-24. That for f8e4m3fn is f32's,
    // as other implementations can do it too.
    const double ratio = type_ == DType::kF8E8M0FNU
                             ? static_cast<double>(largest) / divisor_
                             : static_cast<double>(largest / static_cast<float>(divisor_));
    const uint32_t code = EncodeFloat(type_, ratio, mode_);
    return {code, DecodeFloat(type_, code)};
  }

 private:
  DType type_;
  ConvertMode mode_;
  double divisor_ = 1;
};

// 0 with the sign of `value`; that of a NaN is open, so it is taken to be positive.
float ZeroOf(float value) { return std::isnan(value) ? 0.0f : std::copysign(0.0f, value); }

}  // namespace

absl::StatusOr<uint64_t> BlockSize(uint64_t columns, uint64_t scale_columns,
                                   std::optional<uint64_t> explicit_block) {
  const auto error = [&](absl::string_view cause) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat("block scales: ", columns, " columns, ", scale_columns, " scales, ",
                              explicit_block ? absl::StrCat("block ", *explicit_block)
                                             : std::string("no block given"),
                              ": ", cause));
  };
  if (explicit_block) {
    if (*explicit_block == 0) return error("a block has at least one element");
    if (scale_columns < ScaleColumns(columns, *explicit_block)) {
      return error(absl::StrCat("needs ", ScaleColumns(columns, *explicit_block), " scales"));
    }
    return *explicit_block;
  }
  if (columns == 0 && scale_columns == 0) return 1;  // no blocks of any size
  if (scale_columns == 0 || columns == 0 || columns % scale_columns != 0) {
    return error("the columns are not a whole number of blocks");
  }
  return columns / scale_columns;
}

float NvFp4GlobalScale(float amax) {
  if (!std::isfinite(amax) || amax == 0) return 1;
  const auto largest = static_cast<float>(LargestOf(kNvFp4.element) * LargestOf(kNvFp4.scale));
  return std::max(std::fabs(amax) / largest, std::numeric_limits<float>::min());
}

void QuantizeBlocks(const BlockFormat& format, ScaleRounding rounding, const float* in,
                    uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
                    float global) {
  const ScaleRule rule(format, rounding);
  std::array<float, kChunk> quotients;
  uint64_t done = 0;  // elements in the tensor that were stored
  uint64_t held = 0;  // in `quotients`
  const auto store = [&] {
    Convert(DType::kF32, reinterpret_cast<const std::byte*>(quotients.data()), format.element,
            elements + BytesOf(format.element, done), held, kSaturating);
    done += held;
    held = 0;
  };
  for (uint64_t row = 0; row < rows; ++row, in += columns) {
    for (uint64_t begin = 0; begin < columns; begin += format.block) {
      const uint64_t count = std::min(format.block, columns - begin);
      const Scale scale = rule.Of(LargestMagnitude(in + begin, count, global));
      *scales++ = static_cast<std::byte>(scale.code);
      // NaN is said by the scale alone; below the smallest scale nothing is left.
      const bool none = std::isnan(scale.value) || scale.value == 0;
      for (uint64_t i = begin; i < begin + count; ++i) {
        quotients[held++] = none ? ZeroOf(in[i]) : in[i] / global / scale.value;
        if (held == kChunk) store();
      }
    }
  }
  store();
}

void DequantizeBlocks(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                      uint64_t scale_columns, uint64_t rows, uint64_t columns, float* out,
                      float global) {
  Convert(format.element, elements, DType::kF32, reinterpret_cast<std::byte*>(out), rows * columns);
  for (uint64_t row = 0; row < rows; ++row, scales += scale_columns) {
    for (uint64_t begin = 0; begin < columns; begin += format.block) {
      const uint64_t count = std::min(format.block, columns - begin);
      const float scale =
          DecodeFloat(format.scale, static_cast<uint32_t>(scales[begin / format.block]));
      for (uint64_t i = 0; i < count; ++i, ++out) *out = *out * scale * global;
    }
  }
}

}  // namespace ferry::compute
