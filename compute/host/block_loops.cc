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

#include "compute/host/view.h"
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
using F16 = hn::Rebind<hwy::float16_t, F32>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;
constexpr F32 f32;
constexpr U32 u32;
constexpr I32 i32;

// Of what is at most 2^31.
HWY_INLINE auto IsBelow(Words a, uint32_t b) {
  return hn::RebindMask(u32, hn::Lt(hn::BitCast(i32, a), hn::Set(i32, static_cast<int32_t>(b))));
}

// The ways of f32 and bf16 with memory: of a vector, and of one. `kExact`: there is nothing to
// round.
struct FloatMemory {
  using Code = uint32_t;
  static constexpr size_t kBytes = 4;
  static HWY_INLINE Floats Load(const std::byte* in) {
    return hn::LoadU(f32, reinterpret_cast<const float*>(in));
  }
  template <bool kExact>
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
  using Code = uint16_t;
  static constexpr size_t kBytes = 2;
  static HWY_INLINE Floats Load(const std::byte* in) {
    const auto codes = hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(in));
    return hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, codes)));
  }
  template <bool kExact>
  static HWY_INLINE void Store(Floats values, std::byte* out) {
    auto bits = hn::BitCast(u32, values);
    if constexpr (!kExact) {
      const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
      const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7FFF)));
      const auto nan = hn::RebindMask(u32, hn::IsNaN(values));
      bits = hn::IfThenElse(nan, hn::Set(u32, 0x7FFF0000), rounded);
    }
    hn::StoreU(hn::TruncateTo(U16(), hn::ShiftRight<16>(bits)), U16(),
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

// `run` of a block format's elements and of f32 or bf16.
template <typename Run>
void ForTypes(DType element, DType memory, Run run) {
  const auto with = [&]<typename Memory>(Memory) HWY_ATTR {
    if (element == DType::kF8E4M3FN) return run.template operator()<kE4M3Format, Memory>();
    if (element == DType::kF8E5M2) return run.template operator()<kE5M2Format, Memory>();
    run.template operator()<kE2M1Format, Memory>();
  };
  memory == DType::kF32 ? with(FloatMemory()) : with(HalfMemory());
}

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

// The same of what is finite, but times 2^(Format.bias - 15): f16 has all of their values, and a
// CPU has an instruction for those, which has no branch for subnormals.
template <FloatFormat Format>
HWY_INLINE Floats DecodeFinite(hn::Vec<U8> codes) {
  const U16 u16;
  constexpr int kShift = kF16Format.mantissa - Format.mantissa;
  constexpr uint16_t kMagnitude = static_cast<uint16_t>(((1 << (Format.bits - 1)) - 1) << kShift);
  constexpr uint16_t kSign = 0x8000;
  if constexpr (Format.bits == 8) {  // with the sign in all of the upper byte
    const hn::Rebind<int16_t, F32> i16;
    const auto wide = hn::PromoteTo(i16, hn::BitCast(hn::Rebind<int8_t, F32>(), codes));
    const auto bits = hn::BitCast(u16, hn::ShiftLeft<kShift>(wide));
    return hn::PromoteTo(f32, hn::BitCast(F16(), hn::And(bits, hn::Set(u16, kMagnitude | kSign))));
  }
  const auto wide = hn::PromoteTo(u16, codes);
  const auto magnitude = hn::And(hn::ShiftLeft<kShift>(wide), hn::Set(u16, kMagnitude));
  const auto sign = hn::And(hn::ShiftLeft<16 - Format.bits>(wide), hn::Set(u16, kSign));
  return hn::PromoteTo(f32, hn::BitCast(F16(), hn::Or(magnitude, sign)));
}

// As EncodeSaturated, of what is not NaN; in each lane's low byte, anything in the others.
template <FloatFormat Format>
HWY_INLINE Words Encode(Floats values) {
  constexpr int kShift = kF32Format.mantissa - Format.mantissa;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(kF32Format.bias - Format.bias + 1)
                                    << kF32Format.mantissa;
  constexpr uint32_t kExponents = kLeastNormal >> kShift;  // even, so that ties go to even codes
  const auto bits = hn::BitCast(u32, values);
  const auto magnitude = hn::Min(hn::Abs(values), hn::Set(f32, DecodeAs<Format>(Format.max)));
  const auto power = hn::And(hn::BitCast(i32, magnitude), hn::Set(i32, kF32Format.overflow));
  const auto scale = hn::BitCast(u32, hn::Max(power, hn::Set(i32, kLeastNormal)));
  // f32 rounds to Format's last bit beside a power of two that has it as its own last bit. The
  // sum's low byte is the significand then, with its leading one if there is it; and less what the
  // exponent is too large by.
  const auto beside = hn::Add(
      scale, hn::Set(u32, (uint32_t{kShift} << kF32Format.mantissa) + (-kExponents & 0xFF)));
  const auto sum = hn::BitCast(u32, hn::Add(magnitude, hn::BitCast(f32, beside)));
  const auto sign =
      hn::And(hn::ShiftRight<32 - Format.bits>(bits), hn::Set(u32, 1u << (Format.bits - 1)));
  return hn::Add(hn::Add(sum, hn::ShiftRight<kShift>(scale)), sign);
}

// Is there infinity or NaN among codes of a byte each?
template <FloatFormat Format>
HWY_INLINE bool AreFinite(const std::byte* codes, uint64_t count) {
  if constexpr (Format.max == Format.nan) return true;
  const hn::ScalableTag<uint8_t> u8;
  constexpr size_t kWidth = hn::MaxLanes(u8);
  auto most = hn::Zero(u8);
  uint64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto loaded = hn::LoadU(u8, reinterpret_cast<const uint8_t*>(codes + i));
    most = hn::Max(most, hn::And(loaded, hn::Set(u8, 0x7F)));
  }
  bool finite =
      hn::AllTrue(u8, hn::Eq(hn::Max(most, hn::Set(u8, Format.max)), hn::Set(u8, Format.max)));
  for (; i < count; ++i) finite = finite && (static_cast<uint8_t>(codes[i]) & 0x7F) <= Format.max;
  return finite;
}

// What codes stand for: times a scale, as DecodeFinite needs it if `finite`, and times `global`, if
// bf16 does not have them all without (`exact`).
template <FloatFormat Format, bool finite, bool exact>
struct Scaled {
  static constexpr bool kExact = exact;
  HWY_INLINE Floats Of(hn::Vec<U8> codes) const {
    Floats values;
    if constexpr (finite) {
      values = hn::Mul(DecodeFinite<Format>(codes), hn::Set(f32, scale));
    } else {
      values = hn::Mul(Decode<Format>(hn::PromoteTo(u32, codes)), hn::Set(f32, scale));
    }
    return exact ? values : hn::Mul(values, hn::Set(f32, global));
  }
  float scale;
  float global;
};

// Of codes with a byte each.
template <FloatFormat Format, typename Memory, typename Scaled>
HWY_INLINE void DecodeBlock(const std::byte* codes, uint64_t count, Scaled scaled, float scale,
                            float global, std::byte* out) {
  constexpr size_t kWidth = hn::MaxLanes(f32);
  uint64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto loaded = hn::LoadU(U8(), reinterpret_cast<const uint8_t*>(codes + i));
    Memory::template Store<Scaled::kExact>(scaled.Of(loaded), out + i * Memory::kBytes);
  }
  for (; i < count; ++i) {
    const float value = DecodeAs<Format>(static_cast<uint8_t>(codes[i]));
    Memory::StoreOne(value * scale * global, out + i * Memory::kBytes);
  }
}

template <FloatFormat Format, typename Memory>
HWY_INLINE void DequantizeBlock(const std::byte* codes, uint64_t count, bool finite, float scale,
                                float global, std::byte* out) {
  constexpr int kLift = kF16Format.bias - Format.bias;
  const float lifted = scale * static_cast<float>(1 << kLift);
  // The last bit of all products is one of bf16's (docs/numerics.md, "Dequantise").
  constexpr uint32_t kLeastExact = std::max(Format.bias + Format.mantissa - 7, 0);
  const auto least_exact = std::bit_cast<float>(kLeastExact << kF32Format.mantissa);
  const auto decode = [&](auto scaled) HWY_ATTR {
    DecodeBlock<Format, Memory>(codes, count, scaled, scale, global, out);
  };
  if (!finite || !std::isfinite(lifted)) {
    decode(Scaled<Format, false, false>{scale, global});
  } else if (global == 1 && std::fabs(scale) >= least_exact) {
    decode(Scaled<Format, true, true>{lifted, 1});
  } else {
    decode(Scaled<Format, true, false>{lifted, global});
  }
}

template <FloatFormat Format, typename Memory>
void DequantizeRows(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                    uint64_t scale_columns, uint64_t rows, uint64_t columns, std::byte* out,
                    float global) {
  const bool powers = format.scale == DType::kF8E8M0FNU;
  const bool finite = AreFinite<Format>(elements, Format.bits == 8 ? rows * columns : 0);
  std::array<std::byte, kChunk> unpacked;
  uint64_t first = 0;  // element
  for (uint64_t row = 0; row < rows; ++row, scales += scale_columns) {
    for (uint64_t begin = 0, block = 0; begin < columns; begin += format.block, ++block) {
      const uint32_t code = static_cast<uint8_t>(scales[block]);
      const float scale = powers ? DecodeAsE8M0(code) : DecodeAs<kE4M3Format>(code);
      for (uint64_t left = std::min(format.block, columns - begin); left > 0;) {
        const uint64_t count = Format.bits == 4 ? std::min(left, kChunk) : left;
        const std::byte* codes = elements + first;
        if constexpr (Format.bits == 4) {  // two a byte
          UnpackFrom(elements, first, count, unpacked.data());
          codes = unpacked.data();
        }
        DequantizeBlock<Format, Memory>(codes, count, finite, scale, global,
                                        out + first * Memory::kBytes);
        first += count;
        left -= count;
      }
    }
  }
}

void Dequantize(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                uint64_t scale_columns, uint64_t rows, uint64_t columns, DType to, std::byte* out,
                float global) {
  ForTypes(format.element, to, [&]<FloatFormat Format, typename Memory>() HWY_ATTR {
    DequantizeRows<Format, Memory>(format, elements, scales, scale_columns, rows, columns, out,
                                   global);
  });
}

// The largest magnitude of a block, each divided by `global`, as bits: those of NaN, if there is
// one in it, are above infinity's.
template <typename Memory>
HWY_INLINE uint32_t LargestMagnitude(const std::byte* in, uint64_t count, float global) {
  constexpr size_t kWidth = hn::MaxLanes(f32);
  uint32_t largest = 0;
  uint64_t i = 0;
  if (global == 1) {
    using Code = typename Memory::Code;
    constexpr int kBeside = 8 * (sizeof(float) - Memory::kBytes);  // bits that f32 has besides
    const hn::CappedTag<Code, 8> d;  // of 8 u16 there is an instruction for the largest
    constexpr size_t kCodes = hn::MaxLanes(d);
    const auto magnitudes = hn::Set(d, static_cast<Code>(~Code{0}) >> 1);
    auto most = hn::Zero(d);
    for (; i + kCodes <= count; i += kCodes) {
      const auto codes = hn::LoadU(d, reinterpret_cast<const Code*>(in + i * Memory::kBytes));
      most = hn::Max(most, hn::And(codes, magnitudes));
    }
    largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, most))) << kBeside;
  } else {
    const auto globals = hn::Set(f32, global);
    auto most = hn::Zero(u32);
    for (; i + kWidth <= count; i += kWidth) {
      const auto quotients = hn::Div(Memory::Load(in + i * Memory::kBytes), globals);
      most = hn::Max(most, hn::BitCast(u32, hn::Abs(quotients)));
    }
    largest = hn::GetLane(hn::MaxOfLanes(u32, most));
  }
  for (; i < count; ++i) {
    const float quotient = Memory::LoadOne(in + i * Memory::kBytes) / global;
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(quotient)));
  }
  return largest;
}

constexpr uint64_t kBlocks = 16;  // at a time, so that no step waits for that before it

// The codes of scales that are powers of two, as EncodeAsE8M0 of the largest magnitudes over what
// numerics/block.cc divides by, without a division: that is 1.5 or 1.75 times a power of two, or
// the power.
template <FloatFormat Format>
HWY_INLINE void PowerScales(const std::array<uint32_t, kBlocks>& largest, ScaleRounding rounding,
                            std::array<uint32_t, kBlocks>& codes) {
  constexpr uint32_t kOne = 1u << kF32Format.mantissa;
  constexpr auto kLargest = std::bit_cast<uint32_t>(DecodeAs<Format>(Format.max));
  constexpr uint32_t kPower = (kLargest >> kF32Format.mantissa) - kF32Format.bias;
  // What is added so that the exponent is the next one where the scale has to be.
  const uint32_t up = rounding == ScaleRounding::kCeil    ? kOne - 1 - kLargest % kOne
                      : rounding == ScaleRounding::kFloor ? 0
                                                          : kOne / 2;
  const auto infinite = hn::Set(i32, static_cast<int32_t>(kF32Format.overflow));
  const auto power = hn::Set(i32, kPower);
  for (uint64_t i = 0; i < kBlocks; i += hn::MaxLanes(f32)) {
    const auto bits = hn::BitCast(i32, hn::LoadU(u32, &largest[i]));
    auto exponent =
        hn::ShiftRight<kF32Format.mantissa>(hn::Add(bits, hn::Set(i32, static_cast<int32_t>(up))));
    if (rounding == ScaleRounding::kNearestHalfUp) {  // what is above the least scale is not it
      const auto least = hn::Set(i32, kPower * kOne);
      const auto above =
          hn::And(hn::Gt(bits, least), hn::Lt(bits, hn::Set(i32, (kPower + 1) * kOne)));
      exponent = hn::IfThenElse(above, hn::Set(i32, kPower + 1), exponent);
    }
    auto code = hn::Sub(hn::Max(exponent, power), power);
    code = hn::IfThenElse(hn::Eq(bits, infinite), hn::Set(i32, 254), code);
    code = hn::IfThenElse(hn::Gt(bits, infinite), hn::Set(i32, 255), code);
    hn::StoreU(hn::BitCast(u32, code), u32, &codes[i]);
  }
}

// What a block's elements become before they are encoded: x / global / scale.
struct Quotient {
  Quotient(float global, uint32_t code, bool powers)
      : global(global), scale(powers ? DecodeAsE8M0(code) : DecodeAs<kE4M3Format>(code)) {}
  // NaN is said by the scale alone; below the smallest scale nothing is left.
  bool IsNone() const { return scale != scale || scale == 0; }
  float Of(float x) const { return x / global / scale; }
  HWY_INLINE Floats Of(Floats x) const {
    return hn::Div(hn::Div(x, hn::Set(f32, global)), hn::Set(f32, scale));
  }

  float global;
  float scale;
};

// The same where the scale is a power of two and `global` is 1: times the inverse, of 2^-127 and of
// 2^127 too.
struct PowerQuotient {
  PowerQuotient(float, uint32_t code, bool)
      : none(code == 255), inverse(DecodeAsE8M0(254 - code)) {}
  bool IsNone() const { return none; }
  float Of(float x) const { return x * inverse; }
  HWY_INLINE Floats Of(Floats x) const { return hn::Mul(x, hn::Set(f32, inverse)); }

  bool none;
  float inverse;
};

// A block's elements with a byte each.
template <FloatFormat Format, typename Memory, typename Quotient>
HWY_INLINE void EncodeBlock(const std::byte* in, uint64_t count, const Quotient& quotient,
                            std::byte* codes) {
  constexpr size_t kWidth = hn::MaxLanes(f32);
  uint64_t i = 0;
  if (quotient.IsNone()) {
    for (; i < count; ++i) {
      const float value = Memory::LoadOne(in + i * Memory::kBytes);
      codes[i] = static_cast<std::byte>(
          value == value && std::signbit(value) ? 1 << (Format.bits - 1) : 0);
    }
    return;
  }
  for (; i + kWidth <= count; i += kWidth) {
    const auto values = quotient.Of(Memory::Load(in + i * Memory::kBytes));
    hn::StoreU(hn::TruncateTo(U8(), Encode<Format>(values)), U8(),
               reinterpret_cast<uint8_t*>(codes + i));
  }
  for (; i < count; ++i) {
    const float value = quotient.Of(Memory::LoadOne(in + i * Memory::kBytes));
    codes[i] = static_cast<std::byte>(EncodeSaturated<Format>(value));
  }
}

// A block's elements, from the element `first` on of all.
template <FloatFormat Format, typename Memory, typename Quotient>
HWY_INLINE void QuantizeBlock(const std::byte* in, uint64_t first, uint64_t left,
                              const Quotient& quotient, std::byte* elements) {
  if constexpr (Format.bits == 8) {
    return EncodeBlock<Format, Memory>(in, left, quotient, elements + first);
  }
  std::array<std::byte, kChunk> codes;
  while (left > 0) {
    const uint64_t count = std::min(left, kChunk);
    EncodeBlock<Format, Memory>(in, count, quotient, codes.data());
    PackTo(codes.data(), first, count, elements);
    in += count * Memory::kBytes;
    first += count;
    left -= count;
  }
  if (first % 2 != 0) elements[first / 2] &= std::byte{0xF};
}

template <FloatFormat Format, typename Memory, typename Quotient>
void QuantizeRows(const BlockFormat& format, ScaleRounding rounding, const std::byte* in,
                  uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
                  float global) {
  const bool powers = format.scale == DType::kF8E8M0FNU;
  const uint64_t blocks = ScaleColumns(columns, format.block);
  std::array<uint32_t, kBlocks> largest = {}, codes;
  uint64_t element = 0;
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t block = 0; block < blocks; block += kBlocks) {
      const uint64_t some = std::min<uint64_t>(kBlocks, blocks - block);
      const uint64_t end = std::min(element + some * format.block, (row + 1) * columns);
      for (uint64_t i = 0, at = element; i < some; ++i, at += format.block) {
        largest[i] = LargestMagnitude<Memory>(in + at * Memory::kBytes,
                                              std::min(format.block, end - at), global);
      }
      if (powers) {
        PowerScales<Format>(largest, rounding, codes);
      } else {
        for (uint64_t i = 0; i < some; ++i) {
          const float scale = std::bit_cast<float>(largest[i]) / DecodeAs<Format>(Format.max);
          codes[i] = EncodeAs<kE4M3Format>(scale, Overflow::kSaturate);
        }
      }
      for (uint64_t i = 0, at = element; i < some; ++i, at += format.block) {
        *scales++ = static_cast<std::byte>(codes[i]);
        QuantizeBlock<Format, Memory>(in + at * Memory::kBytes, at,
                                      std::min(format.block, end - at),
                                      Quotient(global, codes[i], powers), elements);
      }
      element = end;
    }
  }
}

void Quantize(const BlockFormat& format, ScaleRounding rounding, DType from, const std::byte* in,
              uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
              float global) {
  ForTypes(format.element, from, [&]<FloatFormat Format, typename Memory>() HWY_ATTR {
    const auto run = format.scale == DType::kF8E8M0FNU && global == 1
                         ? &QuantizeRows<Format, Memory, PowerQuotient>
                         : &QuantizeRows<Format, Memory, Quotient>;
    run(format, rounding, in, rows, columns, elements, scales, global);
  });
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
