// SPDX-License-Identifier: Apache-2.0
// The dumps of golden/: what is shown, a program, a line of dashes, its plan for a GPU with the
// sources of its kernels.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/golden_files.h"

namespace ferry::compute {
namespace {

class GoldenGpuTest : public ::testing::TestWithParam<std::string> {};

// A file is called by what it shows, and the architecture: "chain-sm_90a".
TEST_P(GoldenGpuTest, IsThePlan) {
  std::stringstream file;
  file << std::ifstream(std::string(GOLDEN_DIRECTORY) + "/" + GetParam() + ".txt").rdbuf();
  const std::vector<std::string> parts = absl::StrSplit(file.str(), "\n----\n");
  ASSERT_EQ(parts.size(), 2u);
  const ParsedText parsed = Parse(parts[0]);
  ASSERT_TRUE(parsed.problems.empty()) << parsed.problems[0].text;
  ASSERT_EQ(ToStatus(parsed.program, Verify(parsed.program)), absl::OkStatus());
  const std::vector<std::string> name = absl::StrSplit(GetParam(), '-');
  const absl::StatusOr<GpuArch> arch = GpuArchOf(name.back());
  ASSERT_TRUE(arch.ok()) << arch.status();
  const absl::StatusOr<GpuPlan> plan = MakeGpuPlan(Simplify(parsed.program), *arch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(ToText(*plan, true), parts[1]);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenGpuTest, ::testing::ValuesIn(GoldenFiles(GOLDEN_DIRECTORY)),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ferry::compute
