// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "compute/numerics/float_format.h"

namespace ferry::compute {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are little-endian in memory");

// Every conversion is a load into one of three types that hold the source exactly (float, double,
// or the bits of a 64-bit integer) and a store out of it, a chunk at a time. Even: a chunk begins
// with a byte.
constexpr uint64_t kChunk = 256;

template <typename T>
T Read(const std::byte* in, uint64_t index) {
  T value;
  std::memcpy(&value, in + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Write(std::byte* out, uint64_t index, T value) {
  std::memcpy(out + index * sizeof(T), &value, sizeof(T));
}

bool FitsFloat(DType type) { return InfoOf(type).floating && type != DType::kF64; }

template <typename Code, float (*decode)(uint32_t)>
void LoadCodes(const std::byte* in, uint64_t count, float* out) {
  for (uint64_t i = 0; i < count; ++i) out[i] = decode(Read<Code>(in, i));
}

void LoadFloats(DType from, const std::byte* in, uint64_t count, float* out) {
  switch (from) {
    case DType::kF32:
      std::memcpy(out, in, count * sizeof(float));
      return;
    case DType::kF16:
      return LoadCodes<uint16_t, DecodeAs<kF16Format>>(in, count, out);
    case DType::kBF16:
      return LoadCodes<uint16_t, DecodeAs<kBF16Format>>(in, count, out);
    case DType::kF8E4M3FN:
      return LoadCodes<uint8_t, DecodeAs<kE4M3Format>>(in, count, out);
    case DType::kF8E5M2:
      return LoadCodes<uint8_t, DecodeAs<kE5M2Format>>(in, count, out);
    case DType::kF8E8M0FNU:
      return LoadCodes<uint8_t, DecodeAsE8M0>(in, count, out);
    case DType::kF4E2M1FN:
      for (uint64_t i = 0; i < count; ++i) {
        out[i] = DecodeAs<kE2M1Format>(Read<uint8_t>(in, i / 2) >> (i % 2 * 4) & 0xF);
      }
      return;
    default:
      return;  // FitsFloat says no
  }
}

// Sign-extended where the type has a sign.
template <typename T>
void LoadIntegersOf(const std::byte* in, uint64_t count, uint64_t* out) {
  for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<uint64_t>(Read<T>(in, i));
}

void LoadIntegers(DType from, const std::byte* in, uint64_t count, uint64_t* out) {
  switch (from) {
    case DType::kI64:
    case DType::kU64:
      return LoadIntegersOf<uint64_t>(in, count, out);
    case DType::kI32:
      return LoadIntegersOf<int32_t>(in, count, out);
    case DType::kI16:
      return LoadIntegersOf<int16_t>(in, count, out);
    case DType::kI8:
      return LoadIntegersOf<int8_t>(in, count, out);
    case DType::kU32:
      return LoadIntegersOf<uint32_t>(in, count, out);
    case DType::kU16:
      return LoadIntegersOf<uint16_t>(in, count, out);
    case DType::kU8:
      return LoadIntegersOf<uint8_t>(in, count, out);
    case DType::kBool:
      for (uint64_t i = 0; i < count; ++i) out[i] = Read<uint8_t>(in, i) != 0;
      return;
    default:
      return;  // floating
  }
}

// An integer as a double from which one further rounding gives what rounding the integer itself
// would: one that has more bits than a double keeps its high ones, and its last bit says whether
// there was anything below (rounding to odd). 42 bits remain, far more than two above f32's 24.
double NearlyDouble(uint64_t bits, bool is_signed) {
  const bool negative = is_signed && static_cast<int64_t>(bits) < 0;
  uint64_t magnitude = negative ? -bits : bits;
  if (magnitude >> 53 != 0) {
    constexpr uint64_t kBelow = 0x7FF;
    magnitude = (magnitude & ~kBelow) | ((magnitude & kBelow) != 0 ? kBelow + 1 : 0);
  }
  const auto value = static_cast<double>(magnitude);
  return negative ? -value : value;
}

void LoadDoubles(DType from, bool to_double, const std::byte* in, uint64_t count, double* out) {
  if (from == DType::kF64) {
    std::memcpy(out, in, count * sizeof(double));
  } else if (FitsFloat(from)) {
    std::array<float, kChunk> floats;
    LoadFloats(from, in, count, floats.data());
    for (uint64_t i = 0; i < count; ++i) out[i] = floats[i];
  } else {
    std::array<uint64_t, kChunk> integers;
    LoadIntegers(from, in, count, integers.data());
    const bool is_signed = InfoOf(from).is_signed;
    for (uint64_t i = 0; i < count; ++i) {
      if (!to_double) {
        out[i] = NearlyDouble(integers[i], is_signed);
      } else if (is_signed) {
        out[i] = static_cast<double>(static_cast<int64_t>(integers[i]));
      } else {
        out[i] = static_cast<double>(integers[i]);
      }
    }
  }
}

template <typename Code, FloatFormat Format, typename Float>
void StoreCodes(const Float* in, uint64_t count, std::byte* out, Overflow overflow) {
  if constexpr (std::is_same_v<Float, float> && sizeof(Code) == 1) {
    if (overflow == Overflow::kSaturate) {
      for (uint64_t i = 0; i < count; ++i) {
        Write(out, i, static_cast<Code>(EncodeSaturated<Format>(in[i])));
      }
      return;
    }
  }
  for (uint64_t i = 0; i < count; ++i) {
    Write(out, i, static_cast<Code>(EncodeAs<Format>(in[i], overflow)));
  }
}

// To a floating type narrower than Float.
template <typename Float>
void StoreFloats(const Float* in, uint64_t count, DType to, std::byte* out, ConvertMode mode) {
  switch (to) {
    case DType::kF32:
      if constexpr (std::is_same_v<Float, double>) {
        StoreCodes<uint32_t, kF32Format>(in, count, out, mode.overflow);
      } else {
        std::memcpy(out, in, count * sizeof(float));
      }
      return;
    case DType::kF16:
      return StoreCodes<uint16_t, kF16Format>(in, count, out, mode.overflow);
    case DType::kBF16:
      return StoreCodes<uint16_t, kBF16Format>(in, count, out, mode.overflow);
    case DType::kF8E4M3FN:
      return StoreCodes<uint8_t, kE4M3Format>(in, count, out, mode.overflow);
    case DType::kF8E5M2:
      return StoreCodes<uint8_t, kE5M2Format>(in, count, out, mode.overflow);
    case DType::kF8E8M0FNU:
      for (uint64_t i = 0; i < count; ++i) {
        Write(out, i, static_cast<uint8_t>(EncodeAsE8M0(in[i], mode)));
      }
      return;
    case DType::kF4E2M1FN:
      for (uint64_t i = 0; i < count; i += 2) {
        const uint32_t low = EncodeAs<kE2M1Format>(in[i], mode.overflow);
        const uint32_t high = i + 1 < count ? EncodeAs<kE2M1Format>(in[i + 1], mode.overflow) : 0;
        Write(out, i / 2, static_cast<uint8_t>(low | high << 4));
      }
      return;
    default:
      return;  // FitsFloat says no
  }
}

// Modulo 2^bits.
template <typename T>
void StoreIntegersOf(const uint64_t* in, uint64_t count, std::byte* out) {
  for (uint64_t i = 0; i < count; ++i) Write(out, i, static_cast<T>(in[i]));
}

void StoreIntegers(const uint64_t* in, uint64_t count, DType to, std::byte* out) {
  if (to == DType::kBool) {
    for (uint64_t i = 0; i < count; ++i) Write(out, i, static_cast<uint8_t>(in[i] != 0));
    return;
  }
  switch (InfoOf(to).bits) {
    case 64:
      return StoreIntegersOf<uint64_t>(in, count, out);
    case 32:
      return StoreIntegersOf<uint32_t>(in, count, out);
    case 16:
      return StoreIntegersOf<uint16_t>(in, count, out);
    default:
      return StoreIntegersOf<uint8_t>(in, count, out);
  }
}

// Toward zero, to the nearest end of the range if beyond it, NaN to 0.
template <typename T>
T Truncate(double value) {
  // 2^digits: the first value above the range; exact, which the largest one itself need not be.
  constexpr double kEnd =
      2.0 * static_cast<double>(uint64_t{1} << (std::numeric_limits<T>::digits - 1));
  if (value >= kEnd) return std::numeric_limits<T>::max();
  constexpr double kBegin = std::is_signed_v<T> ? -kEnd : 0;
  if (value <= kBegin) return std::numeric_limits<T>::min();
  return std::isnan(value) ? T{0} : static_cast<T>(value);
}

template <typename T>
void StoreTruncated(const double* in, uint64_t count, std::byte* out) {
  for (uint64_t i = 0; i < count; ++i) Write(out, i, Truncate<T>(in[i]));
}

void StoreDoubles(const double* in, uint64_t count, DType to, std::byte* out, ConvertMode mode) {
  switch (to) {
    case DType::kF64:
      std::memcpy(out, in, count * sizeof(double));
      return;
    case DType::kI64:
      return StoreTruncated<int64_t>(in, count, out);
    case DType::kI32:
      return StoreTruncated<int32_t>(in, count, out);
    case DType::kI16:
      return StoreTruncated<int16_t>(in, count, out);
    case DType::kI8:
      return StoreTruncated<int8_t>(in, count, out);
    case DType::kU64:
      return StoreTruncated<uint64_t>(in, count, out);
    case DType::kU32:
      return StoreTruncated<uint32_t>(in, count, out);
    case DType::kU16:
      return StoreTruncated<uint16_t>(in, count, out);
    case DType::kU8:
      return StoreTruncated<uint8_t>(in, count, out);
    case DType::kBool:
      for (uint64_t i = 0; i < count; ++i) Write(out, i, static_cast<uint8_t>(in[i] != 0));
      return;
    default:
      return StoreFloats(in, count, to, out, mode);
  }
}

void ConvertChunk(DType from, const std::byte* in, DType to, std::byte* out, uint64_t count,
                  ConvertMode mode) {
  if (!InfoOf(from).floating && !InfoOf(to).floating) {
    std::array<uint64_t, kChunk> values;
    LoadIntegers(from, in, count, values.data());
    StoreIntegers(values.data(), count, to, out);
  } else if (FitsFloat(from) && FitsFloat(to)) {
    std::array<float, kChunk> values;
    LoadFloats(from, in, count, values.data());
    StoreFloats(values.data(), count, to, out, mode);
  } else {
    std::array<double, kChunk> values;
    LoadDoubles(from, to == DType::kF64, in, count, values.data());
    StoreDoubles(values.data(), count, to, out, mode);
  }
}

}  // namespace

void Convert(DType from, const std::byte* in, DType to, std::byte* out, uint64_t count,
             ConvertMode mode) {
  if (count == 0) return;
  if (from == to && from != DType::kBool) {  // which may be any byte before, and is 0 or 1 after
    std::memcpy(out, in, BytesOf(to, count));
    if (to == DType::kF4E2M1FN && count % 2 != 0) out[count / 2] &= std::byte{0xF};
    return;
  }
  for (uint64_t done = 0; done < count; done += kChunk) {
    ConvertChunk(from, in + BytesOf(from, done), to, out + BytesOf(to, done),
                 std::min(kChunk, count - done), mode);
  }
}

float DecodeFloat(DType type, uint32_t code) {
  std::array<std::byte, sizeof code> bytes;
  std::memcpy(bytes.data(), &code, sizeof code);
  float value = 0;
  LoadFloats(type, bytes.data(), 1, &value);
  return value;
}

uint32_t EncodeFloat(DType type, double value, ConvertMode mode) {
  std::array<std::byte, sizeof(uint32_t)> bytes = {};
  StoreFloats(&value, 1, type, bytes.data(), mode);
  uint32_t code;
  std::memcpy(&code, bytes.data(), sizeof code);
  return code;
}

}  // namespace ferry::compute
