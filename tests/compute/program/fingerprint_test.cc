// SPDX-License-Identifier: Apache-2.0
#include "compute/program/fingerprint.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/program/text.h"
#include "tests/compute/program_generator.h"

namespace ferry::compute {
namespace {

std::string Of(const std::string& text) {
  const ParsedText parsed = Parse(text);
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ":" << problem.column << ": " << problem.text;
  }
  return ToString(FingerprintOf(parsed.program));
}

constexpr char kProgram[] = R"(program 1
buffer @a read 16
buffer @b read 16
buffer @y write 32
%a = input @a : f32[4]
%b = input @b : f32[4]
%d = subtract %a, %b "difference"
%r = repeat %d trips=3 (%i, %c)
  %n = add %c, %a
  yield %n
^1: store @y, %r
store @y, %d offset=16
)";

std::string With(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kProgram, {{from, to}});
  EXPECT_NE(text, kProgram) << from;
  return Of(text);
}

TEST(FingerprintTest, IsTheSameInEveryProcessAndBuild) {
  EXPECT_EQ(Of(kProgram), "b605a730d171ffb11d9cd6ec98b9f584db1ddc3738aa476789ae0b35d2e1ecc4");
}

TEST(FingerprintTest, NamesOfValuesAndLabelsDoNotMatter) {
  EXPECT_EQ(With("%d", "%other"), Of(kProgram));
  EXPECT_EQ(With("\"difference\"", ""), Of(kProgram));
  EXPECT_EQ(With("%i, %c", "%count, %c"), Of(kProgram));
}

TEST(FingerprintTest, AnOrderThatMeansNothingDoesNotMatter) {
  EXPECT_EQ(With("%a = input @a : f32[4]\n%b = input @b : f32[4]\n",
                 "%b = input @b : f32[4]\n%a = input @a : f32[4]\n"),
            Of(kProgram));
  EXPECT_EQ(
      With("buffer @a read 16\nbuffer @b read 16\n", "buffer @b read 16\nbuffer @a read 16\n"),
      Of(kProgram));
  EXPECT_EQ(With("^1:", "%unused = abs %a\n^1:"), Of(kProgram));
}

TEST(FingerprintTest, EverythingElseMatters) {
  std::set<std::string> all = {Of(kProgram)};
  const auto differs = [&](const std::string& from, const std::string& to) {
    EXPECT_TRUE(all.insert(With(from, to)).second) << from << " -> " << to;
  };
  differs("subtract %a, %b", "subtract %b, %a");
  differs("subtract", "add");
  differs("trips=3", "trips=4");
  differs("add %c, %a", "add %a, %c");
  differs("yield %n", "yield %c");
  differs("offset=16", "offset=12");
  differs("offset=16", "offset=16 after ^1");
  differs("@y", "@z");
  differs("write 32", "write 64");
  differs("buffer @b read 16", "buffer @b read_write 16 donated");
  differs("buffer @b read 16", "buffer @b read 16 constant");
  differs("f32[4]", "f32[3]");
  differs("f32[4]", "i32[4]");
  differs("^1:", "keep %b\n^1:");
  differs("program 1\n", "program 1\nallow_reassociation\n");
  differs("program 1\n", "program 1\naccumulation fp8_tc\n");
}

// Of 100 ops some have effects.
TEST(FingerprintTest, RandomProgramsDiffer) {
  std::set<Fingerprint> all;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Program program = testing::ProgramGenerator(seed, {100}).Make();
    EXPECT_EQ(FingerprintOf(program), FingerprintOf(Parse(Print(program)).program));
    EXPECT_TRUE(all.insert(FingerprintOf(program)).second) << seed;
  }
}

}  // namespace
}  // namespace ferry::compute
