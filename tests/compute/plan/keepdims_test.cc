// SPDX-License-Identifier: Apache-2.0
// Moves that only add or remove dimensions of 1 stand in nobody's way.
#include <gtest/gtest.h>

#include <string>

#include "compute/passes/passes.h"
#include "compute/plan/plan.h"
#include "tests/compute/keepdims.h"
#include "tests/compute/parsed_program.h"

namespace ferry::compute {
namespace {

Plan JoinedPlanOf(const std::string& text) {
  auto plan = MakePlan(Simplify(testing::ParsedProgram(text)));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

class KeepdimsTest : public ::testing::TestWithParam<testing::KeepdimsProgram> {};

TEST_P(KeepdimsTest, IsOneKernelWithoutMemoryOfItsOwn) {
  const Plan plan = JoinedPlanOf(GetParam().text);
  EXPECT_EQ(plan.steps.size(), 1u) << ToText(plan, true);
  EXPECT_EQ(plan.memory.bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, KeepdimsTest, ::testing::ValuesIn(testing::KeepdimsPrograms()),
                         [](const auto& info) { return info.param.name; });

// A value of [.., 1] may be used itself, too.
TEST(KeptDimensionsTest, WhatIsKeptMayAlsoBeStored) {
  const Plan plan = JoinedPlanOf(
      "program 1\nbuffer @x read 4096\nbuffer @y write 4096\nbuffer @s write 64\n"
      "%x = input @x : f32[16,64]\n%s = reduce %x reduction=sum dimensions=[1]\n"
      "%s1 = broadcast_in_dim %s dimensions=[0] : f32[16,1]\nstore @s, %s1\n"
      "%sb = broadcast_in_dim %s1 dimensions=[0,1] : f32[16,64]\n%y = subtract %x, %sb\n"
      "store @y, %y\n");
  EXPECT_EQ(plan.steps.size(), 1u) << ToText(plan, true);
}

// Nothing is joined with what is above a barrier.
TEST(KeptDimensionsTest, ABarrierStays) {
  const Plan plan = JoinedPlanOf(
      "program 1\nbuffer @x read 4096\nbuffer @y write 4096\n"
      "%x = input @x : f32[16,64]\n%s = reduce %x reduction=sum dimensions=[1]\n"
      "%s1 = broadcast_in_dim %s dimensions=[0] : f32[16,1]\n%b = barrier %s1\n"
      "%sb = broadcast_in_dim %b dimensions=[0,1] : f32[16,64]\n%y = subtract %x, %sb\n"
      "store @y, %y\n");
  EXPECT_EQ(plan.steps.size(), 2u) << ToText(plan, true);
}

}  // namespace
}  // namespace ferry::compute
