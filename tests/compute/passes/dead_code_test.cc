// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "compute/passes/passes.h"
#include "compute/program/limits.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute {
namespace {

constexpr int kInputs = 300;
static_assert(kInputs > static_cast<int>(kMaxOperands));

// `last` at the end of a program in which %p and %q need 300 inputs, all of which are stored too.
Program Wide(const std::string& last) {
  std::string text = "program 1\nbuffer @x read 1200\nbuffer @y write 1200\n";
  std::string halves[2];
  for (int i = 0; i < kInputs; ++i) {
    absl::StrAppend(&text, "%", i, " = input @x offset=", 4 * i, " : f32[1]\nstore @y, %", i,
                    " offset=", 4 * i, "\n");
    std::string& half = halves[i % 2];
    absl::StrAppend(&half, half.empty() ? "%" : ", %", i);
  }
  absl::StrAppend(&text, "%p = concatenate ", halves[0], " dimension=0\n%q = concatenate ",
                  halves[1], " dimension=0\n", last);
  const ParsedText parsed = Parse(text);
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_TRUE(Verify(parsed.program).empty());
  return parsed.program;
}

size_t CountOf(Op op, const Program& program) {
  return static_cast<size_t>(std::count_if(program.nodes.begin(), program.nodes.end(),
                                           [op](const Node& node) { return node.op == op; }));
}

TEST(RemoveDeadCodeTest, WideProgramsLoseWhatNobodyOrders) {
  const Program after = RemoveDeadCode(Wide("keep %0\n"));
  EXPECT_EQ(CountOf(Op::kConcatenate, after), 0u);
  EXPECT_EQ(CountOf(Op::kInput, after), static_cast<size_t>(kInputs));
}

// The op would have to be after 300 others, and may be after 256: what they come together in stays.
TEST(RemoveDeadCodeTest, WhatWouldLeaveTooManyOrdersStays) {
  const Program named =
      RemoveDeadCode(Wide("^m: %d = add %p, %q\n%unused = abs %p\nkeep %0 after ^m\n"));
  EXPECT_TRUE(Verify(named).empty());
  EXPECT_EQ(CountOf(Op::kConcatenate, named), 2u);
  EXPECT_EQ(CountOf(Op::kAdd, named), 1u);
  EXPECT_EQ(CountOf(Op::kAbs, named), 0u);
  const Program in_body = RemoveDeadCode(
      Wide("repeat trips=2 (%i)\n  %d = add %p, %q\n  keep %0\n  yield\n%unused = abs %p\n"));
  EXPECT_TRUE(Verify(in_body).empty());
  EXPECT_EQ(CountOf(Op::kAdd, in_body), 1u);
  EXPECT_EQ(CountOf(Op::kAbs, in_body), 0u);
}

}  // namespace
}  // namespace ferry::compute
