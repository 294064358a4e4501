// SPDX-License-Identifier: Apache-2.0
// Products whose factors passes have changed: the values are those of the program as it was
// written.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/passes/passes.h"
#include "tests/compute/host/host_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

// Transposes that are converted on the way to a product, of each side and both, with batches: none
// stays, and the values are those of the program as it was written.
TEST(FactorsTest, TransposesFoldThroughConversions) {
  for (const std::string type : {"f64", "bf16", "f8e4m3fn", "f4e2m1fn"}) {
    for (const std::string text :
         {"%t = transpose %l permutation=[1,0]\n%c = convert %t : f32[12,6]\n"
          "%p = dot_general %c, %m lhs_contract=[1] rhs_contract=[0] : f32[12,10]\n",
          "%t = transpose %m permutation=[1,0]\n%c = convert %t : f32[10,6]\n"
          "%p = dot_general %l, %c lhs_contract=[0] rhs_contract=[1] : f32[12,10]\n",
          "%t = transpose %l permutation=[1,0]\n%c = convert %t : f32[12,6]\n"
          "%p = dot_general %c, %c lhs_contract=[0] rhs_contract=[0]\n",
          "%q = reshape %l : TYPE[2,3,12]\n%t = transpose %q permutation=[0,2,1]\n"
          "%c = convert %t : f32[2,12,3]\n%k = reshape %m : TYPE[2,3,10]\n"
          "%u = transpose %k permutation=[0,2,1]\n%d = convert %u : f32[2,10,3]\n"
          "%p = dot_general %c, %d lhs_batch=[0] rhs_batch=[0] lhs_contract=[2] "
          "rhs_contract=[2]\n"}) {
      const Program program = testing::Parsed(absl::StrReplaceAll(
          absl::StrCat("program 1\nbuffer @l read 576\nbuffer @m read 480\nbuffer @y write 2400\n"
                       "%l = input @l : TYPE[6,12]\n%m = input @m : TYPE[6,10]\n",
                       text, "store @y, %p\n"),
          {{"TYPE", type}}));
      const Program simple = Simplify(program);
      EXPECT_EQ(Print(simple).find("transpose"), std::string::npos) << Print(simple);
      const std::vector<Bytes> buffers = testing::RandomBuffers(program, 1);
      std::vector<testing::Memory> reference(buffers.begin(), buffers.end());
      testing::Evaluate(program, reference);
      for (const Program& one : {program, simple}) {
        EXPECT_EQ(reference[0].DifferenceOf(testing::RunOnHost(one, buffers)[0]), "") << Print(one);
      }
    }
  }
}

}  // namespace
}  // namespace ferry::compute
