// SPDX-License-Identifier: Apache-2.0
// This file includes itself once a target of Highway's dispatch.
#include "compute/host/block_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/host/block_loops.cc"
// Three levels of x86 are enough; vectors without a size have no u8 of a quarter here.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "compute/numerics/float_format.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::compute {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr uint64_t kChunk =
    512;  // elements of 4 bits at a time; even, so that it begins with a byte

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using U8 = hn::Rebind<uint8_t, F32>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;
constexpr F32 f32;
constexpr U32 u32;
constexpr I32 i32;

// Of what is at most 2^31.
HWY_INLINE auto IsBelow(Words a, uint32_t b) {
  return hn::RebindMask(u32, hn::Lt(hn::BitCast(i32, a), hn::Set(i32, static_cast<int32_t>(b))));
}

// The ways of f32 and bf16 with memory: of a vector, and of one.
struct FloatMemory {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE Floats Load(const std::byte* in) {
    return hn::LoadU(f32, reinterpret_cast<const float*>(in));
  }
  static HWY_INLINE void Store(Floats values, std::byte* out) {
    hn::StoreU(values, f32, reinterpret_cast<float*>(out));
  }
  static float LoadOne(const std::byte* in) {
    float value;
    std::memcpy(&value, in, sizeof(value));
    return value;
  }
  static void StoreOne(float value, std::byte* out) { std::memcpy(out, &value, sizeof(value)); }
};

struct HalfMemory {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE Floats Load(const std::byte* in) {
    const auto codes = hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(in));
    return hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, codes)));
  }
  static HWY_INLINE void Store(Floats values, std::byte* out) {
    const auto bits = hn::BitCast(u32, values);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7FFF)));
    const auto nan = hn::RebindMask(u32, hn::IsNaN(values));
    const auto codes = hn::ShiftRight<16>(hn::IfThenElse(nan, hn::Set(u32, 0x7FFF0000), rounded));
    hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(i32, codes)), U16(),
               reinterpret_cast<uint16_t*>(out));
  }
  static float LoadOne(const std::byte* in) {
    uint16_t code;
    std::memcpy(&code, in, sizeof(code));
    return DecodeAs<kBF16Format>(code);
  }
  static void StoreOne(float value, std::byte* out) {
    const auto code = static_cast<uint16_t>(EncodeAs<kBF16Format>(value, Overflow::kNanOrInf));
    std::memcpy(out, &code, sizeof(code));
  }
};

// As DecodeAs.
template <FloatFormat Format>
HWY_INLINE Floats Decode(Words codes) {
  constexpr int kShift = kF32Format.mantissa - Format.mantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(kF32Format.bias - Format.bias);
  constexpr uint32_t kSign = 1u << (Format.bits - 1);
  const auto magnitude = hn::And(codes, hn::Set(u32, kSign - 1));
  const auto shifted = hn::ShiftLeft<kShift>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(u32, kRebias << kF32Format.mantissa));
  const auto lowest = hn::Set(u32, (kRebias + 1) << kF32Format.mantissa);
  const auto subnormal = hn::BitCast(
      u32, hn::Sub(hn::BitCast(f32, hn::Or(shifted, lowest)), hn::BitCast(f32, lowest)));
  auto bits = hn::IfThenElse(IsBelow(magnitude, 1u << Format.mantissa), subnormal, normal);
  if constexpr (Format.overflow != Format.nan) {
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(u32, Format.overflow)),
                          hn::Set(u32, kF32Format.overflow), bits);
    bits =
        hn::IfThenElse(IsBelow(magnitude, Format.overflow + 1), bits, hn::Set(u32, kF32Format.nan));
  } else if constexpr (Format.max != Format.nan) {
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(u32, Format.nan)), hn::Set(u32, kF32Format.nan),
                          bits);
  }
  const auto sign = hn::ShiftLeft<32 - Format.bits>(hn::And(codes, hn::Set(u32, kSign)));
  return hn::BitCast(f32, hn::Or(bits, sign));
}

// As EncodeSaturated.
template <FloatFormat Format>
HWY_INLINE Words Encode(Floats values) {
  constexpr int kShift = kF32Format.mantissa - Format.mantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(kF32Format.bias - Format.bias);
  constexpr uint32_t kBeside = (kRebias + 1 + kShift) << kF32Format.mantissa;
  const auto bits = hn::BitCast(u32, values);
  const auto magnitude = hn::And(bits, hn::Set(u32, 0x7FFFFFFF));
  const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(u32, 1));
  const auto up = hn::Add(magnitude, hn::Add(odd, hn::Set(u32, (1u << (kShift - 1)) - 1)));
  const auto normal = hn::Sub(hn::ShiftRight<kShift>(up), hn::Set(u32, kRebias << Format.mantissa));
  const auto beside = hn::Set(u32, kBeside);
  const auto subnormal = hn::Sub(
      hn::BitCast(u32, hn::Add(hn::BitCast(f32, magnitude), hn::BitCast(f32, beside))), beside);
  const auto code =
      hn::IfThenElse(IsBelow(magnitude, (kRebias + 1) << kF32Format.mantissa), subnormal, normal);
  const auto limited = hn::Min(code, hn::Set(u32, Format.max));
  const auto sign = hn::ShiftLeft<Format.bits - 1>(hn::ShiftRight<31>(bits));
  return hn::IfThenElse(IsBelow(magnitude, kF32Format.overflow + 1), hn::Or(limited, sign),
                        hn::Set(u32, Format.nan));
}

// Of codes with a byte each.
template <FloatFormat Format, typename Memory>
HWY_INLINE void DequantizeBlock(const std::byte* codes, uint64_t count, float scale, float global,
                                std::byte* out) {
  constexpr size_t kWidth = hn::MaxLanes(f32);
  const auto scales = hn::Set(f32, scale);
  const auto globals = hn::Set(f32, global);
  uint64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto loaded = hn::LoadU(U8(), reinterpret_cast<const uint8_t*>(codes + i));
    const auto scaled = hn::Mul(Decode<Format>(hn::PromoteTo(u32, loaded)), scales);
    Memory::Store(hn::Mul(scaled, globals), out + i * Memory::kBytes);
  }
  for (; i < count; ++i) {
    const float value = DecodeAs<Format>(static_cast<uint8_t>(codes[i]));
    Memory::StoreOne(value * scale * global, out + i * Memory::kBytes);
  }
}

template <FloatFormat Format, typename Memory>
void DequantizeAs(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                  uint64_t scale_columns, uint64_t rows, uint64_t columns, std::byte* out,
                  float global) {
  const bool powers = format.scale == DType::kF8E8M0FNU;
  std::array<std::byte, kChunk> unpacked;
  uint64_t first = 0;  // element
  for (uint64_t row = 0; row < rows; ++row, scales += scale_columns) {
    for (uint64_t begin = 0; begin < columns; begin += format.block) {
      const uint32_t code = static_cast<uint8_t>(scales[begin / format.block]);
      const float scale = powers ? DecodeAsE8M0(code) : DecodeAs<kE4M3Format>(code);
      for (uint64_t left = std::min(format.block, columns - begin); left > 0;) {
        const uint64_t count = Format.bits == 4 ? std::min(left, kChunk) : left;
        const std::byte* codes = elements + first;
        if constexpr (Format.bits == 4) {  // two a byte
          for (uint64_t i = 0; i < count; ++i) {
            unpacked[i] = elements[(first + i) / 2] >> ((first + i) % 2 * 4) & std::byte{0xF};
          }
          codes = unpacked.data();
        }
        DequantizeBlock<Format, Memory>(codes, count, scale, global, out + first * Memory::kBytes);
        first += count;
        left -= count;
      }
    }
  }
}

template <typename Memory>
void DequantizeTo(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                  uint64_t scale_columns, uint64_t rows, uint64_t columns, std::byte* out,
                  float global) {
  const auto run = format.element == DType::kF8E4M3FN ? &DequantizeAs<kE4M3Format, Memory>
                   : format.element == DType::kF8E5M2 ? &DequantizeAs<kE5M2Format, Memory>
                                                      : &DequantizeAs<kE2M1Format, Memory>;
  run(format, elements, scales, scale_columns, rows, columns, out, global);
}

void Dequantize(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                uint64_t scale_columns, uint64_t rows, uint64_t columns, DType to, std::byte* out,
                float global) {
  const auto run = to == DType::kF32 ? &DequantizeTo<FloatMemory> : &DequantizeTo<HalfMemory>;
  run(format, elements, scales, scale_columns, rows, columns, out, global);
}

// The largest magnitude of a block, each divided by `global`; NaN if there is one in it, for its
// bits are above infinity's.
template <typename Memory>
HWY_INLINE float LargestMagnitude(const std::byte* in, uint64_t count, float global) {
  constexpr size_t kWidth = hn::MaxLanes(f32);
  const auto magnitudes = hn::Set(u32, 0x7FFFFFFF);
  auto most = hn::Zero(u32);
  uint64_t i = 0;
  if (global == 1) {
    for (; i + kWidth <= count; i += kWidth) {
      const auto bits = hn::BitCast(u32, Memory::Load(in + i * Memory::kBytes));
      most = hn::Max(most, hn::And(bits, magnitudes));
    }
  } else {
    const auto globals = hn::Set(f32, global);
    for (; i + kWidth <= count; i += kWidth) {
      const auto quotients = hn::Div(Memory::Load(in + i * Memory::kBytes), globals);
      most = hn::Max(most, hn::And(hn::BitCast(u32, quotients), magnitudes));
    }
  }
  uint32_t largest = hn::GetLane(hn::MaxOfLanes(u32, most));
  for (; i < count; ++i) {
    const float quotient = Memory::LoadOne(in + i * Memory::kBytes) / global;
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(quotient)));
  }
  return std::bit_cast<float>(largest);
}

// x / global / scale, or where `global` is 1, and the scale a power of two, x times its inverse,
// which is the same: those of 2^-127 and of 2^127 are numbers too.
struct Quotient {
  bool is_product = false;
  float inverse = 1;
  float global = 1;
  float scale = 1;

  float Of(float x) const { return is_product ? x * inverse : x / global / scale; }
};

// A block's elements with a byte each.
template <FloatFormat Format, typename Memory>
HWY_INLINE void EncodeBlock(const std::byte* in, uint64_t count, const Quotient& quotient,
                            std::byte* codes) {
  constexpr size_t kWidth = hn::MaxLanes(f32);
  uint64_t i = 0;
  const auto put = [&](Floats values) HWY_ATTR {
    hn::StoreU(hn::U8FromU32(Encode<Format>(values)), U8(), reinterpret_cast<uint8_t*>(codes + i));
  };
  if (quotient.is_product) {
    const auto inverse = hn::Set(f32, quotient.inverse);
    for (; i + kWidth <= count; i += kWidth) {
      put(hn::Mul(Memory::Load(in + i * Memory::kBytes), inverse));
    }
  } else {
    const auto global = hn::Set(f32, quotient.global);
    const auto scale = hn::Set(f32, quotient.scale);
    for (; i + kWidth <= count; i += kWidth) {
      put(hn::Div(hn::Div(Memory::Load(in + i * Memory::kBytes), global), scale));
    }
  }
  for (; i < count; ++i) {
    const float value = quotient.Of(Memory::LoadOne(in + i * Memory::kBytes));
    codes[i] = static_cast<std::byte>(EncodeSaturated<Format>(value));
  }
}

// What is made of a block, from the element `first` on.
template <FloatFormat Format, typename Memory>
HWY_INLINE void QuantizeBlock(const std::byte* in, uint64_t first, uint64_t left,
                              const Quotient& quotient, bool none, std::byte* elements) {
  std::array<std::byte, kChunk> codes;
  while (left > 0) {
    const uint64_t count = Format.bits == 4 ? std::min(left, kChunk) : left;
    std::byte* const to = Format.bits == 4 ? codes.data() : elements + first;
    if (none) {
      for (uint64_t i = 0; i < count; ++i) {
        const float value = Memory::LoadOne(in + i * Memory::kBytes);
        to[i] = static_cast<std::byte>(std::bit_cast<uint32_t>(value) >> 31 << (Format.bits - 1));
      }
    } else {
      EncodeBlock<Format, Memory>(in, count, quotient, to);
    }
    if constexpr (Format.bits == 4) {  // two a byte, of which another block may have had one
      for (uint64_t i = 0; i < count; ++i) {
        std::byte& both = elements[(first + i) / 2];
        both = (first + i) % 2 == 0 ? codes[i] : both | codes[i] << 4;
      }
    }
    in += count * Memory::kBytes;
    first += count;
    left -= count;
  }
}

template <FloatFormat Format, typename Memory>
void QuantizeAs(const BlockFormat& format, ScaleRounding rounding, const std::byte* in,
                uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
                float global) {
  constexpr size_t kBlocks = 16;  // at a time, so that no step waits for that before it
  const ConvertMode mode{Overflow::kSaturate, rounding};
  const bool powers = format.scale == DType::kF8E8M0FNU;
  const double largest = DecodeAs<Format>(Format.max);
  // As in numerics/block.cc.
  const double divisor =
      powers && rounding != ScaleRounding::kCeil ? std::ldexp(1.0, std::ilogb(largest)) : largest;
  const uint64_t blocks = ScaleColumns(columns, format.block);
  std::array<float, kBlocks> most;
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t first = 0; first < blocks; first += kBlocks) {
      const uint64_t some = std::min<uint64_t>(kBlocks, blocks - first);
      const auto for_each = [&](auto run) HWY_ATTR {
        for (uint64_t i = 0; i < some; ++i) {
          const uint64_t begin = (first + i) * format.block;
          run(i, row * columns + begin, std::min(format.block, columns - begin));
        }
      };
      for_each([&](uint64_t i, uint64_t begin, uint64_t count) HWY_ATTR {
        most[i] = LargestMagnitude<Memory>(in + begin * Memory::kBytes, count, global);
      });
      for (uint64_t i = 0; i < some; ++i) {
        const uint32_t code =
            powers ? EncodeAsE8M0(static_cast<double>(most[i]) / divisor, mode)
                   : EncodeAs<kE4M3Format>(most[i] / static_cast<float>(divisor), mode.overflow);
        scales[i] = static_cast<std::byte>(code);
      }
      for_each([&](uint64_t i, uint64_t begin, uint64_t count) HWY_ATTR {
        const auto code = static_cast<uint32_t>(scales[i]);
        const float scale = powers ? DecodeAsE8M0(code) : DecodeAs<kE4M3Format>(code);
        // NaN is said by the scale alone; below the smallest scale nothing is left.
        const bool none = scale != scale || scale == 0;
        const Quotient quotient{powers && global == 1,
                                powers && !none ? DecodeAsE8M0(254 - code) : 1, global, scale};
        QuantizeBlock<Format, Memory>(in + begin * Memory::kBytes, begin, count, quotient, none,
                                      elements);
      });
      scales += some;
    }
  }
}

template <typename Memory>
void QuantizeFrom(const BlockFormat& format, ScaleRounding rounding, const std::byte* in,
                  uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
                  float global) {
  const auto run = format.element == DType::kF8E4M3FN ? &QuantizeAs<kE4M3Format, Memory>
                   : format.element == DType::kF8E5M2 ? &QuantizeAs<kE5M2Format, Memory>
                                                      : &QuantizeAs<kE2M1Format, Memory>;
  run(format, rounding, in, rows, columns, elements, scales, global);
}

void Quantize(const BlockFormat& format, ScaleRounding rounding, DType from, const std::byte* in,
              uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
              float global) {
  const auto run = from == DType::kF32 ? &QuantizeFrom<FloatMemory> : &QuantizeFrom<HalfMemory>;
  run(format, rounding, in, rows, columns, elements, scales, global);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::compute {

HWY_EXPORT(Quantize);
HWY_EXPORT(Dequantize);

void QuantizeBlocksFast(const BlockFormat& format, ScaleRounding rounding, DType from,
                        const std::byte* in, uint64_t rows, uint64_t columns, std::byte* elements,
                        std::byte* scales, float global) {
  const auto run = HWY_DYNAMIC_DISPATCH(Quantize);
  run(format, rounding, from, in, rows, columns, elements, scales, global);
}

void DequantizeBlocksFast(const BlockFormat& format, const std::byte* elements,
                          const std::byte* scales, uint64_t scale_columns, uint64_t rows,
                          uint64_t columns, DType to, std::byte* out, float global) {
  const auto run = HWY_DYNAMIC_DISPATCH(Dequantize);
  run(format, elements, scales, scale_columns, rows, columns, to, out, global);
}

}  // namespace ferry::compute
#endif
