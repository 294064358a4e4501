// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/program_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::tools {
namespace {

using ::testing::HasSubstr;

compute::Program Good(const std::string& text) {
  compute::ParsedText parsed = compute::Parse(text);
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_TRUE(compute::Verify(parsed.program).empty());
  return std::move(parsed.program);
}

constexpr char kLayer[] =
    "program 1\nbuffer @x read 1048576\nbuffer @w read 65536 constant\nbuffer @y write 1048576\n"
    "%x = input @x : f32[2048,128]\n%w = input @w : f32[128,128]\n"
    "%p = dot_general %x, %w lhs_contract=[1] rhs_contract=[0] : f32[2048,128] \"layer\"\n"
    "%t = transpose %p permutation=[1,0]\n%h = tanh %t\nstore @y, %h\n";

TEST(ProgramBenchTest, EachStepHasItsTimeAndItsCost) {
  const absl::StatusOr<ProgramTimes> times = BenchProgram(Good(kLayer), 2, 3);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_GE(times->rows.size(), 3u);
  double sum = 0;
  compute::Cost cost;
  for (size_t i = 0; i + 1 < times->rows.size(); ++i) {
    const ProgramTimes::Row& row = times->rows[i];
    EXPECT_EQ(row.step, std::to_string(i));
    EXPECT_GE(row.median_s, row.least_s);
    sum += row.least_s;
    cost.flops += row.cost.flops;
    cost.transcendentals += row.cost.transcendentals;
  }
  const ProgramTimes::Row& run = times->rows.back();
  EXPECT_EQ(run.step, "run");
  EXPECT_LE(sum, run.median_s);
  EXPECT_EQ(cost.flops, run.cost.flops);
  EXPECT_EQ(run.cost.flops, 2u * 2048 * 128 * 128);
  EXPECT_EQ(run.cost.transcendentals, 2048u * 128);
  EXPECT_EQ(times->rows[0].label, "layer");
  EXPECT_FALSE(times->rows[0].by.empty());
}

TEST(ProgramBenchTest, IsATableOrJson) {
  const absl::StatusOr<ProgramTimes> times = BenchProgram(Good(kLayer), 1, 1);
  ASSERT_TRUE(times.ok()) << times.status();
  const std::string text = ToText(*times, false);
  EXPECT_THAT(text, HasSubstr("layer"));
  EXPECT_THAT(text, HasSubstr("GB/s and"));
  EXPECT_THAT(text, HasSubstr("1 thread, products by"));
  const auto json = nlohmann::json::parse(ToText(*times, true));
  EXPECT_EQ(json["steps"].size(), times->rows.size());
  EXPECT_EQ(json["steps"][0]["step"], 0);  // a number, as a plan's
  EXPECT_EQ(json["steps"].back()["step"], "run");
  EXPECT_EQ(json["steps"].back()["flops"], 2u * 2048 * 128 * 128);
  EXPECT_GT(json["steps"].back()["median_s"], 0);
}

TEST(ProgramBenchTest, EmptyProgramsAndEveryTypeOfElementsAreTimed) {
  EXPECT_TRUE(BenchProgram(Good("program 1\n"), 1, 1).ok());
  for (const compute::DTypeInfo& info : compute::kDTypeInfo) {
    const std::string type(info.name.data(), info.name.size());
    const auto times = BenchProgram(
        Good("program 1\nbuffer @x read 4107\nbuffer @y write 99999\n%x = input @x : " + type +
             "[513]\n%y = convert %x : f64[513]\nstore @y, %y\n"),
        1, 2);
    EXPECT_TRUE(times.ok()) << times.status();
  }
}

TEST(ProgramBenchTest, TransfersAreADaemons) {
  const auto status =
      BenchProgram(Good("program 1\n%a = recv device=1 key=\"k\" : f32[2]\nkeep %a\n"), 1, 1)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it has a recv"));
}

TEST(ProgramBenchTest, MemoryThatIsNotThereIsNamed) {
  const auto status = BenchProgram(Good("program 1\nbuffer @x read 4000000000000000\n"
                                        "%x = input @x : u8[1]\nkeep %x\n"),
                                   1, 1)
                          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("its buffers have 4000000000000000 bytes"));
}

}  // namespace
}  // namespace ferry::tools
