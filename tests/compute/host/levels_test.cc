// SPDX-License-Identifier: Apache-2.0
// At each of the CPU's levels of instructions the results are the reference's: bits, but for what
// has a tolerance; of those our own products have the same bits too.

// As the executor's loops are compiled.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/host/cpu.h"
#include "compute/passes/passes.h"
#include "tests/compute/host/function_errors.h"
#include "tests/compute/host/host_runs.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/shaped_programs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

class LevelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

// All ops of all types by themselves, in values of every shape.
TEST_P(LevelsTest, RandomProgramsAreAsTheReferenceSays) {
  for (uint64_t seed = 5000; seed < 5060; ++seed) {
    testing::GeneratorOptions options{60, 5, false};
    if (seed % 3 == 0) options = {25, 24, false};  // of several tiles
    Program program = testing::ProgramGenerator(seed, options).Make();
    testing::StoreAll(program);
    if (seed % 4 == 0) program = Simplify(program);
    ASSERT_EQ(testing::DifferenceOf(program, seed), "") << "seed " << seed << "\n"
                                                        << Print(program);
  }
}

TEST_P(LevelsTest, EachOpOfAChainRounds) {
  for (const Program& program : testing::ChainPrograms()) {
    ASSERT_EQ(testing::DifferenceOf(program, 1), "") << Print(program);
  }
}

// Chains, reductions, products and loops, with nothing stored but in the end.
TEST_P(LevelsTest, WovenProgramsAreAsTheReferenceSays) {
  for (uint64_t seed = 500; seed < 530; ++seed) {
    const Program program = Simplify(testing::Weaver(seed, seed % 3 == 0 ? 24 : 4).Make());
    ASSERT_EQ(testing::DifferenceOf(program, seed), "") << "seed " << seed << "\n"
                                                        << Print(program);
  }
}

// Of f32 every so many of all patterns of bits, of halves all.
TEST_P(LevelsTest, FunctionsAreWithinTheBound) {
  std::vector<uint32_t> singles;
  for (uint64_t code = 0; code < uint64_t{1} << 32; code += 100'003) {
    singles.push_back(static_cast<uint32_t>(code));
  }
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  for (const testing::FunctionCase& one : testing::kFunctionCases) {
    const testing::WorstUnits worst = testing::WorstOf(one, testing::kF32Function, singles);
    EXPECT_LE(worst.units, one.bound) << InfoOf(one.op).name << " of " << worst.at;
    for (const testing::FunctionType& type : {testing::kF16Function, testing::kBF16Function}) {
      const testing::WorstUnits half = testing::WorstOf(one, type, halves);
      EXPECT_LE(half.units, 1) << InfoOf(one.op).name << " of " << half.at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LevelsTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

// The reference grants sums of products a tolerance; small ones and those of f64 and integers are
// our own, and have one order.
TEST(LevelsTest, OurProductsHaveTheSameBitsAtAllLevels) {
  const std::vector<int64_t> levels = hwy::SupportedAndGeneratedTargets();
  for (const std::string type : {"f64", "f32", "f16", "bf16", "f8e4m3fn", "i8", "i32"}) {
    const bool integer = type[0] == 'i';
    const std::string sum = integer ? "i32" : type == "f64" ? "f64" : "f32";
    const Program program = testing::Parsed(
        absl::StrCat("program 1\nbuffer @y write 30000\n%k = constant splat=7 : u64[]\n"
                     "%r = rng_bits %k, %k : u32[37,83]\n%c = convert %r : f32[37,83]\n"
                     "%n = constant splat=x0000802f : f32[37,83]\n%u = multiply %c, %n\n"
                     "%t = convert ",
                     integer ? "%r" : "%u", " : ", type,
                     "[37,83]\n%p = dot_general %t, %t lhs_contract=[1] rhs_contract=[1] : ", sum,
                     "[37,37]\n%b = dot_general %t, %t lhs_contract=[0] rhs_contract=[0] : ", sum,
                     "[83,83]\n%l = slice %b start=[0,0] limit=[29,31] step=[1,1]\nstore @y, %p\n"
                     "store @y, %l offset=16384\n"));
    const std::vector<Bytes> buffers = testing::RandomBuffers(program, 1);
    const std::vector<Bytes> first = testing::RunOnHost(program, buffers);
    for (const int64_t level : levels) {
      hwy::SetSupportedTargetsForTest(level);
      EXPECT_TRUE(testing::RunOnHost(program, buffers) == first)
          << hwy::TargetName(level) << " " << type;
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// Else nothing is compared: the executor follows what these tests set.
TEST(LevelsTest, EachLevelIsAnother) {
  const std::vector<int64_t> levels = hwy::SupportedAndGeneratedTargets();
  std::set<std::string> described;
  for (const int64_t level : levels) {
    hwy::SetSupportedTargetsForTest(level);
    described.insert(DescribeCpu(1));
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_EQ(described.size(), levels.size());
}

}  // namespace
}  // namespace ferry::compute
