// SPDX-License-Identifier: Apache-2.0
#include "compute/program/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "compute/program/text.h"

namespace ferry::compute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Program Read(const std::string& text) {
  const ParsedText parsed = Parse(absl::StrCat("program 1\n", text));
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ":" << problem.column << ": " << problem.text;
  }
  return parsed.program;
}

// "op rule" of each problem.
std::vector<std::string> RulesOf(const Program& program) {
  std::vector<std::string> rules;
  for (const Problem& problem : Verify(program)) {
    rules.push_back(absl::StrCat(problem.op, " ", problem.rule));
  }
  return rules;
}

constexpr char kBuffers[] = R"(buffer @in read 64
buffer @out write 64
buffer @both read_write 64
buffer @given read_write 64 donated
%x = constant splat=1 : f32[4]
)";

std::vector<std::string> After(const std::string& text) {
  return RulesOf(Read(absl::StrCat(kBuffers, text)));
}

TEST(VerifyTest, WritersOfOneRangeComeOneAfterTheOther) {
  EXPECT_THAT(After("store @out, %x\nstore @out, %x offset=12\n"), ElementsAre("2 two writers"));
  EXPECT_THAT(After("store @out, %x\nstore @out, %x offset=16\n"), IsEmpty());
  EXPECT_THAT(After("^a: store @out, %x\nstore @out, %x after ^a\n"), IsEmpty());
  EXPECT_THAT(After("^a: store @out, %x\n^b: keep %x after ^a\nstore @out, %x after ^b\n"),
              IsEmpty());
  EXPECT_THAT(After("accumulate @both, %x\naccumulate @both, %x\n"), ElementsAre("2 two writers"));
  EXPECT_THAT(After("store @out, %x\ncopy @out, @in bytes=4 offset=12\n"),
              ElementsAre("2 two writers"));
  EXPECT_THAT(After("%e = constant splat=1 : f32[0]\nstore @out, %e\nstore @out, %e\n"), IsEmpty());
}

// All pairs of as many writers as there may be, in an order that only their chain tells.
TEST(VerifyTest, AChainOrdersAllWriters) {
  std::string text = absl::StrCat(kBuffers, "^0: store @out, %x\n");
  for (size_t i = 1; i < kMaxOps - 1; ++i) {
    absl::StrAppend(&text, "^", i, ": store @out, %x after ^", i - 1, "\n");
  }
  EXPECT_THAT(RulesOf(Read(text)), IsEmpty());
}

TEST(VerifyTest, OrderAlsoFollowsFromValues) {
  EXPECT_THAT(After("%y = input @given : f32[4]\n%z = add %x, %y\nstore @given, %z\n"), IsEmpty());
  EXPECT_THAT(After("%y = input @given : f32[4]\nstore @given, %x\n"), ElementsAre("2 order"));
}

TEST(VerifyTest, WhatAnOpWritesIsReadOnlyAfterIt) {
  EXPECT_THAT(After("store @both, %x\n%y = input @both : f32[4]\n"), ElementsAre("2 order"));
  EXPECT_THAT(After("^a: store @both, %x\n%y = input @both : f32[4] after ^a\n"), IsEmpty());
  EXPECT_THAT(After("store @both, %x\ncopy @out, @both bytes=8\n"), ElementsAre("2 order"));
}

TEST(VerifyTest, OnlyWhatIsDonatedIsChangedInPlace) {
  const std::string in_place = "%y = input @$ : f32[4]\n%z = add %x, %y\nstore @$, %z\n";
  EXPECT_THAT(After(absl::StrReplaceAll(in_place, {{"$", "both"}})), ElementsAre("3 in place"));
  EXPECT_THAT(After(absl::StrReplaceAll(in_place, {{"$", "given"}})), IsEmpty());
  EXPECT_THAT(RulesOf(Read("buffer @b write 4 donated\n")), ElementsAre("-1 donation"));
  EXPECT_THAT(RulesOf(Read("buffer @b write 4 constant\n")), ElementsAre("-1 constant"));
  EXPECT_THAT(RulesOf(Read("buffer @b read_write 4 constant\n")), ElementsAre("-1 constant"));
}

TEST(VerifyTest, ABodyIsLookedAtByItselfAndAsOneOp) {
  EXPECT_THAT(After("repeat trips=2 (%i)\n  store @out, %x\n  store @out, %x\n  yield\n"),
              ElementsAre("3 two writers"));
  EXPECT_THAT(After("store @out, %x\nrepeat trips=2 (%i)\n  store @out, %x\n  yield\n"),
              ElementsAre("3 two writers"));
  EXPECT_THAT(
      After("^a: store @out, %x\nrepeat trips=2 (%i) after ^a\n  store @out, %x\n  yield\n"),
      IsEmpty());
  // A value that is used within makes the whole of it come after.
  EXPECT_THAT(After("%y = input @given : f32[4]\nrepeat trips=2 (%i)\n  %z = abs %y\n"
                    "  store @given, %z\n  yield\n"),
              IsEmpty());
  EXPECT_THAT(
      After("^a: store @out, %x\nrepeat trips=2 (%i)\n  store @out, %x after ^a\n  yield\n"),
      ElementsAre("3 after"));
}

TEST(VerifyTest, AKeyIsUsedOnceForASideAndADevice) {
  EXPECT_THAT(After("send %x device=1 key=\"k\"\nsend %x device=1 key=\"k\"\n"),
              ElementsAre("2 key"));
  EXPECT_THAT(After("send %x device=1 key=\"k\"\nsend %x device=2 key=\"k\"\n"
                    "%y = recv device=1 key=\"k\" : f32[4]\n"),
              IsEmpty());
  EXPECT_THAT(After("send %x peer=\"p\" key=\"k\"\nsend %x peer=\"p\" key=\"k\"\n"),
              ElementsAre("2 key"));
  EXPECT_THAT(After("send %x peer=\"p\" key=\"k\"\nsend %x peer=\"q\" key=\"k\"\n"
                    "send %x device=1 key=\"k\"\n"),
              IsEmpty());
  EXPECT_THAT(After("send %x peer=\"p\" device=1 key=\"k\"\nsend %x key=\"k\"\n"),
              ElementsAre("1 attributes", "2 attributes"));
}

// Those of one with parts are the parts'.
TEST(VerifyTest, ATransferInPartsHasAKeyForEach) {
  EXPECT_THAT(After("send %x device=1 key=\"k\" parts=4\nsend %x device=1 key=\"k\"\n"
                    "%y = recv device=1 key=\"k\" parts=4 : f32[4]\n"),
              IsEmpty());
  EXPECT_THAT(After("send %x device=1 key=\"k\" parts=4\nsend %x device=1 key=\"k/3\"\n"),
              ElementsAre("2 key"));
  EXPECT_THAT(After("send %x device=1 key=\"k\" parts=5\n"), ElementsAre("1 parts"));
  EXPECT_THAT(After("%y = recv device=1 key=\"k\" parts=2 : f32[]\n"), ElementsAre("1 parts"));
  const std::string long_key(62, 'k');
  EXPECT_THAT(After(absl::StrCat("send %x device=1 key=\"", long_key, "\" parts=2\n")), IsEmpty());
  EXPECT_THAT(After(absl::StrCat("send %x device=1 key=\"", long_key, "k\" parts=2\n")),
              ElementsAre("1 parts"));
  EXPECT_THAT(After("^a: send %x device=1 key=\"k\" parts=2\nkeep %x after ^a\n"),
              ElementsAre("1 parts"));
  EXPECT_THAT(After("^a: keep %x\nsend %x device=1 key=\"k\" parts=2 after ^a\n"),
              ElementsAre("2 parts"));
  std::string many = "%w = constant splat=1 : f32[64]\n";
  for (int i = 0; i < 32; ++i) {
    absl::StrAppend(&many, "send %w device=1 key=\"", i, "\" parts=64\n");
  }
  EXPECT_THAT(After(many), ElementsAre("33 parts"));
}

TEST(VerifyTest, ListsEveryProblemWithOpLabelAndTypes) {
  const Program program = Read(
      "%x = constant splat=1 : f32[4]\n%y = constant splat=1 : f32[5]\n"
      "%z = add %x, %y : f32[4] \"sum\"\n%w = abs %x : f16[4]\n");
  const auto problems = Verify(program);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(ToString(program, problems[0]),
            "op 2 add 'sum': same type: operands 0 and 1 are f32[4] and f32[5]");
  EXPECT_EQ(ToString(program, problems[1]),
            "op 3 abs: result: the result is f32[4], the program says f16[4]");
  const absl::Status status = ToStatus(program, problems);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(HasReason(status, Reason::kFieldInvalid));
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 problems"));
}

TEST(VerifyTest, TheReasonIsTheOneThatAllShare) {
  const Program overlap = Read(absl::StrCat(kBuffers, "store @out, %x\nstore @out, %x\n"));
  EXPECT_TRUE(HasReason(ToStatus(overlap, Verify(overlap)), Reason::kRangeOverlap));
  const Program outside = Read(absl::StrCat(kBuffers, "store @out, %x offset=60\n"));
  EXPECT_TRUE(HasReason(ToStatus(outside, Verify(outside)), Reason::kRangeInvalid));
  const Program good = Read("");
  EXPECT_TRUE(ToStatus(good, Verify(good)).ok());
}

std::vector<std::string> WithEmpty(const std::string& text) {
  return After(absl::StrCat("%e = empty : f32[4]\n", text));
}

TEST(VerifyTest, WhatNothingWasWrittenToIsNotRead) {
  EXPECT_THAT(WithEmpty("%a = add %x, %e\n"), ElementsAre("2 written"));
  EXPECT_THAT(WithEmpty("%a = add %e, %e\n"), ElementsAre("2 written", "2 written"));
  EXPECT_THAT(WithEmpty("%a = convert %e : bf16[4]\n"), ElementsAre("2 written"));
  EXPECT_THAT(WithEmpty("%a = reduce %e reduction=sum dimensions=[0]\n"), ElementsAre("2 written"));
  EXPECT_THAT(WithEmpty("store @out, %e\n"), ElementsAre("2 written"));
  EXPECT_THAT(WithEmpty("send %e device=1 key=\"k\"\n"), ElementsAre("2 written"));
  EXPECT_THAT(WithEmpty("keep %e\n"), ElementsAre("2 written"));
  const Program program = Read("%e = empty : f32[4] \"scratch\"\n%a = abs %e \"first\"\n");
  EXPECT_EQ(
      ToString(program, Verify(program)[0]),
      "op 1 abs 'first': written: operand 0 is read, and nothing was written to it since op 0 "
      "empty: begin with a constant");
}

TEST(VerifyTest, WhatIsEmptyStaysSoWhereverItIsMoved) {
  EXPECT_THAT(WithEmpty("%a = reshape %e : f32[2,2]\n%b = transpose %a permutation=[1,0]\n"
                        "%c, %d = barrier %b, %x\nkeep %c\nkeep %d\n"),
              ElementsAre("5 written"));
  EXPECT_THAT(WithEmpty("%i = constant splat=1 : i32[]\n%a = dynamic_slice %e, %i sizes=[2]\n"
                        "store @out, %a\n"),
              ElementsAre("4 written"));
  EXPECT_THAT(After("%i = empty : i32[]\n%a = dynamic_slice %x, %i sizes=[2]\n"),
              ElementsAre("2 written"));
}

TEST(VerifyTest, WhatIsWrittenInPartMayBeRead) {
  EXPECT_THAT(WithEmpty("%a = concatenate %x, %e dimension=0\n%b = abs %a\nkeep %b\n"), IsEmpty());
  EXPECT_THAT(WithEmpty("%p = constant splat=true : bool[4]\n%a = select %p, %x, %e\nkeep %a\n"),
              IsEmpty());
  EXPECT_THAT(WithEmpty("%s = constant splat=1 : f32[]\n%a = pad %e, %s low=[1]\nkeep %a\n"),
              IsEmpty());
  EXPECT_THAT(After("%e = empty : f32[0]\nkeep %e\n"), IsEmpty());
}

TEST(VerifyTest, WhatATripReadsTheOneBeforeHasWritten) {
  EXPECT_THAT(WithEmpty("%r = repeat %e trips=3 (%i, %a)\n  yield %x\nkeep %r\n"), IsEmpty());
  EXPECT_THAT(WithEmpty("%r = repeat %e trips=3 (%i, %a)\n  %b = abs %a\n  yield %b\nkeep %r\n"),
              ElementsAre("3 written"));
  EXPECT_THAT(WithEmpty("%r = repeat %e trips=0 (%i, %a)\n  %b = abs %a\n  yield %b\nkeep %r\n"),
              ElementsAre("4 written"));
  // The second trip reads what the first yields.
  EXPECT_THAT(WithEmpty("%r = repeat %x trips=2 (%i, %a)\n  keep %a\n  yield %e\n"),
              ElementsAre("3 written"));
  EXPECT_THAT(WithEmpty("%r = repeat %x trips=1 (%i, %a)\n  keep %a\n  yield %e\n"), IsEmpty());
  // Three values in turn.
  const auto turned = [](const std::string& trips, const std::string& rest) {
    return WithEmpty(
        absl::StrCat("%r, %s, %t = repeat %x, %x, %e trips=", trips, " (%i, %a, %b, %c)\n", rest));
  };
  EXPECT_THAT(turned("3", "  keep %a\n  yield %b, %c, %a\n"), ElementsAre("3 written"));
  EXPECT_THAT(turned("2", "  keep %a\n  yield %b, %c, %a\n"), IsEmpty());
  EXPECT_THAT(turned("1000001", "  yield %b, %c, %a\nkeep %t\n"), IsEmpty());
  EXPECT_THAT(turned("1000001", "  yield %b, %c, %a\nkeep %r\n"), ElementsAre("3 written"));
  EXPECT_THAT(turned("1000001", "  yield %b, %c, %a\nkeep %s\n"), IsEmpty());
  EXPECT_THAT(turned("1000000", "  yield %b, %c, %a\nkeep %s\n"), ElementsAre("3 written"));
}

TEST(VerifyTest, WhatARunCostsHasALimit) {
  const Program program = Read(
      "%x = constant splat=1 : f32[1000]\nrepeat trips=1000 (%i)\n  repeat trips=1000 (%j)\n"
      "    %y = add %x, %x\n    yield\n  yield\n");
  EXPECT_THAT(RulesOf(program), IsEmpty());
  Limits limits;
  limits.flops = 999'999'999;
  ASSERT_EQ(Verify(program, limits).size(), 1u);
  EXPECT_EQ(Verify(program, limits)[0].reason, Reason::kBatchTooLarge);
  limits = {};
  limits.steps = 1'001'000;
  EXPECT_EQ(Verify(program, limits).size(), 1u);
}

TEST(VerifyTest, CountsAreLimited) {
  Program program;
  for (size_t i = 0; i <= kMaxOps; ++i) {
    Node node;
    node.attributes = {{Attribute::kSplat, std::string(4, '\0')}};
    program.Append(node, {{DType::kF32, {}}});
  }
  EXPECT_THAT(RulesOf(program), ElementsAre("-1 limits"));
}

TEST(VerifyTest, NumbersThatMeanNothingAreFound) {
  const Program good = Read("%x = constant splat=1 : f32[]\n%y = add %x, %x\nkeep %y\n");
  Program bad = good;
  bad.nodes[1].operands[0] = 9;
  EXPECT_THAT(RulesOf(bad), ElementsAre("1 structure"));
  bad = good;
  bad.nodes[1].operands[0] = 1;  // itself
  EXPECT_THAT(RulesOf(bad), ElementsAre("1 scope"));
  bad = good;
  bad.nodes[1].after = {1};
  EXPECT_THAT(RulesOf(bad), ElementsAre("1 structure"));
  bad = good;
  bad.nodes[1].buffers = {0};
  EXPECT_THAT(RulesOf(bad), ElementsAre("1 structure", "1 structure"));
  bad = good;
  bad.nodes[1].body = 1;
  EXPECT_THAT(RulesOf(bad), ElementsAre("1 structure"));
  bad = good;
  bad.nodes[1].first_result = 0;
  EXPECT_THAT(RulesOf(bad), ElementsAre("1 structure"));
  bad = good;
  bad.types.emplace_back();
  EXPECT_THAT(RulesOf(bad), ElementsAre("-1 structure"));
  bad = good;
  bad.buffers = {{"a b", Access::kRead, 4}, {"c", Access::kRead, 4}, {"c", Access::kRead, 4}};
  EXPECT_THAT(RulesOf(bad), ElementsAre("-1 buffers", "-1 buffers"));
}

}  // namespace
}  // namespace ferry::compute
