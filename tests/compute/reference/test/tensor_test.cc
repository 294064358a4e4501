// SPDX-License-Identifier: Apache-2.0
// What the reference lets executors do in other ways, and what it does not.
#include "tests/compute/reference/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/compute/reference/evaluate.h"
#include "tests/compute/reference/memory.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

uint64_t F32(float value) { return std::bit_cast<uint32_t>(value); }
constexpr uint64_t kNan = 0x7fc00000;
constexpr uint64_t kOtherNan = 0xffc00001;

TEST(AllowsTest, BitsOrNanOrNearness) {
  EXPECT_TRUE(Allows(DType::kF32, {F32(1)}, F32(1)));
  EXPECT_FALSE(Allows(DType::kF32, {F32(0.0f)}, F32(-0.0f)));
  EXPECT_TRUE(Allows(DType::kF32, {kNan}, kOtherNan));
  EXPECT_FALSE(Allows(DType::kF32, {kNan}, F32(1)));
  EXPECT_FALSE(Allows(DType::kF16, {0x7e00}, 0x7e01));
  EXPECT_TRUE(Allows(DType::kF32, {F32(1), 0.25, 1}, F32(1.25)));
  EXPECT_FALSE(Allows(DType::kF32, {F32(1), 0.25, 1}, F32(1.5)));
  EXPECT_FALSE(Allows(DType::kF32, {F32(1), 0.25, 1}, kNan));
  EXPECT_TRUE(Allows(DType::kF32, {F32(1), kAnything}, kNan));
  // The largest f16, and what an ulp more is.
  EXPECT_TRUE(Allows(DType::kF16, {0x7bff, 32, 65504}, 0x7c00));
  EXPECT_FALSE(Allows(DType::kF16, {0x7bfe, 32, 65472}, 0x7c00));
}

TEST(FunctionTest, IsAsNearAsItsTypeSays) {
  const Element tanh = FunctionOf(Op::kTanh, DType::kF32, {F32(1)});
  const auto next = [&](int ulps) { return static_cast<uint64_t>(tanh.code) + ulps; };
  EXPECT_TRUE(Allows(DType::kF32, tanh, next(3)));
  EXPECT_FALSE(Allows(DType::kF32, tanh, next(6)));
  EXPECT_EQ(FunctionOf(Op::kLog, DType::kF32, {F32(-1)}).error, 0);
  EXPECT_TRUE(IsNan(DType::kF32, FunctionOf(Op::kLog, DType::kF32, {F32(-1)}).code));
}

// What is made of something uncertain is uncertain, but where it only moves.
TEST(EvaluateOpTest, UncertaintySpreads) {
  const Tensor in{{DType::kF32, {2}}, {{F32(1), 0.5, 1}, {F32(2)}}};
  const auto run = [&](Op op, Attributes attributes, std::vector<const Tensor*> operands,
                       TensorType type) {
    Node node;
    node.op = op;
    node.attributes = std::move(attributes);
    return EvaluateOp({}, node, {type}, operands)[0];
  };
  EXPECT_EQ(run(Op::kAdd, {}, {&in, &in}, in.type).elements[0].error, kAnything);
  EXPECT_EQ(run(Op::kAdd, {}, {&in, &in}, in.type).elements[1].error, 0);
  const Attributes all = {{Attribute::kDimensions, std::vector<int64_t>{0}},
                          {Attribute::kReduction, static_cast<int64_t>(Reduction::kMax)}};
  EXPECT_EQ(run(Op::kReduce, all, {&in}, {DType::kF32, {}}).elements[0].error, kAnything);
  const Attributes reversed = {{Attribute::kDimensions, std::vector<int64_t>{0}}};
  EXPECT_EQ(run(Op::kReverse, reversed, {&in}, in.type).elements[1].error, 0.5);
  // The bits of a NaN are nobody's business, until they are looked at.
  const Tensor nan{{DType::kF32, {1}}, {{kNan}}};
  EXPECT_EQ(run(Op::kNegate, {}, {&nan}, nan.type).elements[0].error, 0);
  EXPECT_EQ(run(Op::kBitcastConvert, {}, {&nan}, {DType::kI32, {1}}).elements[0].error, kAnything);
}

TEST(EvaluateOpTest, SumsThatMayBeReorderedAreNear) {
  Tensor in{{DType::kF32, {3}}, {{F32(0x1p24f)}, {F32(1)}, {F32(1)}}};
  Node node;
  node.op = Op::kReduce;
  node.attributes = {{Attribute::kDimensions, std::vector<int64_t>{0}},
                     {Attribute::kReduction, static_cast<int64_t>(Reduction::kSum)}};
  const TensorType type = {DType::kF32, {}};
  EXPECT_EQ(EvaluateOp({}, node, {type}, {&in})[0].elements[0].error, 0);
  const Numerics any_order = {Accumulation::kExactProducts, true};
  const Element sum = EvaluateOp(any_order, node, {type}, {&in})[0].elements[0];
  EXPECT_TRUE(Allows(DType::kF32, sum, F32(0x1p24f)));
  EXPECT_TRUE(Allows(DType::kF32, sum, F32(0x1p24f + 2)));
  EXPECT_FALSE(Allows(DType::kF32, sum, F32(0x1p24f + 1000)));
}

TEST(MemoryTest, KnowsWhatIsUncertainAndWhatItIs) {
  Memory memory{Bytes(16)};
  memory.Write(DType::kF32, 0, 1, {F32(1), 0.25, 1});
  memory.Write(DType::kF32, 0, 2, {kNan});
  const auto with = [&](uint64_t index, uint64_t code) {
    Bytes bytes = memory.bytes();
    for (int i = 0; i < 4; ++i) bytes[4 * index + i] = static_cast<std::byte>(code >> (8 * i));
    return memory.DifferenceOf(bytes);
  };
  EXPECT_EQ(with(1, F32(1.125)), "");
  EXPECT_NE(with(1, F32(2)), "");
  EXPECT_EQ(with(2, kOtherNan), "");
  EXPECT_NE(with(2, F32(2)), "");
  EXPECT_NE(with(3, 1), "");
  EXPECT_EQ(memory.Read(DType::kF32, 0, 1).error, 0.25);
  EXPECT_EQ(memory.Read(DType::kI32, 0, 1).error, kAnything);
  EXPECT_EQ(memory.Read(DType::kI32, 0, 3).error, 0);
  Memory other{Bytes(16)};
  other.Copy(1, memory, 2, 8);  // half of the NaN
  EXPECT_EQ(other.Read(DType::kF32, 3, 0).error, 0.25);
  EXPECT_EQ(other.Read(DType::kU8, 7, 0).error, kAnything);
  EXPECT_EQ(other.Read(DType::kU8, 9, 0).error, 0);
  memory.Write(DType::kU8, 5, 0, {7});
  EXPECT_EQ(memory.Read(DType::kU8, 5, 0).error, 0);
  EXPECT_EQ(memory.Read(DType::kF32, 0, 1).error, kAnything);
}

}  // namespace
}  // namespace ferry::compute::testing
