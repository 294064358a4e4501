// SPDX-License-Identifier: Apache-2.0
#include "compute/program/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "compute/numerics/convert.h"
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
      {"program 1\nkeep %x", "2:6: op 0 keep: %x is not defined here\n"},
      {"program 1\nfly %x", "2:1: op 0: there is no op 'fly'\n"},
      {"program 1\n%x = constant splat=1 : f33[]",
       "2:25: op 0 constant: expected an element type, such as f32, found 'f33'\n"},
      {"program 1\n%x = constant splat=one : f32[]",
       "2:21: op 0 constant: 'one' is no finite number of f32\n"},
      {"program 1\n%x = constant splat=300 : u8[]",
       "2:21: op 0 constant: '300' is no finite number of u8\n"},
      {"program 1\n%x = constant splat=1e5 : f16[]",
       "2:21: op 0 constant: '1e5' is no finite number of f16\n"},
      {"program 1\n%x = constant splat=-500 : f8e4m3fn[]",
       "2:21: op 0 constant: '-500' is no finite number of f8e4m3fn\n"},
      {"program 1\n%x = constant splat=7 : f4e2m1fn[]",
       "2:21: op 0 constant: '7' is no finite number of f4e2m1fn\n"},
      {"program 1\n%x = constant splat=nan : bf16[]",
       "2:21: op 0 constant: 'nan' is no finite number of bf16: write the bytes, as in "
       "splat=xff7f\n"},
      {"program 1\n%x = constant values=[1,-inf] : f32[2]",
       "2:25: op 0 constant: '-inf' is no finite number of f32: write the bytes, as in "
       "splat=x000080ff\n"},
      {"program 1\n%x = constant splat=inf : f8e4m3fn[]",
       "2:21: op 0 constant: 'inf' is no finite number of f8e4m3fn\n"},
      {"program 1\n%x = constant splat=nan : i32[]",
       "2:21: op 0 constant: 'nan' is no finite number of i32\n"},
      {"program 1\n%x = constant splat=0.3 : f8e8m0fnu[]",
       "2:21: op 0 constant: '0.3' is no power of two of f8e8m0fnu\n"},
      {"program 1\n%x = constant splat=x123 : bf16[]",
       "2:21: op 0 constant: x is followed by two hexadecimal digits a byte\n"},
      {"program 1\n%x = constant splat=1 splat=2 : f32[]",
       "2:23: op 0 constant: splat is given twice\n"},
      {"program 1\n%x = constant speed=1 : f32[]",
       "2:15: op 0 constant: there is no attribute speed\n"},
      {"program 1\n%x = iota dimension=8 : f32[1]",
       "2:21: op 0 iota: dimension is 0 to 7, not 8\n"},
      {"program 1\n%x = iota dimension=[0] : f32[1]", "2:22: op 0 iota: dimension is no list\n"},
      {"program 1\n%x = iota dimension=0 : f32[1\n",
       "2:30: op 0 iota: expected ], the line ends\n"},
      {"program 1\n%x = constant splat=1 : f32[]\n%x = abs %x", "3:1: %x is defined twice\n"},
      {"program 1\n%x, %y = constant splat=1 : f32[]",
       "2:10: op 0 constant: constant has 1 results here, not 2\n"},
      {"program 1\nkeep %x ? 4", "2:6: op 0 keep: %x is not defined here\n"},
      {"program 1\n%x = constant splat=1 : f32[] ?", "2:31: op 0 constant: what is '?'?\n"},
      {"program 1\n%x = constant splat=1 : f32[] \"open",
       "2:31: op 0 constant: a string that does not end or has a wrong escape\n"},
      {"program 1\nyield", "2:1: yield ends the body of a repeat; none is open\n"},
      {"program 1\nrepeat trips=2 (%i)", "2:1: the repeat of line 2 has no yield\n"},
      {"program 1\nrepeat trips=2 (%i)\nyield\nkeep %i",
       "4:6: op 1 keep: %i is not defined here\n"},
      {"program 1\nkeep after ^a", "2:12: op 0 keep: no op above is ^a\n"},
      {"program 1\nstore @y", "2:7: op 0 store: there is no buffer @y\n"},
      // Each line's own, and nothing of what only follows from another.
      {"program 1\n%x = constant splat=a : f32[]\n%y = add %x, %x\n%z = add %y\n%w = abs %nothing",
       "2:21: op 0 constant: 'a' is no finite number of f32\n5:10: op 3 abs: %nothing is not "
       "defined here\n"},
      {"program 1\n%x = constant splat=1 : f32[2]\n%y = constant splat=1 : f32[3]\n%z = add %x, %y",
       "4:1: op 2 add: same type: operands 0 and 1 are f32[2] and f32[3]\n"},
      {"program 1\nbuffer @x read 4\n%x = input @x offset=18446744073709551612 : f32[]",
       "3:22: op 0 input: '18446744073709551612' is out of range: numbers have 64 bits\n"},
      {"program 1\nbuffer @x read 4\n%x = input @x offset=- : f32[]",
       "3:22: op 0 input: '-' is no number\n"},
      {"program 1\n%x = constant splat=1 : f32[-1]\n%y = abs %x\nkeep %x, %y",
       "2:6: op 0 constant: shape: f32[-1] has a negative dimension\n"},
      {"program 1\n%x = constant splat=1 : f32[4611686018427387904,16]\nkeep %x",
       "2:6: op 0 constant: size: the bytes of f32[4611686018427387904,16] overflow\n"},
  };
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.text);
    EXPECT_EQ(Problems(Parse(wrong.text)), wrong.problems);
  }
}

// What is in the fifth is read, but nothing that only follows is said.
TEST(TextTest, RepeatsThatNestTooDeepAreToldOnce) {
  std::string text = "program 1\n%x = constant splat=1 : f32[]\n";
  for (int i = 0; i < 6; ++i) {
    absl::StrAppend(&text, "%r", i, " = repeat %x trips=2 (%i", i, ", %v", i, ")\n");
  }
  absl::StrAppend(&text, "%w = abs %v5\n%u = abs %nothing\n");
  for (int i = 5; i >= 0; --i) {
    absl::StrAppend(&text, "yield %", i == 5 ? "w" : absl::StrCat("r", i + 1), "\n");
  }
  EXPECT_EQ(Problems(Parse(absl::StrCat(text, "keep %r0\n"))),
            "7:7: op 5 repeat: repeats nest at most 4 deep\n"
            "8:7: op 6 repeat: repeats nest at most 4 deep\n"
            "10:10: op 8 abs: %nothing is not defined here\n");
}

TEST(TextTest, LongNamesAreNotEchoedWhole) {
  const std::string name(100'000, 'n');
  for (const std::string& line :
       {"keep %x \"" + name + "\"", "%x = constant splat=1 : f32[] \"" + name + "\"",
        "%x = " + name, "keep %" + name}) {
    const std::vector<TextProblem> problems = CheckText(Parse("program 1\n" + line));
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_LT(problems[0].text.size(), 1500u);
  }
  const std::string digits(100'000, '1');
  const std::string shown = "'" + digits.substr(0, 128) + "...'";
  EXPECT_EQ(Problems(Parse("program 1\n%x = constant splat=" + digits + " : u8[]")),
            "2:21: op 0 constant: " + shown + " is no finite number of u8\n");
  EXPECT_EQ(Problems(Parse("program 1\nbuffer @x read " + digits)),
            "2:16: expected a number of bytes, found " + shown + "\n");
  const auto named = CheckText(Parse("program 1\nbuffer @" + name.substr(0, 200) + " read 4\n"));
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].text, "buffers: the name '" + name.substr(0, 128) +
                               "...' is too long: it has 200 bytes, at most 128");
}

TEST(TextTest, OfWhatIsNoProgramNothingElseIsSaid) {
  EXPECT_EQ(Problems(Parse("\x7f"
                           "ELF\n\1\2\3\nfly\n")),
            "1:1: the first line is 'program 1'\n");
}

TEST(TextTest, ThatThereMayBeMoreProblemsIsSaid) {
  EXPECT_EQ(ProblemsText(1), "1 problem");
  EXPECT_EQ(ProblemsText(63), "63 problems");
  EXPECT_EQ(ProblemsText(64), "64 or more problems, the first of them");
}

// In one round, by line: what cannot be read, what has the wrong type, and what is wrong with what
// is done to buffers; but not what only follows from another.
TEST(TextTest, AllThatIsWrongIsToldAtOnce) {
  const ParsedText parsed = Parse(R"(program 1
buffer @x read 16
buffer @y write 16
buffer @odd reads 16
%x = input @x : f32[4]
%o = input @odd : f32[4]
%a = fly %x "one"
%b = add %a, %o
%c = add %x, %x : f32[5] "two"
store @y, %x "zero"
store @y, %x "three"
store @x, %x
store %x
%long = input @y offset=4 : f32[4]
%k = repeat %x trips=2 (%i, %v)
  %w = convert %v : bf16[4]
  yield %w
%m = abs %k
store @y, %b
)");
  std::string all;
  for (const TextProblem& p : CheckText(parsed)) {
    absl::StrAppend(&all, PlaceText(p), ": ", p.text, "\n");
  }
  EXPECT_EQ(
      all,
      "4:13: expected read, write or read_write, found 'reads'\n"
      "7:6: op 2: there is no op 'fly'\n"
      "9: op 4 add 'two': result: the result is f32[4], the program says f32[5]\n"
      "11: op 6 store 'three': two writers: writes bytes 0 to 16 of @y, op 5 store 'zero' writes 0 "
      "to 16 of @y, and neither is after the other: say which is, with '^mark: ' before the first "
      "and 'after ^mark' in the second\n"
      "12: op 7 store: access: writes @x, which is declared read\n"
      "13: op 8 store: structure: store names 1 buffers, not 0\n"
      "14: op 9 input: bounds: bytes 4 to 20 of @y, which has 16\n"
      "14: op 9 input: access: reads @y, which is declared write\n"
      "15: op 10 repeat: yield: value 0 is carried as f32[4] and yielded as bf16[4]\n");
  EXPECT_TRUE(CheckText(Parse("program 1\n")).empty());
}

// Every number that a type has is printed as one that reads back; the rest as bytes.
TEST(TextTest, NumbersOfEveryNarrowTypeReadBack) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2,
                           DType::kF4E2M1FN, DType::kF8E8M0FNU}) {
    const size_t bits = InfoOf(type).bits;
    for (uint32_t code = 0; code < uint32_t{1} << bits; ++code) {
      const std::string bytes(reinterpret_cast<const char*>(&code), (bits + 7) / 8);
      const std::string text = PrintElements(type, bytes, false);
      if (text[0] == 'x') {
        const bool finite = std::isfinite(DecodeFloat(type, code));
        ASSERT_FALSE(finite) << NameOf(type) << " " << code;
        continue;
      }
      std::string read;
      ASSERT_EQ(ParseElement(type, text, 0, read), "") << text;
      ASSERT_EQ(read, bytes) << NameOf(type) << " " << text;
    }
  }
  const ParsedText parsed = Parse(R"(program 1
%0 = constant splat=0.5 : bf16[4]
%1 = constant values=[1,-2.5,65504] : f16[3]
%2 = constant values=[448,-0.015625] : f8e4m3fn[2]
%3 = constant values=[1,-6,0.5] : f4e2m1fn[3]
%4 = constant splat=0.1 : bf16[]
%5 = constant splat=-3 : f4e2m1fn[2]
%6 = constant splat=0.25 : f8e8m0fnu[1]
keep %0, %1, %2, %3, %4, %5, %6
)");
  ASSERT_EQ(Problems(parsed), "");
  EXPECT_TRUE(Verify(parsed.program).empty());
  EXPECT_EQ(Print(parsed.program), R"(program 1
%0 = constant splat=0.5 : bf16[4]
%1 = constant values=[1,-2.5,65504] : f16[3]
%2 = constant values=[448,-0.015625] : f8e4m3fn[2]
%3 = constant values=xf201 : f4e2m1fn[3]
%4 = constant splat=0.100097656 : bf16[]
%5 = constant splat=-3 : f4e2m1fn[2]
%6 = constant splat=0.25 : f8e8m0fnu[1]
keep %0, %1, %2, %3, %4, %5, %6
)");
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
// verified, and of the rest what is clear.
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
      EXPECT_GE(CheckText(parsed).size(), parsed.problems.size());
      if (!parsed.problems.empty()) continue;
      if (!CheckStructure(parsed.program).empty()) continue;
      EXPECT_TRUE(Parse(Print(parsed.program)).program == parsed.program) << broken;
      Verify(parsed.program);
    }
  }
}

}  // namespace
}  // namespace ferry::compute
