// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/reference/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/compute/numerics/blocks.h"
#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {
namespace {

TEST(ReferenceProductsTest, DotsByHand) {
  // [1 2 3] and [4 -5 6] with f16's codes: 4 - 10 + 18; magnitudes 4 + 10 + 18.
  const Operand lhs =
      PlainOperand(DType::kF16, 1, 3, FromBits(DType::kF16, {0x3C00, 0x4000, 0x4200}));
  const Operand rhs =
      PlainOperand(DType::kF16, 1, 3, FromBits(DType::kF16, {0x4400, 0xC500, 0x4600}));
  const std::vector<ReferenceValue> plain = ReferenceDot(lhs, rhs, -2);
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0].value, -24);
  EXPECT_EQ(plain[0].magnitude, 64);
  // Blocks of 2: (1 * 0.5 + 2 * 1) * 2 * 1 + (4 * 6) * 0.5 * 4, with f4e2m1fn's codes.
  const BlockFormat format{DType::kF4E2M1FN, DType::kF8E8M0FNU, 2};
  const Operand a = BlockOperand(format, 1, 3, FromBits(DType::kF4E2M1FN, {2, 4, 6}),
                                 FromBits(DType::kF8E8M0FNU, {128, 126}));
  const Operand b = BlockOperand(format, 1, 3, FromBits(DType::kF4E2M1FN, {1, 2, 7}),
                                 FromBits(DType::kF8E8M0FNU, {127, 129}));
  EXPECT_EQ(ReferenceDot(a, b)[0].value, 53);
}

TEST(ReferenceProductsTest, SumsInF32AreWithinTheBoundOfExactProductsAndOneWrongTermIsNot) {
  std::mt19937 random(60);
  std::normal_distribution<float> normal;
  constexpr uint64_t kRows = 3, kColumns = 4, kDepth = 1000;
  for (const BlockFormat& format : {kMxFp8E4M3, kMxFp8E5M2, kMxFp4, kNvFp4}) {
    std::vector<float> a(kRows * kDepth), b(kColumns * kDepth);
    for (float& value : a) value = normal(random);
    for (float& value : b) value = normal(random);
    const float global = format.scale == DType::kF8E4M3FN ? NvFp4GlobalScale(5) : 1;
    const Quantized qa = Quantize(format, ScaleRounding::kCeil, a, kRows, global);
    const Quantized qb = Quantize(format, ScaleRounding::kCeil, b, kColumns);
    a = Dequantize(format, qa, kRows, kDepth);
    b = Dequantize(format, qb, kColumns, kDepth);
    const std::vector<ReferenceValue> reference =
        ReferenceDot(BlockOperand(format, kRows, kDepth, qa.elements, qa.scales),
                     BlockOperand(format, kColumns, kDepth, qb.elements, qb.scales), global);
    for (uint64_t i = 0; i < kRows; ++i) {
      for (uint64_t j = 0; j < kColumns; ++j) {
        float sum = 0, largest = 0;
        for (uint64_t k = 0; k < kDepth; ++k) {
          const float term = a[i * kDepth + k] * b[j * kDepth + k];
          sum += term;
          largest = std::max(largest, std::fabs(term));
        }
        const ReferenceValue& expected = reference[i * kColumns + j];
        for (const DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
          const double got = DecodeFloat(out, EncodeFloat(out, sum * global));
          EXPECT_TRUE(IsNear(got, expected, Accumulation::kExactProducts, out)) << NameOf(out);
        }
        EXPECT_FALSE(
            IsNear((sum + largest) * global, expected, Accumulation::kExactProducts, DType::kF32));
      }
    }
  }
}

TEST(ReferenceProductsTest, NanAndInfinityAreNearOnlyToThemselves) {
  const auto near = [](double got, double value) {
    return IsNear(got, {value, std::fabs(value)}, Accumulation::kExactProducts, DType::kF32);
  };
  EXPECT_TRUE(near(NAN, NAN));
  EXPECT_FALSE(near(1, NAN));
  EXPECT_FALSE(near(NAN, 1));
  EXPECT_TRUE(near(INFINITY, INFINITY));
  EXPECT_FALSE(near(INFINITY, 1));
}

TEST(ReferenceProductsTest, OneRoundingToBF16IsAllowedForAndNoMore) {
  const ReferenceValue exact{1 + 0x1p-8 - 0x1p-20, 0};
  EXPECT_TRUE(IsNear(1, exact, Accumulation::kExactProducts, DType::kBF16));
  EXPECT_FALSE(IsNear(1, {1 + 0x1p-7, 0}, Accumulation::kExactProducts, DType::kBF16));
}

}  // namespace
}  // namespace ferry::compute::testing
