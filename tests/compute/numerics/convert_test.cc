// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/compute/numerics/elements.h"
#include "tests/compute/numerics/oracle.h"

namespace ferry::compute::testing {
namespace {

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (size_t i = 0; i < kDTypes; ++i) types.push_back(static_cast<DType>(i));
  return types;
}

TEST(ConvertTest, EveryCodeDecodesToItsValue) {
  for (const Definition& definition : Definitions()) {
    const NearestOracle oracle(definition);
    for (uint32_t code = 0; code < 1u << definition.bits; ++code) {
      const uint32_t magnitude = code & ((1u << (definition.bits - 1)) - 1);
      const float value = DecodeFloat(definition.type, code);
      if (magnitude <= definition.max) {
        ASSERT_EQ(std::fabs(value), oracle.values()[magnitude]) << code;
        ASSERT_EQ(std::signbit(value), code != magnitude) << code;
      } else if (magnitude == definition.overflow && magnitude != definition.nan) {
        ASSERT_EQ(value, code == magnitude ? INFINITY : -INFINITY) << code;
      } else {
        ASSERT_TRUE(std::isnan(value)) << code;
      }
    }
  }
}

// Through every wider type that holds all values of the narrow one.
TEST(ConvertTest, EveryCodeSurvivesTheWayThroughAWiderType) {
  const auto expect_same = [](DType type, int bits, uint32_t nan, std::vector<DType> wider) {
    std::vector<uint64_t> codes;
    for (uint64_t code = 0; code < uint64_t{1} << bits; ++code) codes.push_back(code);
    const Bytes all = FromBits(type, codes);
    for (const DType wide : wider) {
      for (const ConvertMode mode : Modes()) {
        const Bytes there = Converted(type, all, wide, codes.size(), mode);
        const Bytes back = Converted(wide, there, type, codes.size(), mode);
        for (const uint64_t code : codes) {
          const bool is_nan = std::isnan(DecodeFloat(type, static_cast<uint32_t>(code)));
          // An infinity does not survive saturation.
          if (std::isinf(DecodeFloat(type, static_cast<uint32_t>(code))) &&
              mode.overflow == Overflow::kSaturate) {
            continue;
          }
          ASSERT_EQ(BitsAt(type, back, code), is_nan ? nan : code)
              << NameOf(type) << " through " << NameOf(wide);
        }
      }
    }
  };
  constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kF16 = DType::kF16, kBF16 = DType::kBF16;
  expect_same(kF16, 16, 0x7FFF, {kF32, kF64});
  expect_same(kBF16, 16, 0x7FFF, {kF32, kF64});
  expect_same(DType::kF8E4M3FN, 8, 0x7F, {kF32, kF64, kF16, kBF16});
  expect_same(DType::kF8E5M2, 8, 0x7F, {kF32, kF64, kF16, kBF16});
  expect_same(DType::kF4E2M1FN, 4, 0x7,
              {kF32, kF64, kF16, kBF16, DType::kF8E4M3FN, DType::kF8E5M2});
  expect_same(DType::kF8E8M0FNU, 8, 0xFF, {kF32, kF64, kBF16});
}

// Any bytes, any length, any mode: the whole is its elements one by one, and a way through f64,
// where that is exact, changes nothing.
TEST(ConvertTest, EveryPairConvertsEveryLengthElementByElement) {
  std::mt19937_64 random(30);
  for (const DType from : AllTypes()) {
    for (const DType to : AllTypes()) {
      SCOPED_TRACE(std::string(NameOf(from)) + " to " + std::string(NameOf(to)));
      for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3},
                                   uint64_t{255}, uint64_t{256}, uint64_t{257}, random() % 1000}) {
        const ConvertMode mode = Modes()[random() % Modes().size()];
        Bytes in(BytesOf(from, count));
        for (std::byte& byte : in) byte = static_cast<std::byte>(random());
        const Bytes out = Converted(from, in, to, count, mode);
        const bool exact = InfoOf(from).floating || InfoOf(from).bits < 64;
        const Bytes doubles = Converted(from, in, DType::kF64, count, mode);
        const Bytes through = Converted(DType::kF64, doubles, to, count, mode);
        for (uint64_t i = 0; i < count; ++i) {
          const uint64_t got = BitsAt(to, out, i);
          ASSERT_EQ(got, ConvertBits(from, BitsAt(from, in, i), to, mode));
          const bool rounds =
              InfoOf(to).floating && from != to && to != DType::kF64 && to != DType::kF32;
          if (exact && rounds) {
            ASSERT_EQ(got, BitsAt(to, through, i));
          }
        }
        if (to == DType::kF4E2M1FN && count % 2 == 1) {
          EXPECT_EQ(out.back() >> 4, std::byte{0});
        }
      }
    }
  }
}

TEST(ConvertTest, FourBitValuesAreTwoAByteTheFirstInTheLowHalf) {
  const Bytes in = BytesOfValues<float>({0.5f, 6.0f, -1.0f});
  const Bytes out = Converted(DType::kF32, in, DType::kF4E2M1FN, 3);
  EXPECT_EQ(out, (Bytes{std::byte{0x71}, std::byte{0x0A}}));
  EXPECT_EQ(Converted(DType::kF4E2M1FN, out, DType::kF32, 3), in);
}

TEST(ConvertTest, TheSameTypeKeepsItsBits) {
  for (const uint64_t bits : {0x7F800001u, 0xFFC12345u, 0x00000001u}) {
    EXPECT_EQ(ConvertBits(DType::kF32, bits, DType::kF32), bits);
  }
  EXPECT_EQ(ConvertBits(DType::kF8E5M2, 0xFD, DType::kF8E5M2, {Overflow::kSaturate}), 0xFDu);
  const Bytes spare = Converted(DType::kF4E2M1FN, {std::byte{0xF3}}, DType::kF4E2M1FN, 1);
  EXPECT_EQ(spare, Bytes{std::byte{0x03}});
}

TEST(ConvertTest, SaturationIsForF32AndF16AndBF16Too) {
  const ConvertMode saturate{Overflow::kSaturate};
  EXPECT_EQ(ConvertValue(DType::kF64, 1e300, DType::kF32), 0x7F800000u);
  EXPECT_EQ(ConvertValue(DType::kF64, -1e300, DType::kF32, saturate), 0xFF7FFFFFu);
  EXPECT_EQ(ConvertValue(DType::kF32, INFINITY, DType::kF16, saturate), 0x7BFFu);
  EXPECT_EQ(ConvertValue(DType::kF32, 65520.0f, DType::kF16), 0x7C00u);
  EXPECT_EQ(ConvertValue(DType::kF32, -FLT_MAX, DType::kBF16, saturate), 0xFF7Fu);
  EXPECT_EQ(ConvertBits(DType::kF16, 0xFC00, DType::kF32, saturate), 0xFF800000u);
  EXPECT_EQ(ConvertBits(DType::kF16, 0xFC00, DType::kBF16, saturate), 0xFF7Fu);
  EXPECT_EQ(ConvertValue<int32_t>(DType::kI32, 70000, DType::kF16, saturate), 0x7BFFu);
  EXPECT_EQ(ConvertValue<int32_t>(DType::kI32, -70000, DType::kF16), 0xFC00u);
}

TEST(ConvertTest, FloatsBecomeIntegersTowardZeroAndSaturate) {
  const auto as = [](double value, DType to) {
    return static_cast<int64_t>(ConvertValue(DType::kF64, value, to));
  };
  EXPECT_EQ(as(2.9, DType::kI64), 2);
  EXPECT_EQ(as(-2.9, DType::kI64), -2);
  EXPECT_EQ(as(1e19, DType::kI64), INT64_MAX);
  EXPECT_EQ(as(-1e19, DType::kI64), INT64_MIN);
  EXPECT_EQ(as(0x1p63, DType::kI64), INT64_MAX);
  EXPECT_EQ(as(0x1.fffffffffffffp62, DType::kI64), INT64_MAX - 1023);
  EXPECT_EQ(as(NAN, DType::kI64), 0);
  EXPECT_EQ(as(INFINITY, DType::kI32), INT32_MAX);
  EXPECT_EQ(static_cast<int32_t>(as(-INFINITY, DType::kI32)), INT32_MIN);
  EXPECT_EQ(as(127.9, DType::kI8), 127);
  EXPECT_EQ(as(128, DType::kI8), 127);
  EXPECT_EQ(static_cast<int8_t>(as(-128.9, DType::kI8)), -128);
  EXPECT_EQ(as(40000, DType::kI16), INT16_MAX);
  EXPECT_EQ(as(-0.9, DType::kU8), 0);
  EXPECT_EQ(as(-5, DType::kU32), 0);
  EXPECT_EQ(as(255.9, DType::kU8), 255);
  EXPECT_EQ(as(1e9, DType::kU16), 65535);
  EXPECT_EQ(as(1e10, DType::kU32), int64_t{UINT32_MAX});
  EXPECT_EQ(ConvertValue(DType::kF64, 1e30, DType::kU64), UINT64_MAX);
  EXPECT_EQ(ConvertValue(DType::kF64, 0x1p63, DType::kU64), uint64_t{1} << 63);
  EXPECT_EQ(ConvertValue(DType::kF32, NAN, DType::kU64), 0u);
  EXPECT_EQ(ConvertValue(DType::kF32, -3.5f, DType::kI8), 0xFDu);
  EXPECT_EQ(ConvertBits(DType::kF8E4M3FN, 0x7E, DType::kI16), 448u);
  EXPECT_EQ(ConvertBits(DType::kF8E8M0FNU, 0xFE, DType::kU64), UINT64_MAX);
}

TEST(ConvertTest, IntegersWrap) {
  EXPECT_EQ(ConvertValue<int64_t>(DType::kI64, -1, DType::kU32), UINT32_MAX);
  EXPECT_EQ(ConvertValue<int64_t>(DType::kI64, 0x1234567890, DType::kU16), 0x7890u);
  EXPECT_EQ(ConvertValue<int8_t>(DType::kI8, -2, DType::kI64), static_cast<uint64_t>(-2));
  EXPECT_EQ(ConvertValue<int8_t>(DType::kI8, -2, DType::kU64), static_cast<uint64_t>(-2));
  EXPECT_EQ(ConvertValue<uint8_t>(DType::kU8, 200, DType::kI8), 200u);
  EXPECT_EQ(ConvertValue<uint8_t>(DType::kU8, 200, DType::kI32), 200u);
}

TEST(ConvertTest, BoolIsWhetherAValueIsNotZero) {
  EXPECT_EQ(ConvertValue(DType::kF32, -0.0f, DType::kBool), 0u);
  EXPECT_EQ(ConvertValue(DType::kF32, NAN, DType::kBool), 1u);
  EXPECT_EQ(ConvertValue(DType::kF64, 0x1p-1074, DType::kBool), 1u);
  EXPECT_EQ(ConvertBits(DType::kF8E8M0FNU, 0, DType::kBool), 1u);
  EXPECT_EQ(ConvertValue<uint64_t>(DType::kU64, uint64_t{1} << 63, DType::kBool), 1u);
  EXPECT_EQ(ConvertBits(DType::kBool, 1, DType::kF16), 0x3C00u);
  EXPECT_EQ(ConvertBits(DType::kBool, 0x80, DType::kI64), 1u);
  EXPECT_EQ(ConvertBits(DType::kBool, 0x80, DType::kBool), 1u);
}

}  // namespace
}  // namespace ferry::compute::testing
