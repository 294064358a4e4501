// SPDX-License-Identifier: Apache-2.0
// The dumps of golden/: what is shown, a program, a line of dashes, its plan with the programs of
// its steps.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "compute/passes/passes.h"
#include "compute/plan/plan.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/golden_files.h"
#include "tests/compute/plan/symbolic_run.h"

namespace ferry::compute {
namespace {

void CheckPrograms(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    EXPECT_EQ(Verify(step.program).size(), 0u);
    EXPECT_EQ(Parse(Print(step.program)).program, step.program);
    CheckPrograms(step.steps);
  }
}

class GoldenPlanTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenPlanTest, IsThePlan) {
  std::stringstream file;
  file << std::ifstream(std::string(GOLDEN_DIRECTORY) + "/" + GetParam() + ".txt").rdbuf();
  const std::vector<std::string> parts = absl::StrSplit(file.str(), "\n----\n");
  ASSERT_EQ(parts.size(), 2u);
  const ParsedText parsed = Parse(parts[0]);
  ASSERT_TRUE(parsed.problems.empty()) << parsed.problems[0].text;
  ASSERT_EQ(ToStatus(parsed.program, Verify(parsed.program)), absl::OkStatus());
  const Program program = Simplify(parsed.program);
  const auto plan = MakePlan(program);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(ToText(*plan, true), parts[1]);
  CheckPrograms(plan->steps);
  testing::SymbolicRun of_program, of_plan;
  EXPECT_EQ(of_plan.Run(*plan), of_program.Run(program));
  EXPECT_EQ(of_plan.problems(), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPlanTest, ::testing::ValuesIn(GoldenFiles(GOLDEN_DIRECTORY)),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ferry::compute
