// SPDX-License-Identifier: Apache-2.0
#include "compute/program/cost.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compute/program/text.h"

namespace ferry::compute {
namespace {

Cost CostOfText(const std::string& text) {
  const ParsedText parsed = Parse(absl::StrCat("program 1\nbuffer @b read_write 4096\n", text));
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ":" << problem.column << ": " << problem.text;
  }
  return CostOf(parsed.program);
}

TEST(CostTest, AChainIsCountedByElements) {
  // 2 flops an element for fma, 1 each for add and negate; 1 transcendental for tanh.
  const Cost cost = CostOfText(R"(%x = input @b : f32[10,10]
%a = add %x, %x
%f = fma %x, %a, %x
%n = negate %f
%t = tanh %n
%c = convert %t : bf16[10,10]
store @b, %c offset=2048
)");
  EXPECT_EQ(cost.flops, 400u);
  EXPECT_EQ(cost.transcendentals, 100u);
  EXPECT_EQ(cost.bytes_read, 400u);
  EXPECT_EQ(cost.bytes_written, 200u);
  EXPECT_EQ(cost.steps, 7u);
}

TEST(CostTest, AProductIsTwiceItsBatchRowsColumnsAndDepth) {
  EXPECT_EQ(CostOfText(R"(%x = constant splat=1 : f32[5,2,3]
%y = constant splat=1 : f32[5,7,3]
%d = dot_general %x, %y lhs_batch=[0] rhs_batch=[0] lhs_contract=[2] rhs_contract=[2]
)")
                .flops,
            2u * 5 * 2 * 7 * 3);
  EXPECT_EQ(CostOfText(R"(%x = constant splat=x38 : f8e4m3fn[4,64]
%s = constant splat=x7f : f8e8m0fnu[4,2]
%d = block_scaled_dot %x, %x, %s, %s : f32[4,4]
)")
                .flops,
            2u * 4 * 4 * 64);
}

TEST(CostTest, ReductionsCountWhatTheyRead) {
  EXPECT_EQ(
      CostOfText("%x = constant splat=1 : f32[6,7]\n%r = reduce %x reduction=sum dimensions=[0]\n")
          .flops,
      42u);
}

TEST(CostTest, ARepeatCountsItsBodyAsOftenAsItRuns) {
  const Cost cost = CostOfText(R"(%x = constant splat=1 : f32[10]
%r = repeat %x trips=5 (%i, %c)
  %a = add %c, %c
  repeat trips=3 (%j)
    accumulate @b, %c
    yield
  yield %a
)");
  EXPECT_EQ(cost.flops, 5u * 10 + 15 * 10);
  EXPECT_EQ(cost.bytes_read, 15u * 40);
  EXPECT_EQ(cost.bytes_written, 15u * 40);
  EXPECT_EQ(cost.steps, 2u + 5 * 2 + 15);
}

TEST(CostTest, OfAnInputCountsWhatIsTakenOfIt) {
  const auto read = [](const std::string& text) { return CostOfText(text).bytes_read; };
  const std::string input = "%x = input @b : f32[16,8]\n";
  const std::string slice = "%s = slice %x start=[2,0] limit=[5,8] step=[2,1]\n";
  EXPECT_EQ(read(input + slice), 2u * 8 * 4);
  EXPECT_EQ(
      read(input + "%i = constant splat=3 : i32[]\n%s = dynamic_slice %x, %i, %i sizes=[3,2]"),
      3u * 2 * 4);
  EXPECT_EQ(read(input + "%i = constant splat=3 : i32[5]\n%s = gather_rows %x, %i"), 5u * 8 * 4);
  // Through what only moves elements, both ways.
  EXPECT_EQ(read(input + "%t = transpose %x permutation=[1,0]\n%r = reshape %t : f32[128]\n"
                         "%v = reverse %r dimensions=[0]\n%s = slice %v start=[0] limit=[7]"),
            7u * 4);
  EXPECT_EQ(read(input + slice + "%t = slice %s start=[0,0] limit=[1,4]"), 4u * 4);
  EXPECT_EQ(read(input + slice + "%w = broadcast_in_dim %s dimensions=[1,2] : f32[9,2,8]"),
            2u * 8 * 4);
  // Several: their sum, no more than all of it.
  EXPECT_EQ(read(input + slice + "%t = slice %x start=[0,0] limit=[3,8]"), 5u * 8 * 4);
  EXPECT_EQ(read(input + slice + "%i = constant splat=3 : i32[99]\n%g = gather_rows %x, %i"),
            16u * 8 * 4);
  EXPECT_EQ(read(input + slice + "%n = negate %x"), 16u * 8 * 4);
  EXPECT_EQ(read(input + "%s = slice %x start=[0,0] limit=[0,8]"), 0u);
  EXPECT_EQ(read(input), 16u * 8 * 4);  // nobody says otherwise
  // What is done to it comes before.
  EXPECT_EQ(read(input + "%n = negate %x\n%s = slice %n start=[0,0] limit=[1,8]"), 16u * 8 * 4);
  EXPECT_EQ(read("%x = input @b : f4e2m1fn[9]\n%s = slice %x start=[0] limit=[3]"), 2u);
}

TEST(CostTest, OfAnInputARepeatTakesMoreEachTripButNoMoreThanThereIs) {
  const auto read = [](int trips, bool inside) {
    const std::string input = "%x = input @b : f32[16,8]\n";
    return CostOfText(absl::StrCat(inside ? "" : input, "repeat trips=", trips, " (%i)\n",
                                   inside ? input : "", R"(  %z = constant splat=0 : i32[]
  %s = dynamic_slice %x, %i, %z sizes=[1,8]
  yield
)"))
        .bytes_read;
  };
  EXPECT_EQ(read(10, false), 10u * 8 * 4);
  EXPECT_EQ(read(100, false), 16u * 8 * 4);
  EXPECT_EQ(read(100, true), 100u * 8 * 4);
}

TEST(CostTest, TransfersAndCopiesAreCountedApart) {
  const Cost cost = CostOfText(R"(%r = recv device=1 key="a" : f4e2m1fn[5]
send %r device=2 key="b"
copy @b, @b bytes=100 offset=200
)");
  EXPECT_EQ(cost.bytes_received, 3u);
  EXPECT_EQ(cost.bytes_sent, 3u);
  EXPECT_EQ(cost.bytes_read, 100u);
  EXPECT_EQ(cost.bytes_written, 100u);
  EXPECT_EQ(cost.flops, 0u);
}

TEST(CostTest, WorkCountsWhatIsMovedAndFunctionsEightfold) {
  EXPECT_EQ(WorkOf({.flops = 1,
                    .transcendentals = 10,
                    .bytes_read = 200,
                    .bytes_written = 3000,
                    .bytes_sent = 7,
                    .bytes_received = 7}),
            3281u);
  EXPECT_EQ(WorkOf({.flops = 1, .transcendentals = UINT64_MAX / 2}), UINT64_MAX);
}

TEST(CostTest, WhatIsTooMuchToCountStaysTheMost) {
  EXPECT_EQ(CostOfText(R"(%x = constant splat=1 : f32[2000000000000000000]
repeat trips=1000000 (%i)
  %y = add %x, %x
  yield
)")
                .flops,
            std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace ferry::compute
