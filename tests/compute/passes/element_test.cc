// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "compute/numerics/convert.h"
#include "compute/passes/literal.h"

namespace ferry::compute {
namespace {

using Code = uint64_t;
using A = Attribute;

std::optional<Code> Of(Op op, DType result, std::vector<DType> types, std::vector<Code> codes,
                       Attributes attributes = {}) {
  Node node;
  node.op = op;
  node.attributes = std::move(attributes);
  return EvaluateElement(node, result, types, codes);
}

std::optional<Code> Of(Op op, DType type, std::vector<Code> codes) {
  return Of(op, type, std::vector<DType>(codes.size(), type), codes);
}

Code F32(float value) { return std::bit_cast<uint32_t>(value); }
Code F64(double value) { return std::bit_cast<uint64_t>(value); }
Code I8(int value) { return static_cast<uint8_t>(value); }
constexpr std::nullopt_t kOpen = std::nullopt;

TEST(ElementTest, IntegersWrapAndLeaveOpenWhatIsOpen) {
  const DType type = DType::kI8;
  EXPECT_EQ(Of(Op::kAdd, type, {I8(127), I8(1)}), I8(-128));
  EXPECT_EQ(Of(Op::kSubtract, type, {I8(-128), I8(1)}), I8(127));
  EXPECT_EQ(Of(Op::kMultiply, type, {I8(-3), I8(100)}), I8(-300));
  EXPECT_EQ(Of(Op::kDivide, type, {I8(-7), I8(2)}), I8(-3));
  EXPECT_EQ(Of(Op::kRemainder, type, {I8(-7), I8(2)}), I8(-1));
  EXPECT_EQ(Of(Op::kDivide, type, {I8(-7), 0}), kOpen);
  EXPECT_EQ(Of(Op::kRemainder, type, {I8(-7), 0}), kOpen);
  EXPECT_EQ(Of(Op::kDivide, type, {I8(-128), I8(-1)}), kOpen);
  EXPECT_EQ(Of(Op::kDivide, DType::kU8, {I8(-7), 2}), Code{124});
  EXPECT_EQ(Of(Op::kMaximum, type, {I8(-7), 2}), Code{2});
  EXPECT_EQ(Of(Op::kMaximum, DType::kU8, {I8(-7), 2}), I8(-7));
  EXPECT_EQ(Of(Op::kMinimum, type, {I8(-7), 2}), I8(-7));
  EXPECT_EQ(Of(Op::kAbs, type, {I8(-7)}), Code{7});
  EXPECT_EQ(Of(Op::kAbs, type, {I8(-128)}), kOpen);
  EXPECT_EQ(Of(Op::kNegate, type, {I8(-128)}), I8(-128));
  EXPECT_EQ(Of(Op::kSign, type, {I8(-5)}), I8(-1));
  EXPECT_EQ(Of(Op::kSign, DType::kU8, {I8(-5)}), Code{1});
  EXPECT_EQ(Of(Op::kNot, type, {Code{0x0f}}), Code{0xf0});
  EXPECT_EQ(Of(Op::kNot, DType::kBool, {Code{1}}), Code{0});
  EXPECT_EQ(Of(Op::kXor, DType::kBool, {Code{1}, Code{0}}), Code{1});
  EXPECT_EQ(Of(Op::kShiftRightArithmetic, type, {I8(-8), 1}), I8(-4));
  EXPECT_EQ(Of(Op::kShiftRightLogical, type, {I8(-8), 1}), Code{0x7c});
  EXPECT_EQ(Of(Op::kShiftLeft, type, {I8(-8), 7}), Code{0});
  EXPECT_EQ(Of(Op::kShiftLeft, type, {I8(-8), 8}), kOpen);
  EXPECT_EQ(Of(Op::kShiftLeft, type, {I8(-8), I8(-1)}), kOpen);
  EXPECT_EQ(Of(Op::kMultiply, DType::kU64, {~Code{0}, ~Code{0}}), Code{1});
  EXPECT_EQ(Of(Op::kDivide, DType::kI64, {Code{1} << 63, ~Code{0}}), kOpen);
}

TEST(ElementTest, FloatsAreRoundedOnceAndNeverNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Code nan = F32(std::nanf(""));
  EXPECT_EQ(Of(Op::kAdd, DType::kF32, {F32(0x1p24f), F32(1)}), F32(0x1p24f));
  EXPECT_EQ(Of(Op::kAdd, DType::kF64, {F64(0x1p24), F64(1)}), F64(0x1p24 + 1));
  EXPECT_EQ(Of(Op::kDivide, DType::kF32, {F32(-1), F32(0)}), F32(-infinity));
  EXPECT_EQ(Of(Op::kDivide, DType::kF32, {F32(0), F32(0)}), kOpen);
  EXPECT_EQ(Of(Op::kSubtract, DType::kF32, {F32(infinity), F32(infinity)}), kOpen);
  EXPECT_EQ(Of(Op::kAdd, DType::kF32, {nan, F32(1)}), kOpen);
  EXPECT_EQ(Of(Op::kMaximum, DType::kF32, {F32(1), nan}), kOpen);
  EXPECT_EQ(Of(Op::kSqrt, DType::kF32, {F32(2)}), F32(1.41421354f));
  EXPECT_EQ(Of(Op::kSqrt, DType::kF32, {F32(-2)}), kOpen);
  EXPECT_EQ(Of(Op::kTanh, DType::kF32, {F32(0)}), kOpen);
  EXPECT_EQ(Of(Op::kPower, DType::kF32, {F32(2), F32(2)}), kOpen);
  EXPECT_EQ(Of(Op::kRemainder, DType::kF32, {F32(-7), F32(2)}), F32(-1));
  EXPECT_EQ(Of(Op::kRoundNearestEven, DType::kF32, {F32(2.5f)}), F32(2));
  EXPECT_EQ(Of(Op::kFloor, DType::kF32, {F32(-0.5f)}), F32(-1));
  EXPECT_EQ(Of(Op::kCeil, DType::kF32, {F32(-0.5f)}), F32(-0.0f));
  EXPECT_EQ(Of(Op::kSign, DType::kF32, {F32(-0.0f)}), F32(-0.0f));
  EXPECT_EQ(Of(Op::kSign, DType::kF32, {F32(-9)}), F32(-1));
  // In one rounding; two would give 0.
  EXPECT_EQ(Of(Op::kFma, DType::kF32, {F32(1 + 0x1p-12f), F32(1 + 0x1p-12f), F32(-1 - 0x1p-11f)}),
            F32(0x1p-24f));
  EXPECT_EQ(Of(Op::kFma, DType::kF16, {Code{0x3c00}, Code{0x3c00}, Code{0x3c00}}), kOpen);
  for (const bool first : {false, true}) {
    const std::vector<Code> zeros = {F32(first ? -0.0f : 0.0f), F32(first ? 0.0f : -0.0f)};
    EXPECT_EQ(Of(Op::kMaximum, DType::kF32, zeros), F32(0.0f));
    EXPECT_EQ(Of(Op::kMinimum, DType::kF32, zeros), F32(-0.0f));
  }
}

// f64 holds these results exactly, or close enough that the second rounding cannot matter.
TEST(ElementTest, NarrowFloatsAreAsIfComputedExactly) {
  std::mt19937 random(1);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (int i = 0; i < 20000; ++i) {
      const Code a = random() & 0xffff;
      const Code b = random() & 0xffff;
      const double x = DecodeFloat(type, static_cast<uint32_t>(a));
      const double y = DecodeFloat(type, static_cast<uint32_t>(b));
      const auto expect = [&](Op op, double exact) {
        if (std::isnan(exact)) {
          EXPECT_EQ(Of(op, type, {a, b}), kOpen);
        } else {
          EXPECT_EQ(Of(op, type, {a, b}), Code{EncodeFloat(type, exact)}) << x << " and " << y;
        }
      };
      expect(Op::kMultiply, x * y);
      expect(Op::kDivide, x / y);
      expect(Op::kRemainder, std::fmod(x, y));
      if (type == DType::kF16) expect(Op::kAdd, x + y);
    }
  }
}

TEST(ElementTest, ComparesNumbersOrTheTotalOrder) {
  const auto compare = [](Direction direction, DType type, Code a, Code b, bool total = false) {
    return Of(Op::kCompare, DType::kBool, {type, type}, {a, b},
              {{A::kDirection, static_cast<int64_t>(direction)},
               {A::kTotalOrder, static_cast<int64_t>(total)}});
  };
  EXPECT_EQ(compare(Direction::kLt, DType::kI8, I8(-1), 1), Code{1});
  EXPECT_EQ(compare(Direction::kLt, DType::kU8, I8(-1), 1), Code{0});
  EXPECT_EQ(compare(Direction::kGe, DType::kBool, 1, 0), Code{1});
  const Code nan = F32(std::nanf(""));
  EXPECT_EQ(compare(Direction::kEq, DType::kF32, F32(0.0f), F32(-0.0f)), Code{1});
  EXPECT_EQ(compare(Direction::kEq, DType::kF32, nan, nan), Code{0});
  EXPECT_EQ(compare(Direction::kNe, DType::kF32, nan, nan), Code{1});
  EXPECT_EQ(compare(Direction::kEq, DType::kF32, nan, nan, true), Code{1});
  EXPECT_EQ(compare(Direction::kGt, DType::kF32, F32(0.0f), F32(-0.0f), true), Code{1});
  EXPECT_EQ(compare(Direction::kLt, DType::kF32, F32(-2), F32(-1), true), Code{1});
  EXPECT_EQ(compare(Direction::kGt, DType::kF32, nan, F32(1), true), Code{1});
  EXPECT_EQ(compare(Direction::kLt, DType::kF32, nan | 0x80000000u, F32(-1), true), Code{1});
  EXPECT_EQ(compare(Direction::kLe, DType::kF64, F64(1), F64(1)), Code{1});
}

TEST(ElementTest, SelectsClampsAndConverts) {
  const DType f32 = DType::kF32;
  EXPECT_EQ(Of(Op::kSelect, f32, {DType::kBool, f32, f32}, {1, F32(3), F32(4)}), F32(3));
  EXPECT_EQ(Of(Op::kSelect, f32, {DType::kBool, f32, f32}, {0, F32(3), F32(4)}), F32(4));
  EXPECT_EQ(Of(Op::kClamp, f32, {F32(0), F32(9), F32(1)}), F32(1));
  EXPECT_EQ(Of(Op::kClamp, f32, {F32(0), F32(-9), F32(1)}), F32(0));
  EXPECT_EQ(Of(Op::kIsFinite, DType::kBool, {f32}, {F32(3)}), Code{1});
  EXPECT_EQ(Of(Op::kIsFinite, DType::kBool, {f32}, {0x7f800000}), Code{0});
  const Attributes saturate = {{A::kMode, int64_t{1}}};
  EXPECT_EQ(Of(Op::kConvert, DType::kF8E4M3FN, {f32}, {F32(1000)}, saturate), Code{0x7e});
  EXPECT_EQ(Of(Op::kConvert, DType::kF8E4M3FN, {f32}, {F32(1000)}), kOpen);  // NaN
  const Attributes floor = {{A::kRounding, int64_t{1}}};
  EXPECT_EQ(Of(Op::kConvert, DType::kF8E8M0FNU, {f32}, {F32(3)}), Code{129});
  EXPECT_EQ(Of(Op::kConvert, DType::kF8E8M0FNU, {f32}, {F32(3)}, floor), Code{128});
  EXPECT_EQ(Of(Op::kConvert, DType::kI8, {f32}, {F32(-2.7f)}), I8(-2));
  EXPECT_EQ(Of(Op::kConvert, DType::kF32, {DType::kF4E2M1FN}, {Code{0x7}}), F32(6));
  EXPECT_EQ(Of(Op::kBitcastConvert, DType::kI32, {f32}, {F32(1)}), Code{0x3f800000});
}

}  // namespace
}  // namespace ferry::compute
