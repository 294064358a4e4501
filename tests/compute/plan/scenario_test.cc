// SPDX-License-Identifier: Apache-2.0
// What Pallas' fuser and XLA's passes are tested for, of programs here: which test has it, and
// what has none. What no other test has is below. (Of transfers: tests/gpu/scenario_test.cc.)
//
// clang-format off
// Pallas' fuser                                   | here
// ------------------------------------------------|------------------------------------------------
// nothing to fuse with                            | PlanTest.AProgramWithoutAProductIsOneKernel: legal
// two operands of one producer: done for each     | made once, in scratch or a slot, where Pallas does
//                                                 | it twice: PlanTest.AProducerOfTwoFactorsIsMadeOnce,
//                                                 | AProducerOfTwoProductsIsMadeOnce
// a kernel whose result nobody needs; kept        | PlanTest.ADroppedProductIsNotRunUnlessKept
// several outputs with epilogues of their own     | PlanTest.AProductUsedTwiceHasTwoOutputs, golden/
//                                                 | outputs; AProductAndItsStatistic: elementwise ops
//                                                 | go along, the reduction is a kernel of its own
// groups of outputs that are not disjoint         | PlanTest.WhatIsOfTwoGroupsJoinsThem: one kernel,
//                                                 | where Pallas refuses
// outputs permuted, nested, used again            | OutputsInAnyOrderAndMoreThanOnce
// a trivial epilogue                              | ATrivialEpilogueIsNone
// effects: writes stay, reads go                  | golden dead-effects, dead-order_in_a_body;
//                                                 | RandomPassesTest
// in place: relu(a @ w + b) over b                | PlanTest.ABiasIsWrittenOverByWhatItIsAddedTo
// in place: f(x transposed) @ w over x            | PlanTest.WhatIsReadElsewhereIsReadBeforeItIsWritten-
//                                                 | Over: legal, by a copy, where Pallas refuses
// a write of what is not the kernel's             | AnUnrelatedStoreIsAKernelOfItsOwn: legal
// references as arguments                         | none can be: buffers are named
// the trace before fusion                         | GoldenPassesTest, GoldenPlanTest; `ferryctl program
//                                                 | print --simplified`, `plan --kernels`
// x + x[shift]                                    | golden/shifted: through memory
// equality of index maps and graphs               | FingerprintTest
// values needed before the tile (dynamic slices)  | ADynamicSliceIsAKernelOfItsOwn
// types of several arrays (elements, scales)      | two values with rules of their own: RulesTest,
//                                                 | golden/quantized. There is no such type
// custom fusions                                  | none: programs are data, there are no custom ops
// ops that a path does not have                   | of GPUs: GpuPlanTest; the daemon: UNIMPLEMENTED
// batching, derivatives                           | none: not of programs
// random bits of any tile                         | PhiloxTest, and rng_bits in all random programs
// rules of tiles by op                            | none by op: RandomPlanTest, WovenPlansDoWhatPrograms-
//                                                 | Do, HostProgramTest compare what plans do
// cost estimates                                  | CostTest, PlanTest.CostsAreThoseOfItsSteps
// memory spaces                                   | none: docs/decisions/2026-11-23-one-memory-space.md
// empty, poisoned                                 | VerifyTest.WhatIsEmpty..., HostProgramTest.WhatIsEmpty...
// synchronous copies, debug prints and checks     | none: there is `copy`, always over when its step is
//
// XLA                                             | here
// ------------------------------------------------|------------------------------------------------
// block-scaled dot: types, ranks, odd sizes       | ProductTest.BlockFormatsAreMultiplied; of GPUs
//                                                 | GpuRunTest.ScaledProductsAreNativeWhereTheyMayBe
// padded scales, block given or implied, global 1 | BlockScaledDotTest.HasTheSameBits...
// global scale of 0, negative, infinite           | BlockScaledDotTest.AGlobalScaleIsAFactor
// e5m2 by e5m2                                    | ProductTest.BlockFormatsAreMultiplied
// wrong shapes                                    | RulesTest.WhatBreaksARuleIsToldByIt
// f4e2m1fn, f8e8m0fnu                             | tests/compute/numerics, ferry_numerics_sweep
// too much memory is said before it runs          | PlanTest.SaysWhoHoldsMost, JobMemoryTest (daemon)
// choice among configurations (autotuner)         | none: an executor has one way for each product
// barriers: identity, nothing crosses, no use     | golden barrier, fold-through_a_barrier, dead-barrier
// delays of asynchronous starts, overlap limits   | TransfersTest; only that starts come before what
//                                                 | does not wait. No limits, no cost model of time
// compute and collectives on streams              | none: programs have no collectives
// sums out of loops                               | LoopSumsTest (passes and host), golden motion-*
// the same where results are scattered by index   | none: not moved (docs/programs.md)
// clang-format on
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compute/plan/plan.h"
#include "compute/program/fingerprint.h"
#include "tests/compute/plan/planned.h"

namespace ferry::compute {
namespace {

using testing::PlanOf;
using testing::StepsOf;

constexpr char kHead[] =
    "buffer @x read 1024\nbuffer @w read 1024\nbuffer @v read 1024\n"
    "buffer @y write 1024\nbuffer @z write 1024\nbuffer @u write 1024\nbuffer @r write 64\n"
    "%x = input @x : f32[16,16]\n%w = input @w : f32[16,16]\n%v = input @v : f32[16,16]\n";

Plan PlanAfterHead(const std::string& text) { return PlanOf(kHead + text); }

constexpr char kProduct[] = "%p = dot_general %x, %w lhs_contract=[1] rhs_contract=[0] \"p\"\n";

TEST(ScenarioTest, AProducerOfTwoProductsIsMadeOnce) {
  const Plan plan = PlanAfterHead(
      "%n = negate %x \"n\"\n%p = dot_general %n, %w lhs_contract=[1] rhs_contract=[0] \"p\"\n"
      "%q = dot_general %n, %v lhs_contract=[1] rhs_contract=[0] \"q\"\n"
      "store @y, %p\nstore @z, %q\n");
  EXPECT_EQ(StepsOf(plan), "kernel n, product p, product q");
  EXPECT_EQ(plan.slots.size(), 1u);
}

TEST(ScenarioTest, AProductAndItsStatistic) {
  const Plan plan = PlanAfterHead(
      absl::StrCat(kProduct,
                   "%a = tanh %p \"a\"\nstore @y, %a\n%s = multiply %p, %p \"s\"\n"
                   "%t = reduce %s reduction=sum dimensions=[1] \"t\"\nstore @r, %t\n"));
  EXPECT_EQ(StepsOf(plan), "product p+a+s, kernel t");
}

TEST(ScenarioTest, OutputsInAnyOrderAndMoreThanOnce) {
  const Plan plan = PlanAfterHead(absl::StrCat(kProduct,
                                               "%d = multiply %p, %v \"d\"\n%s = add %p, %p \"s\"\n"
                                               "store @z, %s\nstore @u, %p\nstore @y, %d\n"));
  EXPECT_EQ(StepsOf(plan), "product p+s+d");
  const Plan again =
      PlanAfterHead(absl::StrCat(kProduct, "store @z, %p\nstore @u, %p\nstore @y, %p\n"));
  EXPECT_EQ(StepsOf(again), "product p");
}

TEST(ScenarioTest, ATrivialEpilogueIsNone) {
  const Plan plain = PlanAfterHead(absl::StrCat(kProduct, "store @y, %p\n"));
  const Plan trivial = PlanAfterHead(
      absl::StrCat(kProduct,
                   "%a = reshape %p : f32[16,16]\n%b = transpose %a permutation=[0,1]\n"
                   "%c = convert %b : f32[16,16]\n%d = broadcast_in_dim %c dimensions=[0,1] : "
                   "f32[16,16]\nstore @y, %d\n"));
  ASSERT_EQ(trivial.steps.size(), 1u);
  EXPECT_EQ(FingerprintOf(trivial.steps[0].program), FingerprintOf(plain.steps[0].program));
  EXPECT_EQ(trivial.memory.bytes, plain.memory.bytes);
}

TEST(ScenarioTest, AnUnrelatedStoreIsAKernelOfItsOwn) {
  const Plan plan = PlanAfterHead(absl::StrCat(
      kProduct, "%r = abs %p \"r\"\nstore @y, %r\n%n = tanh %v \"n\"\nstore @z, %n\n"));
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(StepsOf(plan), "product p+r, kernel n");
  EXPECT_TRUE(plan.steps[1].after.empty());
}

// Where it begins is read once for all, and never by what is fused with others.
TEST(ScenarioTest, ADynamicSliceIsAKernelOfItsOwn) {
  const Plan plan = PlanAfterHead(
      "%i = constant splat=3 : i32[]\n%b = barrier %i\n"
      "%s = dynamic_slice %x, %b, %b sizes=[4,4] \"s\"\n%t = tanh %s \"t\"\nstore @r, %t\n");
  EXPECT_EQ(StepsOf(plan), "kernel s, kernel t");
}

}  // namespace
}  // namespace ferry::compute
