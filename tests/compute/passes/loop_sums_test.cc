// SPDX-License-Identifier: Apache-2.0
// Which sums of loops are made before they are reduced, and which are not. The golden dumps
// "motion-..." show what they become.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute {
namespace {

// A loop of four trips that has %x, f32[8,4], and carries %zero, f32[8].
struct Loop {
  std::string body;  // makes %n of the carried %sum
  std::string numerics = "allow_reassociation\n";
  std::string carried = "f32[8]";
  std::string dtype = "f32";
  std::string trips = "4";
  std::string zero = "0";
};

std::string TextOf(const Loop& loop) {
  return absl::StrCat("program 1\n", loop.numerics,
                      "buffer @x read 256\nbuffer @y write 64\nbuffer @w write 64\n",
                      "%x = input @x : ", loop.dtype, "[8,4]\n%zero = constant splat=", loop.zero,
                      " : ", loop.carried,
                      "\n%some = constant values=[true,false,true,false,true,false,true,false] : "
                      "bool[8]\n%five = constant splat=5 : i32[]\n",
                      "%t = repeat %zero trips=", loop.trips, " (%i, %sum)\n", loop.body,
                      "  yield %n\nstore @y, %t\n");
}

// How many sums were moved out of the loop; they are all good programs.
int MovedIn(const Loop& loop) {
  const ParsedText parsed = Parse(TextOf(loop));
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ": " << problem.text;
  }
  for (const Problem& problem : Verify(parsed.program)) {
    ADD_FAILURE() << ToString(parsed.program, problem);
  }
  const Program after = MoveReductionsOutOfLoops(parsed.program);
  for (const Problem& problem : Verify(after)) ADD_FAILURE() << ToString(after, problem);
  EXPECT_EQ(MoveReductionsOutOfLoops(after), after);
  const auto inside = [](const Program& program) {
    const std::vector<int64_t> parents = ParentsOf(program);
    int count = 0;
    for (size_t i = 0; i < program.nodes.size(); ++i) {
      count += program.nodes[i].op == Op::kReduce && parents[i] >= 0 ? 1 : 0;
    }
    return count;
  };
  const int moved = inside(parsed.program) - inside(after);
  EXPECT_EQ(moved == 0, after == parsed.program) << Print(after);
  return moved;
}

constexpr char kSum[] = "  %r = reduce %x reduction=sum dimensions=[1]\n";
std::string Added(const std::string& value) {
  return absl::StrCat(kSum, "  %n = add %sum, ", value, "\n");
}

TEST(LoopSumsTest, ASumIsMadeBeforeItIsReduced) { EXPECT_EQ(MovedIn({Added("%r")}), 1); }

TEST(LoopSumsTest, TheOrderOfTheOperandsDoesNotMatter) {
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %n = add %r, %sum\n")}), 1);
}

TEST(LoopSumsTest, FloatingSumsStayIfTheyMayNotBeReordered) {
  EXPECT_EQ(MovedIn({Added("%r"), ""}), 0);
}

TEST(LoopSumsTest, SumsOfIntegersAreExactInAnyOrder) {
  EXPECT_EQ(MovedIn({Added("%r"), "", "i32[8]", "i32"}), 1);
  EXPECT_EQ(MovedIn({Added("%r"), "", "u8[8]", "u8"}), 1);
}

TEST(LoopSumsTest, HalvesAreSummedInF32) {
  for (const std::string dtype : {"bf16", "f16"}) {
    Loop loop{Added("%r"), "allow_reassociation\n", dtype + "[8]", dtype};
    loop.zero = "x0000";
    EXPECT_EQ(MovedIn(loop), 1);
    const Program after = MoveReductionsOutOfLoops(Parse(TextOf(loop)).program);
    EXPECT_NE(Print(after).find(": f32[8,4]\n"), std::string::npos) << Print(after);
  }
}

TEST(LoopSumsTest, OtherReductionsStay) {
  for (const char* reduction : {"product", "max", "min"}) {
    EXPECT_EQ(MovedIn({absl::StrCat("  %r = reduce %x reduction=", reduction,
                                    " dimensions=[1]\n  %n = add %sum, %r\n")}),
              0);
  }
}

TEST(LoopSumsTest, OnlyWhatIsAddedIsMoved) {
  for (const char* op : {"subtract", "multiply", "maximum"}) {
    EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %n = ", op, " %sum, %r\n")}), 0);
  }
}

TEST(LoopSumsTest, ASumThatTheBodyReadsStays) {
  EXPECT_EQ(MovedIn({absl::StrCat(Added("%r"), "  %d = abs %sum\n  store @w, %d\n")}), 0);
  EXPECT_EQ(MovedIn({absl::StrCat(Added("%r"), "  store @w, %n\n")}), 0);
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %m = add %sum, %r\n  %n = abs %m\n")}), 0);
}

TEST(LoopSumsTest, ASumOfItselfStays) {
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %m = add %sum, %sum\n  %n = add %m, %r\n")}), 0);
}

TEST(LoopSumsTest, AReductionThatIsUsedElsewhereStays) {
  EXPECT_EQ(MovedIn({absl::StrCat(Added("%r"), "  store @w, %r\n")}), 0);
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %d = convert %r : f64[8]\n  keep %d\n",
                                  "  %n = add %sum, %r\n")}),
            0);
}

TEST(LoopSumsTest, ASecondAccumulationOfTheSameStays) {
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %m = add %sum, %r\n  %n = add %m, %r\n")}), 0);
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %m = add %r, %r\n  %n = add %sum, %m\n")}), 0);
}

TEST(LoopSumsTest, WhatOnlyMovesElementsMayBeBetween) {
  EXPECT_EQ(MovedIn({absl::StrCat(
                kSum,
                "  %a = reshape %r : f32[2,4]\n  %b = transpose %a permutation=[1,0]\n"
                "  %c = reverse %b dimensions=[0]\n  %d = slice %c start=[0,0] limit=[4,1]\n"
                "  %e = broadcast_in_dim %d dimensions=[0,1] : f32[4,2]\n"
                "  %f = reshape %e : f32[8]\n  %n = add %sum, %f\n")}),
            1);
}

TEST(LoopSumsTest, ASliceThatIsTheSameEachTripMayBeBetween) {
  const std::string slice = "  %s = dynamic_slice %r, ";
  const std::string sizes = " sizes=[8]\n  %n = add %sum, %s\n";
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, slice, "%five", sizes)}), 1);
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, slice, "%i", sizes)}), 0);
}

TEST(LoopSumsTest, AConversionThatLosesNothingMayBeBetween) {
  const std::string wider = "  %d = convert %r : f64[8]\n  %n = add %sum, %d\n";
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, wider), "allow_reassociation\n", "f64[8]"}), 1);
}

TEST(LoopSumsTest, AConversionThatRoundsIsMeant) {
  const std::string narrower = "  %d = convert %r : bf16[8]\n  %n = add %sum, %d\n";
  Loop loop{absl::StrCat(kSum, narrower), "allow_reassociation\n", "bf16[8]"};
  loop.zero = "x0000";
  EXPECT_EQ(MovedIn(loop), 0);
  const std::string small = absl::StrCat(
      kSum, "  %d = convert %r : f8e5m2[8]\n  %e = convert %d : f32[8]\n  %n = add %sum, %e\n");
  EXPECT_EQ(MovedIn({small}), 0);
}

TEST(LoopSumsTest, IntegersMayLoseBitsButGetNone) {
  const auto converted = [](const std::string& to) {
    return absl::StrCat(kSum, "  %d = convert %r : ", to, "[8]\n  %n = add %sum, %d\n");
  };
  EXPECT_EQ(MovedIn({converted("i8"), "", "i8[8]", "i32"}), 1);
  EXPECT_EQ(MovedIn({converted("u32"), "", "u32[8]", "i32"}), 1);
  // What has wrapped around in 8 bits would not have in 32.
  EXPECT_EQ(MovedIn({converted("i32"), "", "i32[8]", "i8"}), 0);
}

TEST(LoopSumsTest, IntegersThatBecomeFloatingStay) {
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %d = convert %r : f32[8]\n  %n = add %sum, %d\n"),
                     "allow_reassociation\n", "f32[8]", "i32"}),
            0);
}

TEST(LoopSumsTest, BitsThatAreReadAsAnotherTypeStay) {
  EXPECT_EQ(
      MovedIn({absl::StrCat(kSum, "  %d = bitcast_convert %r : i32[8]\n", "  %n = add %sum, %d\n"),
               "allow_reassociation\n", "i32[8]"}),
      0);
}

std::string Selected(const std::string& predicate, const std::string& otherwise) {
  return absl::StrCat(kSum, "  %z = constant splat=", otherwise, " : f32[8]\n  %s = select ",
                      predicate, ", %r, %z\n  %n = add %sum, %s\n");
}
constexpr char kOdd[] =
    "  %one = constant splat=1 : i32[]\n  %b = and %i, %one\n"
    "  %odd = compare %b, %one direction=eq\n";

TEST(LoopSumsTest, OnePredicateForAllMayChange) {
  EXPECT_EQ(MovedIn({absl::StrCat(kOdd, Selected("%odd", "0"))}), 1);
}

TEST(LoopSumsTest, APredicateOfEachElementIsTheSameEachTrip) {
  EXPECT_EQ(MovedIn({Selected("%some", "0")}), 1);
}

TEST(LoopSumsTest, APredicateOfEachElementThatChangesStays) {
  EXPECT_EQ(MovedIn({absl::StrCat(kOdd, "  %each = broadcast_in_dim %odd dimensions=[] : bool[8]\n",
                                  Selected("%each", "0"))}),
            0);
}

TEST(LoopSumsTest, OnlyNothingIsSelectedOtherwise) {
  EXPECT_EQ(MovedIn({Selected("%some", "-0")}), 1);
  EXPECT_EQ(MovedIn({Selected("%some", "1")}), 0);
  EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %z = constant splat=0 : f32[8]\n",
                                  "  %s = select %some, %z, %r\n  %n = add %sum, %s\n")}),
            0);
}

TEST(LoopSumsTest, OtherOpsBetweenStay) {
  for (const char* op : {"negate", "sqrt", "abs"}) {
    EXPECT_EQ(MovedIn({absl::StrCat(kSum, "  %d = ", op, " %r\n  %n = add %sum, %d\n")}), 0);
  }
}

TEST(LoopSumsTest, WhatIsOrderedByNameStays) {
  EXPECT_EQ(MovedIn({absl::StrCat("  ^m: %r = reduce %x reduction=sum dimensions=[1]\n",
                                  "  %n = add %sum, %r\n  keep %i after ^m\n")}),
            0);
}

TEST(LoopSumsTest, AReductionOfAnotherBodyStays) {
  EXPECT_EQ(MovedIn({absl::StrCat("  %r = repeat %sum trips=1 (%j, %o)\n",
                                  "    %q = reduce %x reduction=sum dimensions=[1]\n",
                                  "    yield %q\n  %n = add %sum, %r\n")}),
            0);
}

TEST(LoopSumsTest, OneTripSavesNothing) {
  EXPECT_EQ(MovedIn({Added("%r"), "allow_reassociation\n", "f32[8]", "f32", "1"}), 0);
  EXPECT_EQ(MovedIn({Added("%r"), "allow_reassociation\n", "f32[8]", "f32", "2"}), 1);
}

TEST(LoopSumsTest, AReductionOfOneElementEachSavesNothing) {
  EXPECT_EQ(MovedIn({"  %u = slice %x start=[0,0] limit=[8,1]\n"
                     "  %r = reduce %u reduction=sum dimensions=[1]\n  %n = add %sum, %r\n"}),
            0);
}

TEST(LoopSumsTest, ASumThatIsYieldedTwiceStays) {
  const ParsedText parsed = Parse(
      "program 1\nallow_reassociation\nbuffer @x read 256\nbuffer @y write 64\n"
      "%x = input @x : f32[8,4]\n%zero = constant splat=0 : f32[8]\n"
      "%t, %u = repeat %zero, %zero trips=4 (%i, %a, %b)\n"
      "  %r = reduce %x reduction=sum dimensions=[1]\n  %n = add %a, %r\n  yield %n, %n\n"
      "store @y, %t\nstore @y, %u offset=32\n");
  ASSERT_TRUE(parsed.problems.empty());
  EXPECT_EQ(MoveReductionsOutOfLoops(parsed.program), parsed.program);
}

// As much as the limit, and more.
TEST(LoopSumsTest, WhatIsLargerThanTheLimitStays) {
  for (const bool fits : {true, false}) {
    const uint64_t rows = kMaxPartialBytes / 4 / 64 + (fits ? 0 : 1);
    const std::string text = absl::StrCat(
        "program 1\nallow_reassociation\nbuffer @x read ", rows * 256, "\nbuffer @y write 256\n",
        "%x = input @x : f32[", rows, ",64]\n%zero = constant splat=0 : f32[64]\n",
        "%t = repeat %zero trips=4 (%i, %sum)\n  %r = reduce %x reduction=sum dimensions=[0]\n",
        "  %n = add %sum, %r\n  yield %n\nstore @y, %t\n");
    const ParsedText parsed = Parse(text);
    ASSERT_TRUE(parsed.problems.empty());
    EXPECT_EQ(MoveReductionsOutOfLoops(parsed.program) == parsed.program, !fits);
  }
}

}  // namespace
}  // namespace ferry::compute
