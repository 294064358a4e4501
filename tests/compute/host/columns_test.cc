// SPDX-License-Identifier: Apache-2.0
// Reductions whose results follow each other in memory, and moves across memory: the bits are the
// reference's, whatever the shape and the number of threads.
#include <gtest/gtest.h>

#include <vector>

#include "compute/program/text.h"
#include "tests/compute/host/host_runs.h"
#include "tests/compute/shaped_programs.h"

namespace ferry::compute {
namespace {

using testing::DifferenceOf;
using testing::RunOnHost;

void ExpectAsReference(const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    const std::vector<testing::Bytes> buffers = testing::RandomBuffers(program, 11);
    EXPECT_EQ(DifferenceOf(program, buffers, 1), "") << Print(program);
    EXPECT_TRUE(RunOnHost(program, buffers, 1) == RunOnHost(program, buffers, 3)) << Print(program);
  }
}

TEST(ColumnsTest, ReductionsAreAsTheReferenceSays) { ExpectAsReference(testing::ColumnPrograms()); }
TEST(ColumnsTest, WhatIsReducedIsMadeOnTheWay) { ExpectAsReference(testing::MadeColumnPrograms()); }
// Of few bits there are ties, and NaN of halves.
TEST(ColumnsTest, ArgmaxIsTheFirstOfTheLargest) { ExpectAsReference(testing::ArgmaxPrograms()); }
TEST(ColumnsTest, ViewsThatLieAcrossAndResultsThatAreUsedAtOnce) {
  ExpectAsReference(testing::ColumnUsePrograms());
}
TEST(SquaresTest, TransposesMoveAllBytes) { ExpectAsReference(testing::TransposePrograms()); }
TEST(SquaresTest, OpsOnWhatIsReadAcross) { ExpectAsReference(testing::AcrossPrograms()); }

}  // namespace
}  // namespace ferry::compute
