// SPDX-License-Identifier: Apache-2.0
// How near functions are to float64's: of f32 over every so many of all patterns of bits
// (ferry_function_sweep has all), of f16 and bf16 over all.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/compute/host/function_errors.h"

namespace ferry::compute {
namespace {

TEST(FunctionTest, AreWithinTheBound) {
  constexpr uint64_t kStep = 10007;
  constexpr size_t kTile = 500;  // a part of a vector too
  for (const testing::FunctionCase& one : testing::kFunctionCases) {
    testing::WorstUnits worst;
    std::vector<uint32_t> codes(kTile);
    for (uint64_t first = 0; first < uint64_t{1} << 32; first += kStep * kTile) {
      for (size_t i = 0; i < kTile; ++i) codes[i] = static_cast<uint32_t>(first + i * kStep);
      worst.Add(testing::WorstOf(one, testing::kF32Function, codes));
    }
    RecordProperty(std::string(InfoOf(one.op).name), std::to_string(worst.units));
    EXPECT_LE(worst.units, one.bound) << InfoOf(one.op).name << " of " << worst.at;
    if (worst.units > 1.5) {
      GTEST_LOG_(INFO) << InfoOf(one.op).name << " " << worst.units << " at " << worst.at;
    }
  }
}

TEST(FunctionTest, OfHalvesAreWithinOneUnit) {
  std::vector<uint16_t> codes(1 << 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  for (const testing::FunctionCase& one : testing::kFunctionCases) {
    for (const testing::FunctionType& type : {testing::kF16Function, testing::kBF16Function}) {
      const testing::WorstUnits worst = testing::WorstOf(one, type, codes);
      EXPECT_LE(worst.units, 1) << InfoOf(one.op).name << " of " << worst.at;
    }
  }
}

}  // namespace
}  // namespace ferry::compute
