// SPDX-License-Identifier: Apache-2.0
// The dumps of golden/: what a pass is for, the program before it, a line of dashes, the program
// after it. Both parse back and are good programs, and the pass has nothing left to do.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/golden_files.h"

namespace ferry::compute {
namespace {

Program Good(const std::string& text) {
  ParsedText parsed = Parse(text);
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ":" << problem.column << ": " << problem.text;
  }
  for (const Problem& problem : Verify(parsed.program)) {
    ADD_FAILURE() << ToString(parsed.program, problem);
  }
  return std::move(parsed.program);
}

class GoldenPassesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenPassesTest, IsWhatThePassMakes) {
  std::stringstream file;
  file << std::ifstream(std::string(GOLDEN_DIRECTORY) + "/" + GetParam() + ".txt").rdbuf();
  const std::vector<std::string> parts = absl::StrSplit(file.str(), "\n----\n");
  ASSERT_EQ(parts.size(), 2u);
  const std::vector<std::string> words = absl::StrSplit(GetParam(), '-');
  Program (*const pass)(const Program&) = words[0] == "fold"     ? &FoldConstants
                                          : words[0] == "join"   ? &JoinMoves
                                          : words[0] == "parts"  ? &PartTransfers
                                          : words[0] == "merge"  ? &MergeEqualOps
                                          : words[0] == "dead"   ? &RemoveDeadCode
                                          : words[0] == "motion" ? &MoveReductionsOutOfLoops
                                                                 : &Simplify;
  const Program after = pass(Good(parts[0]));
  EXPECT_EQ(Print(after), parts[1]);
  EXPECT_EQ(Good(Print(after)), after);
  EXPECT_EQ(Print(pass(after)), Print(after));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPassesTest, ::testing::ValuesIn(GoldenFiles(GOLDEN_DIRECTORY)),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ferry::compute
