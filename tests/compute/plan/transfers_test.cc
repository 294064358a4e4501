// SPDX-License-Identifier: Apache-2.0
// Where a run waits for other daemons: nothing that is sent waits for more than it is made of,
// whatever else could be of one kernel with it.
#include "compute/plan/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"

namespace ferry::compute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Plan SimplifiedPlan(const std::string& body) {
  const ParsedText parsed = Parse("program 1\n" + body);
  for (const TextProblem& problem : parsed.problems) ADD_FAILURE() << problem.text;
  for (const Problem& problem : Verify(parsed.program)) {
    ADD_FAILURE() << ToString(parsed.program, problem);
  }
  auto plan = MakePlan(Simplify(parsed.program));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

std::vector<StepKind> KindsOf(const Plan& plan) {
  std::vector<StepKind> kinds;
  for (const Step& step : plan.steps) kinds.push_back(step.kind);
  return kinds;
}

TEST(TransfersTest, WhatIsSentDoesNotWaitForWhatIsReceived) {
  // One kernel could do both sums: they read the same elements.
  const Plan plan = SimplifiedPlan(
      "buffer @x read 4096\n"
      "buffer @s write 4096\n"
      "%x = input @x : f32[1024]\n"
      "%r = recv device=2 key=\"y\" : f32[1024]\n"
      "%s = add %x, %r\n"
      "store @s, %s\n"
      "%y = negate %x\n"
      "send %y device=2 key=\"y\"\n");
  EXPECT_THAT(KindsOf(plan),
              ElementsAre(StepKind::kRecv, StepKind::kKernel, StepKind::kSend, StepKind::kKernel));
  const std::vector<PlanTransfer> transfers = TransfersOf(plan);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_FALSE(transfers[0].sends);
  EXPECT_EQ(transfers[0].step, 0u);
  EXPECT_TRUE(transfers[1].sends);
  EXPECT_EQ(transfers[1].step, 2u);
  EXPECT_EQ(transfers[1].device, 2u);
  EXPECT_EQ(transfers[1].key, "y");
  EXPECT_TRUE(transfers[1].at.slot);
  const std::vector<Section> sections = SectionsOf(plan);
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[0].end, 3u);
  EXPECT_THAT(sections[0].awaited, IsEmpty());
  EXPECT_EQ(sections[1].end, 4u);
  EXPECT_THAT(sections[1].awaited, ElementsAre(0u));
}

TEST(TransfersTest, PartsLeaveAsTheyAreMade) {
  const Plan plan = SimplifiedPlan(
      "buffer @x read 4096\n"
      "buffer @y write 4096\n"
      "%x = input @x : f32[8,128]\n"
      "%h = convert %x : bf16[8,128]\n"
      "send %h device=2 key=\"k\" parts=2\n"
      "%r = recv device=2 key=\"r\" parts=2 : bf16[8,128]\n"
      "%y = convert %r : f32[8,128]\n"
      "store @y, %y\n");
  EXPECT_THAT(KindsOf(plan), ElementsAre(StepKind::kRecv, StepKind::kRecv, StepKind::kKernel,
                                         StepKind::kSend, StepKind::kKernel, StepKind::kSend,
                                         StepKind::kKernel, StepKind::kKernel));
  const std::vector<PlanTransfer> transfers = TransfersOf(plan);
  ASSERT_EQ(transfers.size(), 4u);
  for (const PlanTransfer& transfer : transfers) {
    EXPECT_EQ(ToString(transfer.type), "bf16[4,128]");
  }
  EXPECT_EQ(transfers[2].key, "k/0");
  EXPECT_EQ(transfers[3].key, "k/1");
  // What is made of a part waits for no other part.
  const std::vector<Section> sections = SectionsOf(plan);
  ASSERT_EQ(sections.size(), 3u);
  EXPECT_EQ(sections[0].end, 6u);
  EXPECT_THAT(sections[1].awaited, ElementsAre(0u));
  EXPECT_THAT(sections[2].awaited, ElementsAre(1u));
}

TEST(TransfersTest, APartIsOnItsWayBeforeTheNextOneBegins) {
  const Plan plan = SimplifiedPlan(
      "buffer @x read 4096\n"
      "%x = input @x : f32[8,128]\n"
      "%a = cumulative_sum %x dimension=1\n"
      "%b = exponential %a\n"
      "%c = cumulative_sum %b dimension=1\n"
      "send %c device=2 key=\"k\" parts=4\n");
  size_t sent = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].kind != StepKind::kSend) continue;
    ++sent;
    EXPECT_EQ((i + 1) * 4, plan.steps.size() * sent) << ToText(plan, true);
  }
  EXPECT_EQ(sent, 4u);
}

TEST(TransfersTest, RowsAreSentFromWhereTheWholeIs) {
  const Plan plan = SimplifiedPlan(
      "buffer @x read 4096\n"
      "buffer @y write 4096\n"
      "%x = input @x : f32[32,32]\n"
      "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[0]\n"
      "send %p device=2 key=\"p\" parts=4\n"
      "send %x device=2 key=\"x\" parts=2\n"
      "%s = slice %p start=[3,0] limit=[5,32]\n"
      "send %s device=2 key=\"s\"\n"
      "store @y, %p\n");
  std::map<std::string, std::pair<bool, uint64_t>> from;
  for (const PlanTransfer& transfer : TransfersOf(plan)) {
    from[transfer.key] = {transfer.at.slot, transfer.offset};
  }
  using At = std::pair<bool, uint64_t>;
  EXPECT_EQ(from["p/0"], At(true, 0));
  EXPECT_EQ(from["p/1"], At(true, 1024));
  EXPECT_EQ(from["p/3"], At(true, 3072));
  EXPECT_EQ(from["x/1"], At(false, 2048));
  EXPECT_EQ(from["s"], At(true, 384));
  EXPECT_EQ(plan.slots.size(), 1u) << ToText(plan, true);
}

// Run by all members of a ring at once, each of which sends to the next what it receives of the one
// before by the same key: what a section awaits was begun at the other end in a section before.
::testing::AssertionResult RingEnds(const Plan& plan) {
  const std::vector<PlanTransfer> transfers = TransfersOf(plan);
  size_t begin = 0;
  for (const Section& section : SectionsOf(plan)) {
    for (const size_t awaited : section.awaited) {
      const bool begun =
          std::any_of(transfers.begin(), transfers.end(), [&](const PlanTransfer& other) {
            return other.sends != transfers[awaited].sends && other.key == transfers[awaited].key &&
                   other.step < begin;
          });
      if (!begun) {
        return ::testing::AssertionFailure()
               << "nobody has begun '" << transfers[awaited].key << "' when all wait for it:\n"
               << ToText(plan);
      }
    }
    begin = section.end;
  }
  return ::testing::AssertionSuccess();
}

TEST(TransfersTest, RingsDoNotWaitForThemselves) {
  const std::string head =
      "buffer @x read 4096\nbuffer @o write 4096\nbuffer @p write 4096\n"
      "buffer @w read 4096\n%x = input @x : f32[1024]\n%w = input @w : f32[1024]\n";
  // An all-gather: what comes is handed on, after one's own.
  EXPECT_TRUE(RingEnds(SimplifiedPlan(
      head +
      "%q = convert %x : bf16[1024]\nsend %q peer=\"next\" key=\"0\"\n"
      "%r0 = recv peer=\"before\" key=\"0\" : bf16[1024]\nsend %r0 peer=\"next\" key=\"1\"\n"
      "%r1 = recv peer=\"before\" key=\"1\" : bf16[1024]\n%f0 = convert %r0 : f32[1024]\n"
      "%f1 = convert %r1 : f32[1024]\n%s = add %f0, %f1\nstore @o, %s\n")));
  // What is sent reads what is not, which reads what is received: fused one by one.
  EXPECT_TRUE(RingEnds(SimplifiedPlan(
      head +
      "%p = exponential %x\n%s = reverse %p dimensions=[0]\n%a = add %s, %w\nstore @o, %a\n"
      "%b = negate %w\nsend %b peer=\"next\" key=\"k\"\n"
      "%r = recv peer=\"before\" key=\"k\" : f32[1024]\n%q = add %x, %r\nstore @p, %q\n")));
  // What nobody else waits for comes last.
  EXPECT_TRUE(RingEnds(SimplifiedPlan(
      head +
      "%r1 = recv peer=\"before\" key=\"a\" : f32[1024]\n%f = exponential %r1\nstore @o, %f\n"
      "%r3 = recv peer=\"before\" key=\"base\" : f32[1024]\n%g = tanh %r3\n"
      "send %g peer=\"next\" key=\"a\"\nsend %x peer=\"next\" key=\"base\"\n"
      "store @p, %w\n")));
  // The test sees it if they do.
  EXPECT_FALSE(RingEnds(
      SimplifiedPlan(head + "%r = recv peer=\"before\" key=\"k\" : f32[1024]\n%s = add %x, %r\n"
                            "send %s peer=\"next\" key=\"k\"\nstore @o, %w\nstore @p, %w\n")));
}

TEST(TransfersTest, WhatNobodySendsIsFusedWithWhatIsReceived) {
  const Plan plan = SimplifiedPlan(
      "buffer @x read 4096\n"
      "buffer @s write 4096\n"
      "%x = input @x : f32[1024]\n"
      "%y = negate %x\n"
      "%r = recv device=2 key=\"y\" : f32[1024]\n"
      "%s = add %y, %r\n"
      "store @s, %s\n");
  EXPECT_THAT(KindsOf(plan), ElementsAre(StepKind::kRecv, StepKind::kKernel));
}

TEST(TransfersTest, OfTwoReceivesASendWaitsForItsOwn) {
  const Plan plan = SimplifiedPlan(
      "buffer @s write 4096\n"
      "%a = recv device=2 key=\"a\" : f32[1024]\n"
      "%b = recv device=3 key=\"b\" : f32[1024]\n"
      "%c = add %a, %b\n"
      "store @s, %c\n"
      "%d = negate %a\n"
      "send %d device=3 key=\"d\"\n");
  EXPECT_THAT(KindsOf(plan), ElementsAre(StepKind::kRecv, StepKind::kRecv, StepKind::kKernel,
                                         StepKind::kSend, StepKind::kKernel));
  const std::vector<Section> sections = SectionsOf(plan);
  ASSERT_EQ(sections.size(), 3u);
  EXPECT_THAT(sections[1].awaited, ElementsAre(0u));
  EXPECT_THAT(sections[2].awaited, ElementsAre(1u));
}

TEST(TransfersTest, AFactorIsNotAbsorbedByAProductThatWaitsLonger) {
  const Plan plan = SimplifiedPlan(
      "buffer @x read 16384\n"
      "buffer @s write 16384\n"
      "%x = input @x : f32[64,64]\n"
      "%y = negate %x\n"
      "send %y device=2 key=\"y\"\n"
      "%r = recv device=2 key=\"r\" : f32[64,64]\n"
      "%p = dot_general %y, %r lhs_contract=[1] rhs_contract=[0] : f32[64,64]\n"
      "store @s, %p\n");
  const std::vector<Section> sections = SectionsOf(plan);
  ASSERT_EQ(sections.size(), 2u);
  size_t sent = 0;
  while (plan.steps[sent].kind != StepKind::kSend) ++sent;
  EXPECT_LT(sent, sections[0].end);
}

TEST(TransfersTest, WhatIsSentOfABufferStaysUntilItIsOver) {
  const Plan plan = SimplifiedPlan(
      "buffer @x read_write 4096 donated\n"
      "%x = input @x offset=1024 : f32[256]\n"
      "^s: send %x device=2 key=\"x\"\n"
      "%one = constant splat=1 : f32[1024]\n"
      "store @x, %one after ^s\n");
  const std::vector<PlanTransfer> transfers = TransfersOf(plan);
  ASSERT_EQ(transfers.size(), 1u);
  EXPECT_FALSE(transfers[0].at.slot);
  EXPECT_EQ(transfers[0].offset, 1024u);
  const std::vector<Section> sections = SectionsOf(plan);
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_THAT(sections[1].awaited, ElementsAre(0u));
}

TEST(TransfersTest, ASendWaitsForNoReaderOfWhatIsWrittenOver) {
  // What reads @x's old elements waits for a receive; who sends the new ones must not.
  const Plan plan = SimplifiedPlan(
      "buffer @x read_write 4096 donated\n"
      "buffer @s write 4096\n"
      "^i: %x = input @x : f32[1024]\n"
      "%r = recv device=2 key=\"r\" : f32[1024]\n"
      "%s = add %x, %r\n"
      "store @s, %s\n"
      "%one = constant splat=1 : f32[1024]\n"
      "^w: store @x, %one after ^i\n"
      "^j: %y = input @x : f32[1024] after ^w\n"
      "send %y device=2 key=\"y\"\n");
  const std::vector<Section> sections = SectionsOf(plan);
  ASSERT_EQ(sections.size(), 2u);
  size_t sent = 0;
  while (plan.steps[sent].kind != StepKind::kSend) ++sent;
  EXPECT_LT(sent, sections[0].end);
}

TEST(TransfersTest, WhatIsReceivedForNobodyHasItsMemoryToTheEnd) {
  const Plan plan = SimplifiedPlan(
      "buffer @x read 65536\n"
      "buffer @y write 65536\n"
      "%r = recv device=2 key=\"r\" : f32[64,256]\n"
      "%x = input @x : f32[64,256]\n"
      "%t = transpose %x permutation=[1,0]\n"
      "%u = tanh %t\n"
      "%v = transpose %u permutation=[1,0]\n"
      "store @y, %v\n");
  const std::vector<PlanTransfer> transfers = TransfersOf(plan);
  ASSERT_EQ(transfers.size(), 1u);
  EXPECT_EQ(plan.slots[transfers[0].at.index].last, plan.steps.back().number);
}

// Of random programs: what each step waits for, by the plan's own order, contains no transfer that
// what it sends is not made of.
TEST(TransfersTest, NoSendOfARandomProgramWaitsForMoreThanItMust) {
  size_t sends = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Program program = testing::ProgramGenerator(seed, {80, 5}).Make();
    testing::StoreAll(program);
    const auto plan = MakePlan(program);
    ASSERT_TRUE(plan.ok());
    // By op of the program, the transfers that it needs: by values and by order.
    std::vector<std::set<OpIndex>> needs(program.nodes.size());
    const std::vector<OpIndex> definitions = DefinitionsOf(program);
    const auto is_transfer = [](const Node& node) {
      return node.op == Op::kSend || node.op == Op::kRecv;
    };
    const auto add = [&](OpIndex op, OpIndex other) {
      needs[op].insert(needs[other].begin(), needs[other].end());
      if (is_transfer(program.nodes[other])) needs[op].insert(other);
    };
    for (OpIndex i = 0; i < program.nodes.size(); ++i) {
      for (const ValueId value : program.nodes[i].operands) {
        if (definitions[value] < i) add(i, definitions[value]);
      }
      for (const OpIndex other : program.nodes[i].after) add(i, other);
      // What a body needs its repeat needs.
      for (OpIndex j = 0; j < i; ++j) {
        if (j + program.nodes[j].body >= i) needs[j].insert(needs[i].begin(), needs[i].end());
      }
    }
    std::vector<std::set<OpIndex>> waits(plan->steps.size());
    std::map<uint32_t, size_t> index;
    for (size_t i = 0; i < plan->steps.size(); ++i) {
      const Step& step = plan->steps[i];
      index[step.number] = i;
      for (const uint32_t number : step.after) {
        const size_t other = index.at(number);
        waits[i].insert(waits[other].begin(), waits[other].end());
        if (plan->steps[other].kind != StepKind::kSend &&
            plan->steps[other].kind != StepKind::kRecv) {
          continue;
        }
        for (const int64_t origin : plan->steps[other].origins) {
          if (origin >= 0 && is_transfer(program.nodes[static_cast<size_t>(origin)])) {
            waits[i].insert(static_cast<OpIndex>(origin));
          }
        }
      }
      if (step.kind != StepKind::kSend) continue;
      // What waits for nothing waits for no step before it either.
      EXPECT_TRUE(!waits[i].empty() || i < SectionsOf(*plan)[0].end) << "seed " << seed;
      for (const int64_t origin : step.origins) {
        if (origin < 0 || program.nodes[static_cast<size_t>(origin)].op != Op::kSend) continue;
        ++sends;
        for (const OpIndex wait : waits[i]) {
          EXPECT_TRUE(needs[static_cast<size_t>(origin)].contains(wait))
              << "seed " << seed << ": send op " << origin << " waits for op " << wait;
        }
      }
    }
  }
  EXPECT_GT(sends, 300u);
}

}  // namespace
}  // namespace ferry::compute
