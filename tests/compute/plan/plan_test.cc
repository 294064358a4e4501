// SPDX-License-Identifier: Apache-2.0
// What plans promise, one by one; golden/ shows whole ones.
#include "compute/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/program/fingerprint.h"
#include "compute/program/text.h"
#include "tests/compute/plan/planned.h"

namespace ferry::compute {
namespace {

using testing::PlanOf;
using testing::StepsOf;

TEST(PlanTest, AProgramWithoutAProductIsOneKernel) {
  const Plan plan = PlanOf(
      "buffer @x read 16\nbuffer @y write 16\n"
      "%x = input @x : f32[4]\n%a = abs %x \"a\"\n%b = negate %a \"b\"\nstore @y, %b\n");
  EXPECT_EQ(StepsOf(plan), "kernel a+b");
  EXPECT_EQ(plan.memory.bytes, 0u);
}

// An executor may take them as they are; so each product of the same scales has them anew.
TEST(PlanTest, ScalesAreUnswizzledInTheStepsOfTheirProducts) {
  const std::string buffers =
      "buffer @x read 4096\nbuffer @w read 4096\nbuffer @s read_write 512 donated\n"
      "buffer @t read 512\nbuffer @y write 8192\n";
  const std::string values =
      "%x = input @x : f8e4m3fn[32,128]\n%w = input @w : f8e4m3fn[32,128]\n"
      "%ss = input @s : f8e8m0fnu[512]\n%ts = input @t : f8e8m0fnu[512]\n"
      "%s = unswizzle_scales %ss : f8e8m0fnu[32,4] \"s\"\n"
      "%t = unswizzle_scales %ts : f8e8m0fnu[32,4] \"t\"\n"
      "%p = block_scaled_dot %x, %w, %s, %t : f32[32,32] \"p\"\nstore @y, %p\n";
  EXPECT_EQ(StepsOf(PlanOf(buffers + values)), "product s+t+p");
  const std::string again =
      "%q = block_scaled_dot %w, %w, %t, %t : f32[32,32] \"q\"\nstore @y, %q offset=4096\n";
  EXPECT_EQ(StepsOf(PlanOf(buffers + values + again)), "product s+t+p, product t+q");
  // Not if anything else has to do with them, or writes over what they are made of.
  EXPECT_EQ(StepsOf(PlanOf(buffers + values + "store @y, %t offset=4096\n")),
            "kernel t, product s+p");
  const std::string written =
      absl::StrReplaceAll(values, {{"%p =", "^p: %p ="}}) +
      "%z = constant splat=1 : f8e8m0fnu[512] \"z\"\nstore @s, %z after ^p\n";
  EXPECT_EQ(StepsOf(PlanOf(buffers + written)), "kernel s, product t+p, kernel z");
}

TEST(PlanTest, LastUsesAreOfStepsAndOfWhatIsInThem) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @y write 1024\nbuffer @z read_write 4\nbuffer @w write 4\n"
      "%x = input @x : f32[16,16]\n"
      "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[0] \"p\"\nstore @y, %p\n"
      "^a: %q = dot_general %p, %p lhs_contract=[1] rhs_contract=[0] \"q\"\nkeep %q\n"
      "%one = constant splat=1 : f32[1]\n"
      "repeat trips=3 (%n) after ^a \"r\"\naccumulate @z, %one\nyield\n");
  ASSERT_EQ(StepsOf(plan), "product p, product q, repeat r");
  const std::vector<LastUse> uses = LastUses(plan);
  EXPECT_EQ(uses[0].written, std::nullopt);
  EXPECT_EQ(uses[0].touched, 0u);
  EXPECT_EQ(uses[1].written, 0u);
  EXPECT_EQ(uses[1].touched, 0u);
  EXPECT_EQ(uses[2].written, 2u);
  EXPECT_EQ(uses[3].touched, std::nullopt) << "nobody writes it";
}

TEST(PlanTest, AProducerOfTwoFactorsIsMadeOnce) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @y write 1024\n"
      "%x = input @x : f32[16,16]\n%f = exponential %x \"f\"\n"
      "%p = dot_general %f, %f lhs_contract=[1] rhs_contract=[0] \"p\"\nstore @y, %p\n");
  EXPECT_EQ(StepsOf(plan), "product f+p");
  ASSERT_EQ(plan.slots.size(), 1u);
  EXPECT_EQ(BytesOf(plan.slots[0].type), 1024u);  // scratch of f, not twice
}

TEST(PlanTest, WhatAProductIsOfIsNotWrittenByWhatFollowsIt) {
  const Plan plan = PlanOf(
      "buffer @x read_write 1024 donated\n"
      "%x = input @x : f32[16,16]\n"
      "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[0] \"p\"\n"
      "%r = abs %p \"r\"\nstore @x, %r\n");
  EXPECT_EQ(StepsOf(plan), "product p+r, kernel store @x");
}

TEST(PlanTest, AProductUsedTwiceHasTwoOutputs) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @y write 1024\nbuffer @z write 1024\n"
      "%x = input @x : f32[16,16]\n"
      "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[0] \"p\"\n"
      "%r = abs %p \"r\"\nstore @z, %r\nstore @y, %p\n");
  EXPECT_EQ(StepsOf(plan), "product p+r");
  EXPECT_TRUE(plan.steps[0].scratch.has_value());
}

size_t CountOf(Op op, const Program& program) {
  return static_cast<size_t>(std::count_if(program.nodes.begin(), program.nodes.end(),
                                           [op](const Node& node) { return node.op == op; }));
}

// b = relu(a @ w + b): element by element, so it goes over the bias.
TEST(PlanTest, ABiasIsWrittenOverByWhatItIsAddedTo) {
  const Plan plan = PlanOf(
      "buffer @a read 1024\nbuffer @w read 1024\nbuffer @b read_write 1024 donated\n"
      "%a = input @a : f32[16,16]\n%w = input @w : f32[16,16]\n%b = input @b : f32[16,16]\n"
      "%p = dot_general %a, %w lhs_contract=[1] rhs_contract=[0] \"p\"\n%s = add %p, %b \"bias\"\n"
      "%z = constant splat=0 : f32[16,16]\n%r = maximum %s, %z \"relu\"\nstore @b, %r\n");
  ASSERT_EQ(StepsOf(plan), "product p+bias+relu");
  const Step& step = plan.steps[0];
  EXPECT_TRUE(std::all_of(step.bindings.begin(), step.bindings.end(),
                          [](const Binding& binding) { return !binding.slot; }));
}

TEST(PlanTest, ATransposedFactorIsReadAcross) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @w read 2048\nbuffer @y write 2048\n"
      "%x = input @x : f32[16,16]\n%w = input @w : f32[32,16]\n"
      "%xt = transpose %x permutation=[1,0]\n%wt = transpose %w permutation=[1,0]\n"
      "%p = dot_general %xt, %wt lhs_contract=[1] rhs_contract=[0] \"p\"\nstore @y, %p\n");
  EXPECT_EQ(StepsOf(plan), "product p");
  EXPECT_EQ(plan.memory.bytes, 0u);
}

// x = f(transposed x) @ w: what it is read for is over before it is written.
TEST(PlanTest, WhatIsReadElsewhereIsReadBeforeItIsWrittenOver) {
  const Plan plan = PlanOf(
      "buffer @x read_write 1024 donated\nbuffer @w read 1024\n"
      "%x = input @x : f32[16,16]\n%w = input @w : f32[16,16]\n"
      "%t = transpose %x permutation=[1,0] \"t\"\n%f = tanh %t \"f\"\n"
      "%p = dot_general %f, %w lhs_contract=[1] rhs_contract=[0] \"p\"\nstore @x, %p\n");
  ASSERT_EQ(StepsOf(plan), "kernel t, product f+p");
  EXPECT_EQ(plan.steps[1].after, std::vector<uint32_t>{0});
  EXPECT_EQ(CountOf(Op::kTranspose, plan.steps[1].program), 0u);
}

// Two groups of outputs that nothing joins are two kernels; what is of both makes them one.
TEST(PlanTest, WhatIsOfTwoGroupsJoinsThem) {
  const std::string head =
      "buffer @x read 1024\nbuffer @y read 1024\nbuffer @u write 1024\nbuffer @v write 1024\n"
      "buffer @w write 1024\n%x = input @x : f32[256]\n%y = input @y : f32[256]\n"
      "%a = tanh %x \"a\"\n%b = tanh %y \"b\"\nstore @u, %a\nstore @v, %b\n";
  EXPECT_EQ(StepsOf(PlanOf(head)), "kernel a, kernel b");
  EXPECT_EQ(StepsOf(PlanOf(head + "%c = add %a, %b \"c\"\nstore @w, %c\n")), "kernel a+b+c");
}

TEST(PlanTest, TheSameMemoryIsReadOnce) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @y write 1024\nbuffer @z write 1024\n"
      "%x = input @x : f32[256]\n%again = input @x : f32[256]\n%a = tanh %x \"a\"\n"
      "%b = tanh %again \"b\"\nstore @y, %a\nstore @z, %b\n");
  ASSERT_EQ(StepsOf(plan), "kernel a+b");
  EXPECT_EQ(CountOf(Op::kInput, plan.steps[0].program), 1u);
}

TEST(PlanTest, TwoProductsAreTwoSteps) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @y write 1024\n"
      "%x = input @x : f32[16,16]\n"
      "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[0] \"p\"\n"
      "%q = dot_general %x, %x lhs_contract=[0] rhs_contract=[1] \"q\"\n"
      "%s = add %p, %q \"s\"\nstore @y, %s\n");
  EXPECT_EQ(StepsOf(plan), "product q, product p+s");
}

TEST(PlanTest, ADroppedProductIsNotRunUnlessKept) {
  const std::string text =
      "buffer @x read 1024\nbuffer @y write 1024\n"
      "%x = input @x : f32[16,16]\n"
      "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[0] \"p\"\nstore @y, %x\n";
  EXPECT_EQ(StepsOf(PlanOf(text)), "kernel store @y");
  EXPECT_EQ(StepsOf(PlanOf(text + "keep %p\n")), "product p, kernel store @y");
}

TEST(PlanTest, RowsThatDifferAreNotOneKernel) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @y write 64\nbuffer @z write 4\n"
      "%x = input @x : f32[16,16]\n"
      "%a = reduce %x reduction=sum dimensions=[1] \"rows\"\n"
      "%b = reduce %x reduction=sum dimensions=[0,1] \"all\"\n"
      "store @y, %a\nstore @z, %b\n");
  EXPECT_EQ(StepsOf(plan), "kernel rows, kernel all");
}

TEST(PlanTest, EqualKernelsAreEqualPrograms) {
  const Plan plan = PlanOf(
      "buffer @x read 16\nbuffer @y write 16\nbuffer @u read 16\nbuffer @v write 16\n"
      "%x = input @x : f32[4]\n%a = tanh %x \"one\"\nstore @y, %a\n"
      "%u = input @u : f32[4]\n%b = tanh %u \"other\"\nstore @v, %b\n");
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_NE(plan.steps[0].bindings, plan.steps[1].bindings);
  EXPECT_EQ(FingerprintOf(plan.steps[0].program), FingerprintOf(plan.steps[1].program));
}

TEST(PlanTest, AChainOfManyOpsIsCut) {
  std::string text = "buffer @x read 16\nbuffer @y write 16\n%v0 = input @x : f32[4]\n";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&text, "%v", i + 1, " = tanh %v", i, "\n");
  const Plan plan = PlanOf(text + "store @y, %v200\n");
  EXPECT_GE(plan.steps.size(), 2u);
  EXPECT_LE(plan.steps.size(), 5u);
  EXPECT_LE(plan.memory.bytes, 512u);
}

TEST(PlanTest, PartsOfRowsHaveStrides) {
  const Plan plan = PlanOf(
      "buffer @x read 24\nbuffer @y write 64\n"
      "%x = input @x : f32[2,3]\n%a = abs %x\n"
      "%c = concatenate %a, %x dimension=1 \"both\"\n%t = tanh %c\nstore @y, %t\n");
  EXPECT_EQ(StepsOf(plan), "kernel abs, kernel tanh");
  EXPECT_TRUE(absl::StrContains(Print(plan.steps[0].program), "offset=12 strides=[6,1]"));
}

// Without a value in between; where that may not be, by way of a slot.
TEST(PlanTest, AConcatenationThatIsOnlyStoredIsMadeWhereItIsStored) {
  const std::string inputs =
      "buffer @a read 64\nbuffer @b read 32\nbuffer @y write 96\n%a = input @a : f32[4,4]\n"
      "%b = input @b : f32[4,2]\n%t = tanh %a\n%c = concatenate %t, %b dimension=1 \"both\"\n";
  const Plan plan = PlanOf(inputs + "store @y, %c\n");
  EXPECT_TRUE(plan.slots.empty()) << ToText(plan, true);
  uint64_t written = 0;
  for (const Step& step : plan.steps) written += CostOf(step).bytes_written;
  EXPECT_EQ(written, 96u);
  EXPECT_TRUE(PlanOf("buffer @a read 32\nbuffer @y write 80\n%a = input @a : f32[2,4]\n"
                     "%c = concatenate %a, %a dimension=0\nstore @y, %c offset=16\n")
                  .slots.empty());
  // Used otherwise too; stored across; in a buffer that is read; after something.
  EXPECT_EQ(PlanOf(inputs + "store @y, %c\nkeep %c\n").slots.size(), 1u);
  EXPECT_EQ(PlanOf("buffer @a read 32\nbuffer @y write 80\n%a = input @a : f32[2,4]\n"
                   "%c = concatenate %a, %a dimension=0\nstore @y, %c strides=[5,1]\n")
                .slots.size(),
            1u);
  EXPECT_EQ(PlanOf("buffer @y read_write 64 donated\n%a = input @y : f32[2,4]\n"
                   "%n = negate %a\n%c = concatenate %n, %a dimension=0\nstore @y, %c\n")
                .slots.size(),
            1u);
  EXPECT_EQ(PlanOf("buffer @z write 16\n" + inputs +
                   "%o = constant splat=1 : f32[4]\n^first: store @z, %o\n"
                   "store @y, %c after ^first\n")
                .slots.size(),
            1u);
}

TEST(PlanTest, WhatIsSentIsNotOverwritten) {
  const Plan plan = PlanOf(
      "buffer @x read 4096\nbuffer @y write 4096\n"
      "%x = input @x : f32[32,32]\n%a = abs %x \"sent\"\nsend %a device=1 key=\"k\"\n"
      "%t = transpose %x permutation=[1,0]\n%s = transpose %t permutation=[1,0]\n"
      "store @y, %s\n");
  const auto sent = std::find_if(plan.slots.begin(), plan.slots.end(),
                                 [](const Slot& slot) { return slot.label == "sent"; });
  ASSERT_NE(sent, plan.slots.end());
  EXPECT_EQ(sent->last, plan.steps.back().number);
}

TEST(PlanTest, AnInputIsSentFromItsBuffer) {
  const Plan plan = PlanOf(
      "buffer @x read 64\n%x = input @x : f32[4]\nsend %x device=1 key=\"k\"\n"
      "%s = input @x strides=[2] : f32[4]\nsend %s device=1 key=\"l\"\n");
  EXPECT_EQ(StepsOf(plan), "send send, kernel input @x, send send");
  EXPECT_FALSE(plan.steps[0].bindings[0].slot);
  EXPECT_TRUE(plan.steps[2].bindings[0].slot);
}

TEST(PlanTest, ValuesOfOneElementAreDoneAnew) {
  const Plan plan = PlanOf(
      "buffer @r read 4\nbuffer @x read 1024\nbuffer @y write 1024\nbuffer @z write 16\n"
      "%r = input @r : f32[]\n%n = negate %r \"n\"\n%x = input @x : f32[256]\n"
      "%b = broadcast_in_dim %n : f32[256]\n%m = multiply %x, %b \"m\"\nstore @y, %m\n"
      "%c = broadcast_in_dim %n : f32[4]\nstore @z, %c\n");
  EXPECT_EQ(StepsOf(plan), "kernel n+m, kernel n");
  EXPECT_EQ(plan.slots.size(), 0u);
}

TEST(PlanTest, CostsAreThoseOfItsSteps) {
  const Plan plan = PlanOf(
      "buffer @x read_write 16\n%x = constant splat=1 : f32[4]\n"
      "repeat trips=5 (%i)\n  accumulate @x, %x\n  yield\n");
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(CostOf(plan.steps[0]).flops, 20u);
  EXPECT_EQ(CostOf(plan.steps[0]).bytes_read, 80u);
  EXPECT_FALSE(plan.steps[0].count.has_value());
}

// Else a loop over the rows of a matrix would count all of it for each row, and be refused.
TEST(PlanTest, StepsOfALoopCountWhatTheyTakeOfAnInput) {
  const Plan plan = PlanOf(
      "buffer @x read 4096\nbuffer @y read_write 256\n%x = input @x : f32[16,64]\n"
      "repeat trips=16 (%i)\n  %z = constant splat=0 : i32[]\n"
      "  %s = dynamic_slice %x, %i, %z sizes=[1,64]\n  %r = reshape %s : f32[64]\n"
      "  accumulate @y, %r\n  yield\n");
  ASSERT_EQ(plan.steps.size(), 1u);
  // A row and the trip's number; the row and the sum.
  EXPECT_EQ(CostOf(plan.steps[0]).bytes_read, 16u * (256 + 4 + 2 * 256));
}

TEST(PlanTest, SaysWhoHoldsMost) {
  const Plan plan = PlanOf(
      "buffer @x read 4096\nbuffer @y write 4096\n"
      "%x = input @x : f32[32,32]\n%a = abs %x \"first\"\n"
      "%t = cumulative_sum %a dimension=0 \"second\"\n"
      "%s = dot_general %t, %a lhs_contract=[1] rhs_contract=[0]\nstore @y, %s\n");
  EXPECT_EQ(plan.memory.bytes, 8192u);
  EXPECT_EQ(CheckFits(plan, 0, 8192, "host0"), absl::OkStatus());
  EXPECT_EQ(CheckFits(plan, 1, 8193, "host0"), absl::OkStatus());
  const absl::Status status = CheckFits(plan, 100, 8192, "host0");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      status.message(),
      "plan a program in host0: it asks for 8292 bytes, 8192 are available; 100 are scratch; the "
      "largest values at step 1 are 'first' f32[32,32] of 4096 bytes, 'second' f32[32,32] of "
      "4096 bytes");
}

TEST(PlanTest, WhatIsTooLargeToPlanIsRefused) {
  std::string text = "buffer @x read 8\n%x = input @x : f32[2]\n";
  std::string operands = "%x";
  for (int i = 1; i < 256; ++i) operands += ", %x";
  for (int i = 0; i < 80; ++i) {
    absl::StrAppend(&text, "%c", i, " = concatenate ", operands, " dimension=0\nkeep %c", i, "\n");
  }
  const ParsedText parsed = Parse("program 1\n" + text);
  ASSERT_TRUE(parsed.problems.empty());
  EXPECT_EQ(MakePlan(parsed.program).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanTest, APictureHasStepsAndMemory) {
  const std::string dot =
      ToDot(PlanOf("buffer @x read 16\n%x = input @x : f32[4]\n%a = abs %x \"say \\\"a\\\"\"\n"
                   "send %a device=1 key=\"k\"\n"));
  EXPECT_EQ(
      dot,
      "digraph plan {\nrankdir=LR;\ncompound=true;\n"
      "s0 [shape=box,label=\"0 kernel say \\\\\\\"a\\\\\\\"\\nflops=4\\nread=16\\nwritten=16\"];\n"
      "\"@x\" -> s0;\ns0 -> \"#0\";\n"
      "s1 [shape=box,label=\"1 send send device=1 key=\\\"k\\\"\\nread=16\\nsent=16\"];\n"
      "\"#0\" -> s1;\n"
      "s0 -> s1 [style=dashed];\n"
      "\"#0\" [shape=ellipse];\n\"@x\" [shape=cylinder];\n}\n");
}

}  // namespace
}  // namespace ferry::compute
