// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "compute/program/text.h"
#include "ferry/program.hpp"

namespace ferry {
namespace {

compute::ParsedText Read(const ProgramBuilder& builder) {
  compute::ParsedText parsed = compute::Parse(builder.Text());
  for (const compute::TextProblem& problem : compute::CheckText(parsed)) {
    if (parsed.problems.empty()) parsed.problems.push_back(problem);
  }
  return parsed;
}

// What `value` is in a program, or what is wrong with it.
template <typename Number>
std::string Splat(Number value, int element) {
  ProgramBuilder builder;
  builder.Splat(value, {element, {2}});
  const compute::ParsedText parsed = Read(builder);
  if (!parsed.problems.empty()) return parsed.problems[0].text;
  const compute::Node& node = parsed.program.nodes.at(0);
  EXPECT_EQ(parsed.program.nodes.size(), 1u);
  EXPECT_EQ(node.op, compute::Op::kConstant);
  return compute::PrintElements(parsed.program.types[0].dtype,
                                node.attributes.Bytes(compute::Attribute::kSplat), false);
}

std::string Bits(int element, double value) {
  ProgramBuilder builder;
  builder.Splat(value, {element, {2}});
  return std::string(
      Read(builder).program.nodes.at(0).attributes.Bytes(compute::Attribute::kSplat));
}

template <typename Number>
void ExpectRefused(Number value, int element, const std::string& type) {
  const std::string text = Splat(value, element);
  EXPECT_TRUE(absl::StrContains(text, type) && absl::StrContains(text, " is no ")) << text;
}

TEST(ProgramBuilderTest, DeltasAreGoodPrograms) {
  ProgramBuilder builder;
  const TensorType type{FERRY_BF16, {100, 1000}};
  const auto after = builder.Input("new", type);
  const auto before = builder.Input("old", type, 64);
  builder.Donate("old");
  const auto delta = builder.DeltaEncode(before, after, 5, 4096);
  ASSERT_EQ(delta.size(), 4u);
  builder.DeltaApply("old", delta[0], delta[1], delta[2], 200'000, 64);
  builder.Store("sum", builder.Checksum(after));
  const compute::ParsedText parsed = Read(builder);
  EXPECT_TRUE(parsed.problems.empty()) << parsed.problems[0].text << "\n" << builder.Text();
  EXPECT_EQ(parsed.program.buffers.at(1).bytes, 200'064u);
}

TEST(ProgramBuilderTest, SplatIsRoundedOnce) {
  const double above = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);  // f32: just the middle
  EXPECT_EQ(Bits(FERRY_F16, above), std::string("\x01\x3c", 2));
  EXPECT_EQ(Splat(0.1, FERRY_F64), "0.1");
  EXPECT_EQ(Splat(0.1F, FERRY_F32), "0.1");
  EXPECT_EQ(Splat(3, FERRY_F32), "3");
  EXPECT_EQ(Splat(0.5, FERRY_BF16), "0.5");
  EXPECT_EQ(Splat(std::ldexp(1, -127), FERRY_F8E8M0FNU), "5.877472e-39");
}

TEST(ProgramBuilderTest, SplatOfIntegersIsExact) {
  constexpr auto kLargest = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(Splat(kLargest, FERRY_U64), "18446744073709551615");
  EXPECT_EQ(Splat(std::ldexp(1, 64) - 2048, FERRY_U64), "18446744073709549568");
  EXPECT_EQ(Splat(std::numeric_limits<int64_t>::min(), FERRY_S64), "-9223372036854775808");
  EXPECT_EQ(Splat(-3.0, FERRY_S8), "-3");
  EXPECT_EQ(Splat(-0.0, FERRY_S32), "0");
  EXPECT_EQ(Splat(true, FERRY_PRED), "true");
  EXPECT_EQ(Splat(0, FERRY_PRED), "false");
}

TEST(ProgramBuilderTest, SplatOfWhatTheTypeHasNotIsRefused) {
  ExpectRefused(3.0, FERRY_F8E8M0FNU, "f8e8m0fnu");
  ExpectRefused(1e10, FERRY_F8E4M3FN, "f8e4m3fn");
  ExpectRefused(2.7, FERRY_S32, "i32");
  ExpectRefused(std::ldexp(1, 64), FERRY_U64, "u64");
  ExpectRefused(-1, FERRY_U8, "u8");
  ExpectRefused(1e308, FERRY_S64, "i64");
  ExpectRefused(std::numeric_limits<double>::infinity(), FERRY_F32, "f32");
  ExpectRefused(std::numeric_limits<double>::quiet_NaN(), FERRY_S32, "i32");
}

TEST(ProgramBuilderTest, OpsHaveLabelsAndAnOrder) {
  ProgramBuilder builder;
  const TensorType type{FERRY_F32, {4}};
  const auto x = builder.Input("x", type);
  builder.Label("the \"first\"");
  const auto first = builder.Last();
  builder.Store("x", builder.Splat(1, type));
  const auto second = builder.Last();
  builder.After({first});
  builder.Store("x", x);
  builder.After({first, second});
  builder.Label("last");
  builder.Donate("x");
  const compute::ParsedText parsed = Read(builder);
  ASSERT_TRUE(parsed.problems.empty()) << parsed.problems[0].text << "\n" << builder.Text();
  const std::vector<compute::Node>& nodes = parsed.program.nodes;
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].label, "the \"first\"");
  EXPECT_EQ(nodes[2].after, std::vector<compute::OpIndex>{0});
  EXPECT_EQ(nodes[3].after, (std::vector<compute::OpIndex>{0, 2}));
  EXPECT_EQ(nodes[3].label, "last");
}

}  // namespace
}  // namespace ferry
