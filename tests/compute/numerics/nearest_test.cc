// SPDX-License-Identifier: Apache-2.0
// Rounding against the oracle, which searches: values, midpoints and their neighbours, and random
// ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/compute/numerics/elements.h"
#include "tests/compute/numerics/oracle.h"

namespace ferry::compute::testing {
namespace {

constexpr int kRandom = 20'000;

// `value` and the next two of Float to each side, with both signs.
template <typename Float>
void AddAround(long double value, std::vector<Float>& values) {
  const auto center = static_cast<Float>(value);
  Float down = center, up = center;
  for (int i = 0; i < 3; ++i) {
    for (const Float near : {down, up}) {
      values.push_back(near);
      values.push_back(-near);
    }
    down = std::nextafter(down, -std::numeric_limits<Float>::infinity());
    up = std::nextafter(up, std::numeric_limits<Float>::infinity());
  }
}

template <typename Float>
std::vector<Float> Critical(const NearestOracle& oracle) {
  std::vector<Float> values;
  for (uint32_t code = 0; code + 1 < oracle.values().size(); ++code) {
    AddAround<Float>(oracle.values()[code], values);
    AddAround<Float>(oracle.Midpoint(code), values);
  }
  using Limits = std::numeric_limits<Float>;
  for (const Float value : {Limits::denorm_min(), Limits::min(), Limits::max(), Limits::infinity(),
                            Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    values.push_back(value);
    values.push_back(-value);
  }
  return values;
}

// Any bits, and values whose exponents are the type's own.
template <typename Float, typename Bits>
std::vector<Float> Random(const NearestOracle& oracle) {
  std::mt19937_64 random(20);
  std::uniform_real_distribution<double> exponent(
      std::log2(static_cast<double>(oracle.values()[1])) - 3,
      std::log2(static_cast<double>(oracle.values().back())) + 1);
  std::vector<Float> values;
  for (int i = 0; i < kRandom; ++i) {
    values.push_back(std::bit_cast<Float>(static_cast<Bits>(random())));
    const double value = std::exp2(exponent(random));
    values.push_back(static_cast<Float>(random() % 2 == 0 ? value : -value));
  }
  return values;
}

template <typename Value>
void ExpectNearest(DType from, const std::vector<Value>& values, const Definition& definition,
                   const NearestOracle& oracle) {
  const Bytes bytes = BytesOfValues(values);
  for (const Overflow overflow : {Overflow::kNanOrInf, Overflow::kSaturate}) {
    const Bytes out = Converted(from, bytes, definition.type, values.size(), {overflow});
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t expected = oracle.Encode(static_cast<long double>(values[i]), overflow);
      if (BitsAt(definition.type, out, i) == expected) continue;  // ASSERT_EQ takes far longer
      FAIL() << NameOf(from) << " to " << NameOf(definition.type) << ": " << values[i] << " is "
             << BitsAt(definition.type, out, i) << ", should be " << expected;
    }
  }
}

TEST(NearestTest, F32AndF64BecomeTheNearestOfEachNarrowType) {
  for (const Definition& definition : Definitions()) {
    const NearestOracle oracle(definition);
    ExpectNearest(DType::kF32, Critical<float>(oracle), definition, oracle);
    ExpectNearest(DType::kF32, Random<float, uint32_t>(oracle), definition, oracle);
    ExpectNearest(DType::kF64, Critical<double>(oracle), definition, oracle);
    ExpectNearest(DType::kF64, Random<double, uint64_t>(oracle), definition, oracle);
  }
}

TEST(NearestTest, LongIntegersBecomeTheNearestThoughNoDoubleHoldsThem) {
  std::mt19937_64 random(21);
  for (const Definition& definition : Definitions()) {
    const NearestOracle oracle(definition);
    std::vector<int64_t> with_sign = {0, 1, -1, INT64_MAX, INT64_MIN};
    std::vector<uint64_t> without = {0, 1, UINT64_MAX};
    for (uint32_t code = 0; code + 1 < oracle.values().size(); ++code) {
      const long double midpoint = oracle.Midpoint(code);
      if (midpoint < 4 || midpoint > 0x1p62L) continue;
      for (int step = -2; step <= 2; ++step) {
        const auto value = static_cast<int64_t>(midpoint) + step;
        with_sign.push_back(value);
        with_sign.push_back(-value);
        without.push_back(static_cast<uint64_t>(value) * 2);
        without.push_back(static_cast<uint64_t>(value) * 2 + 1);
      }
    }
    for (int i = 0; i < kRandom; ++i) {
      without.push_back(random() >> random() % 64);
      with_sign.push_back(static_cast<int64_t>(random()) >> random() % 64);
    }
    ExpectNearest(DType::kI64, with_sign, definition, oracle);
    ExpectNearest(DType::kU64, without, definition, oracle);
  }
}

TEST(NearestTest, F64AndLongIntegersBecomeTheF32ThatTheProcessorMakes) {
  std::mt19937_64 random(22);
  std::vector<double> values = {0x1.fffffefffffffp127,  0x1.ffffffp127, 0x1p-150,
                                0x1.0000000000001p-150, 0x1.8p-149,     -0.0};
  std::vector<int64_t> integers = {INT64_MAX, INT64_MIN, (int64_t{1} << 62) + 1};
  for (int i = 0; i < kRandom; ++i) {
    values.push_back(std::bit_cast<double>(random()));
    // Within f32's range, half of them between two f32s or next to it.
    double value =
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 290) - 210);
    if (i % 2 == 0) {
      const auto near = static_cast<float>(value);
      value = (static_cast<double>(near) + std::nextafter(near, INFINITY)) / 2;
      if (i % 4 == 0) value = std::nextafter(value, i % 8 == 0 ? 0 : INFINITY);
    }
    values.push_back(value);
    const int64_t middle = static_cast<int64_t>((random() >> 40) * 2 + 1) << (random() % 38);
    integers.push_back(middle + static_cast<int64_t>(random() % 3) - 1);
    integers.push_back(static_cast<int64_t>(random()) >> random() % 64);
  }
  const Bytes floats = Converted(DType::kF64, BytesOfValues(values), DType::kF32, values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto expected = static_cast<float>(values[i]);
    const auto got = std::bit_cast<float>(static_cast<uint32_t>(BitsAt(DType::kF32, floats, i)));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got));
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << values[i];
    }
  }
  const Bytes rounded =
      Converted(DType::kI64, BytesOfValues(integers), DType::kF32, integers.size());
  const Bytes doubles =
      Converted(DType::kI64, BytesOfValues(integers), DType::kF64, integers.size());
  for (size_t i = 0; i < integers.size(); ++i) {
    ASSERT_EQ(BitsAt(DType::kF32, rounded, i),
              std::bit_cast<uint32_t>(static_cast<float>(integers[i])))
        << integers[i];
    ASSERT_EQ(BitsAt(DType::kF64, doubles, i),
              std::bit_cast<uint64_t>(static_cast<double>(integers[i])))
        << integers[i];
  }
}

TEST(NearestTest, ScalesRoundAsTheirModeSays) {
  std::vector<float> floats = {0.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, 0x1.fffffep127f};
  std::vector<double> doubles = {0.0,       INFINITY, -INFINITY, NAN,
                                 0x1p-1074, 0x1p128,  0x1.8p127, 0x1p200};
  for (int k = -130; k <= 127; ++k) {
    AddAround<float>(std::ldexp(1.0L, k), floats);
    AddAround<float>(std::ldexp(1.5L, k), floats);
    AddAround<double>(std::ldexp(1.0L, k), doubles);
    AddAround<double>(std::ldexp(1.5L, k), doubles);
  }
  std::mt19937_64 random(23);
  for (int i = 0; i < 5'000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    doubles.push_back(std::bit_cast<double>(random()));
  }
  for (const ConvertMode mode : Modes()) {
    const Bytes from_floats =
        Converted(DType::kF32, BytesOfValues(floats), DType::kF8E8M0FNU, floats.size(), mode);
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(BitsAt(DType::kF8E8M0FNU, from_floats, i), EncodeE8M0(floats[i], mode))
          << floats[i];
    }
    const Bytes from_doubles =
        Converted(DType::kF64, BytesOfValues(doubles), DType::kF8E8M0FNU, doubles.size(), mode);
    for (size_t i = 0; i < doubles.size(); ++i) {
      ASSERT_EQ(BitsAt(DType::kF8E8M0FNU, from_doubles, i), EncodeE8M0(doubles[i], mode))
          << doubles[i];
    }
  }
}

// Values that a stop at f16 or bf16 would round to a tie first.
TEST(NearestTest, NothingGoesThroughANarrowerType) {
  EXPECT_EQ(ConvertBits(DType::kF32, 0x3E800001, DType::kF4E2M1FN), 1u);
  EXPECT_EQ(ConvertBits(DType::kF32, 0x3A800001, DType::kF8E4M3FN), 1u);
  const double above_tie = 0x1.0000000000001p-10;  // as f32 it is the tie, which becomes 0
  EXPECT_EQ(ConvertValue(DType::kF64, above_tie, DType::kF8E4M3FN), 1u);
  const int64_t above = (int64_t{1} << 60) + (int64_t{1} << 52) + 1;  // bf16's tie as a double
  EXPECT_EQ(ConvertValue(DType::kI64, above, DType::kBF16), 0x5D81u);
  EXPECT_EQ(ConvertValue(DType::kI64, above - 1, DType::kBF16), 0x5D80u);
}

}  // namespace
}  // namespace ferry::compute::testing
