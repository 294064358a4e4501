// SPDX-License-Identifier: Apache-2.0
// Which ops are one kernel with a reduction over other dimensions than the last.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/compute/plan/planned.h"

namespace ferry::compute {
namespace {

using testing::PlanOf;
using testing::StepsOf;

// The order of the elements is the reduction's, whatever their ops are made of.
TEST(ColumnPlanTest, AReductionOfColumnsIsOneKernelWithWhatMakesItsElements) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @m read 64\nbuffer @y write 64\n"
      "%x = input @x : f32[16,16]\n%m = input @m : f32[16]\n"
      "%w = broadcast_in_dim %m dimensions=[1] : f32[16,16]\n%d = subtract %x, %w \"less\"\n"
      "%e = multiply %d, %d \"square\"\n%a = reduce %e reduction=sum dimensions=[0] \"columns\"\n"
      "%r = sqrt %a \"root\"\nstore @y, %r\n");
  EXPECT_EQ(StepsOf(plan), "kernel less+square+columns+root");
  EXPECT_EQ(plan.memory.bytes, 0u);
}

// What others use as well, what depends on the order of the elements, what lies across, and what
// GPUs have no room or too few threads for.
TEST(ColumnPlanTest, AReductionOfColumnsReadsWhatCannotBeMadeInItsKernel) {
  const auto steps = [](const std::string& ops, const std::string& more = "",
                        const std::string& dims = "16,16") {
    return StepsOf(PlanOf(absl::StrCat(
        "buffer @x read_write 131072\nbuffer @y write 32768\nbuffer @z write 131072\n"
        "%x = input @x : f64[",
        dims, "]\n", ops, "%a = reduce %e reduction=sum dimensions=[0] \"columns\"\nstore @y, %a\n",
        more)));
  };
  const auto chain = [](int ops) {
    std::string text = "%e0 = add %x, %x \"e\"\n";
    for (int i = 1; i < ops; ++i) {
      absl::StrAppend(&text, "%e", i, " = multiply %e", i - 1, ", %x \"e\"\n");
    }
    return absl::StrReplaceAll(text, {{absl::StrCat("%e", ops - 1), "%e"}});
  };
  const std::string together = "kernel e+columns", apart = "kernel e, kernel columns";
  EXPECT_EQ(steps(chain(12)), together);
  EXPECT_EQ(steps(chain(13)), apart);
  EXPECT_EQ(steps(chain(2), "store @z, %e\n"), apart);
  EXPECT_EQ(steps(chain(2), "%b = sqrt %e \"b\"\nstore @z, %b\n"), "kernel e+b, kernel columns");
  EXPECT_EQ(steps("%f = add %x, %x \"e\"\n%e = reshape %f : f64[4,64]\n"), apart);
  EXPECT_EQ(steps("%r = constant splat=7 : u64[]\n%b = rng_bits %r, %r : u64[16,16]\n"
                  "%f = convert %b : f64[16,16]\n%e = add %f, %x \"e\"\n"),
            apart);
  EXPECT_EQ(steps("%r = reverse %x dimensions=[0]\n%e = add %x, %r \"e\"\n"), together);
  EXPECT_EQ(steps("%r = reverse %x dimensions=[0]\n%s = reverse %x dimensions=[1]\n"
                  "%f = add %x, %r \"e\"\n%e = add %f, %s \"e\"\n"),
            apart)
      << "192 bits";
  EXPECT_EQ(steps("%t = input @x strides=[1,16] : f64[16,16]\n%e = add %x, %t \"e\"\n"), apart);
  EXPECT_EQ(steps("%t = transpose %x permutation=[1,0] \"t\"\n%e = add %x, %t \"e\"\n"),
            "kernel t, kernel e+columns");
  EXPECT_EQ(steps("%t = transpose %x permutation=[1,0] \"t\"\n%r = reverse %x dimensions=[0]\n"
                  "%f = add %x, %t \"e\"\n%e = add %f, %r \"e\"\n"),
            "kernel t, kernel e, kernel columns")
      << "what another step makes is read too";
  EXPECT_EQ(steps("%v = input @x strides=[64,4] : f64[16,16]\n%e = add %v, %v \"e\"\n"), together);
  EXPECT_EQ(steps("%v = input @x strides=[80,5] : f64[16,16]\n%e = add %v, %v \"e\"\n"), apart);
  EXPECT_EQ(steps("%e = tanh %x \"e\"\n"), apart);
  EXPECT_EQ(steps("%e = tanh %x \"e\"\n", "", "4,4096"), together);
  EXPECT_EQ(steps("%e = tanh %x \"e\"\n", "", "16384,1"), "kernel e+columns") << "rows";
}

// Of long results each chunk has threads of its own.
TEST(ColumnPlanTest, CostlyOpsAreMadeInAReductionOfColumnsOfManyChunks) {
  const auto steps = [](int rows) {
    return StepsOf(PlanOf(absl::StrCat(
        "buffer @x read ", rows * 256, "\nbuffer @y write 256\n%x = input @x : f32[", rows,
        ",64]\n%e = tanh %x \"e\"\n%a = reduce %e reduction=sum dimensions=[0] \"columns\"\n"
        "store @y, %a\n")));
  };
  EXPECT_EQ(steps(8192), "kernel e, kernel columns");
  EXPECT_EQ(steps(131072 - 4096), "kernel e, kernel columns");
  EXPECT_EQ(steps(131072), "kernel e+columns");
}

// In whichever dimensions; broadcasts lie in the order of what they are made of.
TEST(ColumnPlanTest, WhatAReductionOfColumnsMakesItsElementsOfLiesAsTheyWould) {
  const auto steps = [](const std::string& input, const std::string& dimensions) {
    return StepsOf(PlanOf(
        absl::StrCat("buffer @x read 65536\nbuffer @v read 65536\nbuffer @y write 16384\n"
                     "%x = input @x : f32[8,4,16,32]\n",
                     input, "%e = multiply %x, %v \"e\"\n%a = reduce %e reduction=sum dimensions=[",
                     dimensions, "] \"columns\"\nstore @y, %a\n")));
  };
  const auto spread = [](const std::string& from, const std::string& dimensions) {
    return absl::StrCat("%b = input @v : f32[", from, "]\n%v = broadcast_in_dim %b dimensions=[",
                        dimensions, "] : f32[8,4,16,32]\n");
  };
  const std::string together = "kernel e+columns", apart = "kernel e, kernel columns";
  const std::string channels_last = "%v = input @v strides=[2048,1,128,4] : f32[8,4,16,32]\n";
  for (const std::string dimensions : {"0", "1", "0,2", "0,2,3"}) {
    EXPECT_EQ(steps(channels_last, dimensions), apart) << dimensions;
    EXPECT_EQ(steps("%v = input @v : f32[8,4,16,32]\n", dimensions), together) << dimensions;
    EXPECT_EQ(steps(spread("32", "3"), dimensions), together) << dimensions;
    EXPECT_EQ(steps(spread("4", "1"), dimensions), together) << dimensions;
    EXPECT_EQ(steps(spread("8,16", "0,2"), dimensions), together) << dimensions;
    EXPECT_EQ(steps(spread("32,16", "3,2"), dimensions), apart) << dimensions;
  }
}

// What a reduction makes its elements of is no loop of others that read the same memory.
TEST(ColumnPlanTest, WhatReadsOtherElementsOfTheSameMemoryIsApartFromAReductionOfColumns) {
  EXPECT_EQ(StepsOf(PlanOf("buffer @x read 8192\nbuffer @y write 256\nbuffer @z write 256\n"
                           "%x = input @x : f32[32,64]\n%r = input @x : f32[64]\n"
                           "%e = add %x, %x \"e\"\n%n = negate %r \"row\"\n"
                           "%a = reduce %e reduction=sum dimensions=[0] \"columns\"\n"
                           "store @y, %a\nstore @z, %n\n")),
            "kernel e+columns, kernel row");
}

// Also as a part of a buffer, or reshaped; and what is done with each result is done at once.
TEST(ColumnPlanTest, AReductionOfColumnsIsOneKernelWithWhatIsDoneWithItsResults) {
  const std::string begin =
      "buffer @x read 1024\nbuffer @s read 64\nbuffer @y write 64\n"
      "buffer @z write 64\n%s = input @s : f32[16]\n";
  for (const std::string view :
       {"%x = input @x : f32[16,16]\n", "%w = input @x : f32[4,64]\n%x = reshape %w : f32[16,16]\n",
        "%w = input @x : f32[16,16]\n%x = reverse %w dimensions=[0]\n"}) {
    const Plan plan = PlanOf(
        begin + view +
        "%a = reduce %x reduction=sum dimensions=[0] \"columns\"\n%b = multiply %a, %s \"mean\"\n"
        "%c = negate %b \"less\"\nstore @y, %b\nstore @z, %c\n");
    EXPECT_EQ(StepsOf(plan), "kernel columns+mean+less");
    EXPECT_EQ(plan.memory.bytes, 0u);
  }
}

// What has others than the results is apart, and so is another reduction.
TEST(ColumnPlanTest, OnlyWhatIsDoneWithEachResultJoinsAReductionOfColumns) {
  const Plan plan = PlanOf(
      "buffer @x read 1024\nbuffer @y write 64\nbuffer @z write 64\nbuffer @t write 4\n"
      "%x = input @x : f32[16,16]\n%a = reduce %x reduction=sum dimensions=[0] \"columns\"\n"
      "%b = reduce %x reduction=max dimensions=[0] \"most\"\n%d = subtract %a, %b \"less\"\n"
      "%t = reduce %d reduction=sum dimensions=[0] \"all\"\n"
      "store @y, %d\nstore @z, %b\nstore @t, %t\n");
  EXPECT_EQ(StepsOf(plan), "kernel most, kernel columns+less, kernel all");
}

}  // namespace
}  // namespace ferry::compute
