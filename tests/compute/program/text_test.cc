// SPDX-License-Identifier: Apache-2.0
#include "compute/program/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "compute/program/verify.h"
#include "tests/compute/program_generator.h"

namespace ferry::compute {
namespace {

std::string Problems(const ParsedText& parsed) {
  std::string text;
  for (const TextProblem& p : parsed.problems) {
    absl::StrAppend(&text, p.line, ":", p.column, ": ", p.text, "\n");
  }
  return text;
}

TEST(TextTest, PrintsWhatWasWrittenByHandInOneForm) {
  const ParsedText parsed = Parse(R"(
# y = y + sum of x, thrice
program 1
accumulation fp8_tc
allow_reassociation
buffer @x read 64 constant
buffer @y  read_write  16 donated   # in place

%in = input @x offset=0 : f32[4,4]
  %y = input @y : f32[4]
%half = constant splat=0.5 : f32[4]
%table = constant values=[1,2.5,-0,1e-7] : f32[4]
%nan = constant splat=x0000c07f : f32[]
%out = repeat %y trips=3 (%i, %sum)
  %row = reduce %in reduction=sum dimensions=[0] "rows of \"x\""
  %next = add %sum, %row
  yield %next
^stored: store @y, %out
keep %half, %nan, %table after ^stored
)");
  ASSERT_EQ(Problems(parsed), "");
  EXPECT_EQ(Print(parsed.program), R"(program 1
accumulation fp8_tc
allow_reassociation
buffer @x read 64 constant
buffer @y read_write 16 donated
%0 = input @x : f32[4,4]
%1 = input @y : f32[4]
%2 = constant splat=0.5 : f32[4]
%3 = constant values=[1,2.5,-0,1e-07] : f32[4]
%4 = constant splat=x0000c07f : f32[]
%5 = repeat %1 trips=3 (%6, %7) : f32[4]
  %8 = reduce %0 dimensions=[0] reduction=sum : f32[4] "rows of \"x\""
  %9 = add %7, %8 : f32[4]
  yield %9
^8: store @y, %5
keep %2, %4, %3 after ^8
)");
  EXPECT_THAT(parsed.lines, ::testing::ElementsAre(9, 10, 11, 12, 13, 14, 15, 16, 18, 19));
  EXPECT_TRUE(Verify(parsed.program).empty());
}

struct Wrong {
  const char* text;
  const char* problems;
};

TEST(TextTest, SaysWhereWhatIsWrong) {
  const Wrong kWrong[] = {
      {"", "1:1: there is no program: the first line is 'program 1'\n"},
      {"program 2", "1:1: the first line is 'program 1'\n"},
      {"program 1\nbuffer x", "2:8: expected @ and a name, found 'x'\n"},
      {"program 1\nbuffer @x reads 4", "2:11: expected read, write or read_write, found 'reads'\n"},
      {"program 1\nbuffer @x read many", "2:16: expected a number of bytes, found 'many'\n"},
      {"program 1\nbuffer @x read 4\nbuffer @x read 4", "3:8: @x is declared twice\n"},
      {"program 1\nkeep %x", "2:6: %x is not defined here\n"},
      {"program 1\nfly %x", "2:1: expected an op, found 'fly'\n"},
      {"program 1\n%x = constant splat=1 : f33[]",
       "2:25: expected an element type, such as f32, found 'f33'\n"},
      {"program 1\n%x = constant splat=one : f32[]", "2:21: 'one' is no finite number of f32\n"},
      {"program 1\n%x = constant splat=300 : u8[]", "2:21: '300' is no finite number of u8\n"},
      {"program 1\n%x = constant splat=1 : bf16[]",
       "2:21: elements of bf16 are written as their bytes, such as x00\n"},
      {"program 1\n%x = constant splat=x123 : bf16[]",
       "2:21: x is followed by two hexadecimal digits a byte\n"},
      {"program 1\n%x = constant splat=1 splat=2 : f32[]", "2:23: splat is given twice\n"},
      {"program 1\n%x = constant speed=1 : f32[]", "2:15: there is no attribute speed\n"},
      {"program 1\n%x = iota dimension=8 : f32[1]", "2:21: dimension is 0 to 7, not 8\n"},
      {"program 1\n%x = iota dimension=[0] : f32[1]", "2:22: dimension is no list\n"},
      {"program 1\n%x = iota dimension=0 : f32[1\n", "2:30: expected ], the line ends\n"},
      {"program 1\n%x = constant splat=1 : f32[]\n%x = abs %x", "3:1: %x is defined twice\n"},
      {"program 1\n%x, %y = constant splat=1 : f32[]",
       "2:10: constant has 1 results here, not 2\n"},
      {"program 1\nkeep %x ? 4", "2:6: %x is not defined here\n"},
      {"program 1\n%x = constant splat=1 : f32[] ?", "2:31: what is '?'?\n"},
      {"program 1\n%x = constant splat=1 : f32[] \"open",
       "2:31: a string that does not end or has a wrong escape\n"},
      {"program 1\nyield", "2:1: yield ends the body of a repeat; none is open\n"},
      {"program 1\nrepeat trips=2 (%i)", "2:1: the repeat of line 2 has no yield\n"},
      {"program 1\nrepeat trips=2 (%i)\nyield\nkeep %i", "4:6: %i is not defined here\n"},
      {"program 1\nkeep after ^a", "2:12: no op above is ^a\n"},
      {"program 1\nstore @y", "2:7: there is no buffer @y\n"},
      // Each line's own, and nothing of what only follows from another.
      {"program 1\n%x = constant splat=a : f32[]\n%y = add %x, %x\n%z = add %y\n%w = abs %nothing",
       "2:21: 'a' is no finite number of f32\n5:10: %nothing is not defined here\n"},
      {"program 1\n%x = constant splat=1 : f32[2]\n%y = constant splat=1 : f32[3]\n%z = add %x, %y",
       "4:1: operands 0 and 1 are f32[2] and f32[3]\n"},
  };
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.text);
    EXPECT_EQ(Problems(Parse(wrong.text)), wrong.problems);
  }
}

TEST(TextTest, WhatIsLikeAValueHasItsType) {
  const std::string head = "program 1\n%x = constant splat=1 : f32[2,3]\n";
  const ParsedText parsed = Parse(head + "%e = empty_like %x \"scratch\"\n");
  EXPECT_EQ(Problems(parsed), "");
  EXPECT_EQ(Print(parsed.program),
            "program 1\n%0 = constant splat=1 : f32[2,3]\n%1 = empty : f32[2,3] \"scratch\"\n");
  EXPECT_THAT(Problems(Parse(head + "%e = empty_like %x, %x\n")),
              ::testing::HasSubstr("one value"));
  EXPECT_THAT(Problems(Parse(head + "%e = empty_like\n")), ::testing::HasSubstr("one value"));
  EXPECT_THAT(Problems(Parse(head + "%e = empty_like %x : f32[6]\n")),
              ::testing::HasSubstr("write none"));
  EXPECT_THAT(Problems(Parse(head + "%e = empty_like %y\n")), ::testing::HasSubstr("not defined"));
}

TEST(TextTest, ListsSoManyProblemsAndNoMore) {
  std::string text = "program 1\n";
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "fly\n");
  EXPECT_EQ(Parse(text).problems.size(), kMaxProblems);
}

TEST(TextTest, RandomProgramsAreGoodAndReadBackAsTheyWere) {
  std::set<Op> seen;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = testing::ProgramGenerator(seed).Make();
    const auto problems = Verify(program);
    ASSERT_TRUE(problems.empty()) << ToString(program, problems[0]) << "\n" << Print(program);
    const std::string text = Print(program);
    const ParsedText parsed = Parse(text);
    ASSERT_EQ(Problems(parsed), "") << text;
    ASSERT_TRUE(parsed.program == program) << text;
    ASSERT_EQ(Print(parsed.program), text);
    for (const Node& node : program.nodes) seen.insert(node.op);
  }
  EXPECT_EQ(seen.size(), kOps);
}

// What a mistake of typing makes is read, or refused with a problem; what is read is printed and
// verified.
TEST(TextTest, AnyTextIsReadOrRefused) {
  std::mt19937_64 random(7);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::string text = Print(testing::ProgramGenerator(seed, {20}).Make());
    for (int i = 0; i < 20; ++i) {
      std::string broken = text;
      for (int j = 0; j < 3; ++j) {
        const size_t at = random() % broken.size();
        const size_t from = random() % broken.size();
        if (j % 2 == 0) {
          broken[at] = broken[from];
        } else {
          broken.erase(at, random() % 4);
        }
      }
      const ParsedText parsed = Parse(broken);
      if (!parsed.problems.empty()) continue;
      if (!CheckStructure(parsed.program).empty()) continue;
      EXPECT_TRUE(Parse(Print(parsed.program)).program == parsed.program) << broken;
      Verify(parsed.program);
    }
  }
}

}  // namespace
}  // namespace ferry::compute
